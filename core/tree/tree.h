/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tree.h - the structure of one PyTree item: containers and leaves by key path.
 *
 * A tree is built once, from `_METADATA`, from a legacy aggregate file, or from the names of
 * arrays. It is immutable after tree_finish() and tree_name(), and in one arena. It has keys and
 * recorded kinds; the leaf types know shapes and element types.
 *
 * Order: a sequence by its indices; other containers in the order of the document, which in Orbax's
 * own is the order of JAX: sorted keys of a dict, the fields of a namedtuple. Keys that are
 * integers ("-1", "10") are always in the order of their values among each other.
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
	TREE_TUPLE,      /* known from rich types or an empty node */
	TREE_NAMEDTUPLE, /* known from rich types */
	TREE_CUSTOM,     /* rich types have its keys, `_METADATA` only positions */
	TREE_LEAF,       /* a value, including None */
};

/* The place of a leaf's value. */
enum tree_value {
	TREE_VALUE_STORED,      /* arrays, scalars, strings, files of a leaf type */
	TREE_VALUE_NONE,        /* None, or an empty namedtuple: nothing is stored */
	TREE_VALUE_PLACEHOLDER, /* saved as `...`: nothing is stored */
	TREE_VALUE_AGGREGATE,   /* in the legacy aggregate file: member aggregate */
};

enum aggregate_kind {
	AGGREGATE_NIL,
	AGGREGATE_BOOL,
	AGGREGATE_INT,
	AGGREGATE_UINT,
	AGGREGATE_FLOAT,
	AGGREGATE_STRING,
	AGGREGATE_BYTES,
	AGGREGATE_COMPLEX,
	AGGREGATE_ARRAY,
	AGGREGATE_SPEC /* the TensorStore spec of an array that is stored beside the file */
};

#define AGGREGATE_RANK_MAX 8 /* a higher rank is -EOPNOTSUPP */

/* A value of the aggregate file; immutable; in the tree's arena or in the file's bytes. */
struct aggregate {
	enum aggregate_kind kind;
	/* AGGREGATE_ARRAY; rank 0 for numpy scalars (is_scalar). */
	bool is_scalar;
	uint8_t rank;
	uint32_t n_chunks; /* pieces whose concatenation is the array in C order */
	union {
		bool b;
		int64_t i;
		uint64_t u; /* above INT64_MAX */
		double f;
		struct {
			double re, im;
		};
		struct span s;             /* STRING: UTF-8; BYTES */
		struct {                   /* ARRAY; SPEC, where the leaf's param is its path */
			const char *dtype; /* numpy's name, as stored: "bfloat16", "float64" */
			const uint64_t *shape;
			const struct span *chunks; /* NULL for SPEC */
			/*
			 * bytes / elements, which the leaf type compares with dtype; 0 when there
			 * are no elements
			 */
			uint64_t item_size;
			const char *unreadable; /* SPEC: NULL, or why it cannot be followed */
		};
	};
};

struct item;
struct kv;

/*
 * The origin of a leaf's value that is not stored itself; embedded in a larger struct. Lives as
 * long as the tree.
 */
struct tree_source {
	/*
	 * Open a store with the single array of the leaf at prefix "". Any thread may call;
	 * item_array() keeps the store.
	 */
	int (*open)(const struct tree_source *s, struct item *item, struct kv **ret);
	/* The i-th stored leaf that it is made of; NULL after the last. */
	const struct tree_node *(*input)(const struct tree_source *s, unsigned i);
};

/* The description of a namedtuple in rich types; or the order of a dict, without a class. */
struct tree_type {
	struct span module, clazz; /* empty: a dict */
	/*
	 * While the tree is being built: the keys of the children in the order that tree_sort()
	 * gives them. NULL: unchanged order.
	 */
	const struct span *fields;
	size_t n_fields;
};

struct tree_node {
	struct tree_node *parent; /* NULL for the root */
	struct span key;          /* its own key text; empty for the root */
	enum tree_kind kind;
	uint32_t id;         /* index in tree->nodes: depth first, root 0 */
	uint32_t n_children; /* 0 for leaves and empty containers */
	bool key_is_index;   /* key_type 1: a position in a sequence */

	/* For containers: */
	union {
		struct tree_node **children; /* in the order of the tree */
		struct tree_node *first;     /* before tree_finish() */
	};
	union {
		struct tree_node **by_key; /* sorted by key bytes; not used for sequences */
		struct tree_node *last;    /* before tree_finish() */
	};
	union {
		struct tree_node **by_name; /* children sorted by name; set by tree_name() */
		/*
		 * Of a leaf, set by tree_find_shared(): the next of those that are stored under the
		 * same name, in a ring; else NULL.
		 */
		const struct tree_node *shared;
	};
	/*
	 * TREE_NAMEDTUPLE; before tree_sort() also the order of a dict, or what it may become; else
	 * NULL.
	 */
	const struct tree_type *type;

