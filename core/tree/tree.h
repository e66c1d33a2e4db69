/*
 * tree.h - the structure of one PyTree item: containers and leaves by key path.
 *
 * A tree is built once from `_METADATA`, from a legacy aggregate file, or from
 * the names of arrays, and is immutable after tree_finish(); all of it lives in
 * one arena. It knows keys and recorded kinds; shapes and dtypes are the
 * handlers' business.
 */
#ifndef PYTREEFS_TREE_H
#define PYTREEFS_TREE_H

#include "core/base/arena.h"
#include "core/base/json.h"
#include "core/tree/name.h"

enum tree_kind {
	TREE_UNKNOWN,
	TREE_DICT,
	TREE_LIST,
	TREE_TUPLE,			/* known from rich types or an empty node */
	TREE_NAMEDTUPLE,		/* known from rich types */
	TREE_CUSTOM,			/* any other container that rich types name */
	TREE_LEAF,			/* a value, None included */
};

/* Where a leaf's value is. */
enum tree_value {
	TREE_VALUE_STORED,		/* arrays, scalars, strings, handler's own files: by value_type */
	TREE_VALUE_NONE,		/* None: nothing is stored */
	TREE_VALUE_PLACEHOLDER,		/* saved as `...`: nothing is stored */
	TREE_VALUE_AGGREGATE,		/* inside the legacy aggregate file: aggregate below */
};

enum aggregate_kind { AGGREGATE_NIL, AGGREGATE_BOOL, AGGREGATE_INT, AGGREGATE_UINT, AGGREGATE_FLOAT,
		      AGGREGATE_STRING, AGGREGATE_COMPLEX, AGGREGATE_ARRAY };

/* A value of the aggregate file; immutable, lives in the tree's arena or in the file's bytes. */
struct aggregate {
	enum aggregate_kind kind;
	union {
		bool b;
		int64_t i;
		uint64_t u;
		double f;
		struct { double re, im; };
		struct span s;		/* UTF-8 */
	};
	/* AGGREGATE_ARRAY, rank 0 for numpy scalars (is_scalar). */
	const char *dtype;		/* numpy's name, as stored: "bfloat16", "float64" */
	bool is_scalar;
	unsigned rank;
	uint64_t shape[8];		/* AGGREGATE_RANK_MAX; more is -EOPNOTSUPP */
	unsigned n_chunks;		/* pieces to be concatenated, C order */
	const struct span *chunks;
};

struct tree_node {
	struct tree_node *parent;	/* NULL for the root */
	enum tree_kind kind;
	struct span key;		/* own key text; empty for the root */
	bool key_is_index;		/* key_type 1: a position in a sequence */
	struct tree_node **children;	/* in the tree's order */
	uint32_t n_children;
	uint32_t id;			/* position in tree->nodes: depth first, root 0 */

	/* Containers. */
	struct span module, clazz;	/* namedtuples and custom nodes of rich types; else empty */

	/* Leaves. */
	enum tree_value value;
	struct span value_type;		/* "jax.Array", "np.ndarray", "scalar", "string", other; empty: unknown */
	struct span param;		/* keys joined by '.': the prefix of its stored keys; "" for a bare leaf */
	bool has_write_shape;
	unsigned write_rank;
	const uint64_t *write_shape;
	const struct aggregate *aggregate;

	/* Set by tree_name(): the name in the mount, extension included, unique among siblings. */
	struct span name;
	struct tree_node **by_name;	/* children sorted by name */
};

struct tree {
	struct arena arena;
	struct tree_node *root;		/* a container, or the one bare leaf */
	struct tree_node **nodes;	/* all, depth first */
	uint32_t n_nodes, n_leaves;	/* leaves: arrays, scalars, strings (None not counted) */

	/* What the document said about the whole item. */
	bool has_use_ocdbt, use_ocdbt, use_zarr3, store_fill_value;
	bool has_metadata;		/* built from `_METADATA` */
	bool rich;			/* value_metadata_tree was there and used */
	const char *custom_metadata;	/* JSON text in our spelling, or NULL when null or absent */
};

/*
 * `_METADATA` -> tree. Follows orbax.md sections 4.3 to 4.8: unknown members are ignored, the plain
 * map decides, rich types add container kinds. -EUCLEAN names entry and reason (mixed key types,
 * gaps in a list, key_type out of range, ...).
 */
int tree_parse_metadata(struct span json, const char *what, struct tree **ret);
/* Fill in aggregate values (leaves with skip_deserialize that are no empty nodes), or build the whole
 * tree when ret is a tree of NULL: orbax.md 9.1. bytes must outlive the tree. */
int tree_parse_aggregate(struct span bytes, const char *what, struct tree **ret);
int tree_merge_aggregate(struct tree *tree, struct span bytes, const char *what);
/* From parameter names alone, split at '.': orbax.md A.6. value_type stays empty. */
int tree_from_names(const struct span *names, const bool *is_string, size_t n, struct tree **ret);

/*
 * Give every node its name. ext_of says which default extension a leaf has (from its handler).
 * Collisions get the '~' form and a log line. Must be called once, before tree_lookup().
 */
typedef enum name_ext tree_ext_fn(void *arg, const struct tree_node *leaf);
int tree_name(struct tree *tree, tree_ext_fn *ext_of, void *arg);

/* The child of that name, or NULL. */
const struct tree_node *tree_child(const struct tree_node *dir, struct span name);
/* The child with that key, or NULL. */
const struct tree_node *tree_child_by_key(const struct tree_node *dir, struct span key);
/* The whole key path as a JSON array: ["params","layer0","w"]. */
int tree_key_json(const struct tree_node *node, struct buf *ret);
/* The path below the item in the mount: "params/layer0/w.npy". */
int tree_path(const struct tree_node *node, struct buf *ret);
const char *tree_kind_text(enum tree_kind kind);

/* Building by hand: for drafts and tests. Nodes are added under a parent; then tree_finish(). */
int tree_new(struct tree **ret);
int tree_add(struct tree *tree, struct tree_node *parent, struct span key, bool key_is_index,
	     enum tree_kind kind, struct tree_node **ret);
/* Numbers nodes, sets params, checks limits. */
int tree_finish(struct tree *tree);
/* tree -> `_METADATA`, as Orbax 0.12.8 writes it; rich adds value_metadata_tree. */
int tree_print_metadata(const struct tree *tree, bool rich, struct buf *ret);
/* Accepts NULL. */
void tree_free(struct tree *tree);

DEFINE_AUTO(tree, struct tree, tree_free);

#endif