	/* For leaves: */
	enum tree_value value;
	bool has_write_shape;
	uint8_t write_rank;
	/* "jax.Array", "np.ndarray", "scalar", "string", ...; empty: unknown */
	struct span value_type;
	/* keys joined by '.': the prefix of its stored keys; "" for a bare leaf */
	struct span param;
	const uint64_t *write_shape;
	const struct aggregate *aggregate; /* NULL: the file does not have the value */
	/* of a leaf that is computed from others; NULL: it is stored */
	const struct tree_source *source;

	/*
	 * Set by tree_name(): the name in the mount, including the extension; unique among
	 * siblings.
	 */
	union {
		struct span name;
		struct tree_node *next; /* before tree_finish(): the next sibling */
	};
};

static inline bool tree_is_sequence(const struct tree_node *node)
{
	return node->kind == TREE_LIST || node->kind == TREE_TUPLE;
}

/* Whether the aggregate file has the TensorStore spec of a leaf's array. */
static inline bool tree_leaf_has_spec(const struct tree_node *leaf)
{
	return leaf->value == TREE_VALUE_AGGREGATE && leaf->aggregate &&
	       leaf->aggregate->kind == AGGREGATE_SPEC;
}

/* Whether a leaf's array is in the item's stores: not in the aggregate file, not made of others. */
static inline bool tree_leaf_is_stored(const struct tree_node *leaf)
{
	return !leaf->source && (leaf->value == TREE_VALUE_STORED || tree_leaf_has_spec(leaf));
}

/* An attribute of a path, user.pytree.NAME, in JSON. */
struct tree_mark {
	const char *path, *name, *value;
};

/* The implementation of the random keys that a leaf holds. */
struct tree_key_impl {
	struct span param, impl;
};

struct tree {
	struct arena arena;
	struct tree *made_of;       /* tree to which this one refers, and which it owns; or NULL */
	struct tree_node *root;     /* a container, or a single bare leaf */
	struct tree_node **nodes;   /* all nodes, depth first */
	uint32_t n_nodes, n_leaves; /* n_leaves: arrays, scalars, strings; not None and `...` */

	/* Properties of the whole item, from the document. */
	bool has_use_ocdbt, use_ocdbt, has_use_zarr3, use_zarr3, store_fill_value;
	bool has_metadata; /* built from `_METADATA` */
	bool has_manifest; /* built from names and a manifest (tree_tensors.h) */
	bool is_step;      /* the manifest is of a step: the children are items */
	/* in the manifest: custom metadata of items; implementations of keys, by param */
	const struct tree_mark *marks;
	struct tree_key_impl *key_impl;
	uint32_t n_marks, n_key_impls;
	bool rich;                   /* value_metadata_tree was present and used */
	const char *custom_metadata; /* JSON in Python's spelling; NULL when null or absent */
};

/*
 * Parse `_METADATA` (README.md, section 2). Unknown members are ignored. The plain map determines
 * the structure; rich types add kinds of containers, and are ignored with a log line when they do
 * not match it. -EUCLEAN names the entry and the reason (mixed key types, gaps in a list, key_type
 * out of range, ...). json is not needed afterwards.
 */
int tree_parse_metadata(struct span json, const char *what, struct tree **ret);
/* Build the whole tree from an aggregate file alone. bytes must outlive the tree. */
int tree_parse_aggregate(struct span bytes, const char *what, struct tree **ret);
/*
 * Add the values of an aggregate file beside `_METADATA`: a value in the file that is not a
 * placeholder is the leaf's value. A leaf whose value should be in the file but is not stays
 * TREE_VALUE_AGGREGATE with aggregate NULL. bytes must outlive the tree; on failure the tree is
 * unchanged.
 */
int tree_merge_aggregate(struct tree *tree, struct span bytes, const char *what);
/*
 * Append the aggregate file of a tree: leaves with an aggregate as values, None as nil, others as
 * placeholders. -EFBIG for an array above a GiB or a file above LIMIT_AGGREGATE_BYTES; -EINVAL for
 * a leaf without its value.
 */
int tree_print_aggregate(const struct tree *tree, struct buf *ret);
/*
 * Build a tree from parameter names alone, split at '.'. value_type is "string" where is_string
 * (which may be NULL) is true, else empty. Where a name continues another one ("a", "a.b"), both
 * are kept, and the dot belongs to the key.
 */
int tree_from_names(const struct span *names, const bool *is_string, size_t n, struct tree **ret);
/* The same with another separator; "" splits nowhere. The params are the names, with a second slash
 * after one at the end. */
int tree_from_names_split(const struct span *names, const bool *is_string, size_t n,
			  const char *separator, struct tree **ret);
/* The same for paths of arrays and of groups, some of which may be empty; `/` separates keys. */
int tree_from_hierarchy(const struct span *names, size_t n, const struct span *groups,
			size_t n_groups, struct tree **ret);

/*
 * Mark the leaves that are stored under one name in a stored tree, as those of the keys "a", "b"
 * and of the key "a.b" are: Orbax writes them, and only the last value is there.
 */
int tree_find_shared(struct tree *tree);
/* Returns -EUCLEAN with a note that names the leaves that are stored as this one is. */
int tree_fail_shared(const struct tree_node *leaf);

/*
 * Name all nodes. ext_of() returns the default extension of a leaf (from its type); ours has the
 * bits of enum name_ours for the tree's top. Names that collide get the '~' form and a log line.
 * Must be called once, before the look-ups by name.
 */
typedef enum name_ext tree_ext_fn(void *arg, const struct tree_node *leaf);
int tree_name(struct tree *tree, unsigned ours, tree_ext_fn *ext_of, void *arg);

/*
 * Append {"module": ..., "clazz": ..., "fields": [...]} of a namedtuple, {"fields": [...]} of a
 * dict with tree_has_order(); -ENODATA for other nodes.
 */
int tree_namedtuple_json(const struct tree_node *node, struct buf *ret);

/* The child of that name, or NULL. */
const struct tree_node *tree_child(const struct tree_node *dir, struct span name);
/* The child whose name is that stem with any extension, or a container of that name; or NULL. */
const struct tree_node *tree_child_by_stem(const struct tree_node *dir, struct span stem);
/* The child with that key, or NULL. Does not need names. */
const struct tree_node *tree_child_by_key(const struct tree_node *dir, struct span key);
/* Append the whole key path as a JSON array of texts: ["params","layer0","w"]. */
int tree_key_json(const struct tree_node *node, struct buf *ret);
/* Append the path below the item in the mount: "params/layer0/w.npy". */
int tree_path(const struct tree_node *node, struct buf *ret);
const char *tree_kind_text(enum tree_kind kind);

/*
 * The following build a tree by hand, for drafts and tests: add nodes under a parent, then call
 * tree_finish().
 */
int tree_new(struct tree **ret);
/*
 * Append a child; with parent NULL the root, whose key is empty. The caller sets the other members
 * of the node before tree_finish(); spans must be in tree->arena or outlive the tree. -EINVAL: a
 * key that is not UTF-8, positions and keys under one parent, a child of a leaf.
 */
int tree_add(struct tree *tree, struct tree_node *parent, struct span key, bool key_is_index,
	     enum tree_kind kind, struct tree_node **ret);
/*
 * Before tree_finish(): put the children of every dict in the order of JAX, by code point, or in
 * that of the fields of node->type; children that are not fields come last.
 */
int tree_sort(struct tree *tree);
/*
 * Whether a dict of a finished tree has another order than tree_sort() gives it by itself: a
 * dataclass or an OrderedDict that Orbax has written.
 */
bool tree_has_order(const struct tree_node *node);
/*
 * Get the type of a namedtuple, or the order of a dict with tree_has_order(), for a node of another
 * tree that does not live longer: 1; 0: `like` has neither.
 */
int tree_type_like(struct tree *tree, const struct tree_node *like, const struct tree_type **ret);
/*
 * Number the nodes, set params that are not set, check limits. -EINVAL: two children with the same
 * key, or positions of a sequence that are not 0 to n - 1; the tree can then only be freed.
 */
int tree_finish(struct tree *tree);
/*
 * Append the tree as `_METADATA`, as Orbax 0.12.8 writes it; rich adds value_metadata_tree. Entries
 * are in the tree's order. -EINVAL: a key that is not UTF-8, a leaf without value_type.
 */
int tree_print_metadata(const struct tree *tree, bool rich, struct buf *ret);
/* Append text for `dump` and tests: the properties of the item, then one line per node. */
int tree_text(struct buf *out, const struct tree *tree);
/* Accepts NULL. */
void tree_free(struct tree *tree);

DEFINE_AUTO(tree, struct tree, tree_free);

#endif
