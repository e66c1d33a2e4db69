/* SPDX-License-Identifier: Apache-2.0 */
/*
 * draft_plan.h - what the names and contents of one item say: its tree, and where each leaf's value
 * is.
 *
 * Made for a commit, when everything must be right and is encoded on the way
 * (strict), and for reading `_METADATA` at any moment, when what is not a leaf yet is
 * left out.
 */
#ifndef PYTREEFS_DRAFT_PLAN_H
#define PYTREEFS_DRAFT_PLAN_H

#include "core/tree/tree_build.h"
#include "handlers/draft/draft_array.h"
#include "handlers/draft/draft_file.h"
#include "handlers/plugin/plugins.h"

enum plan_kind { PLAN_ARRAY, PLAN_SCALAR, PLAN_STRING, PLAN_NONE, PLAN_PLUGIN };

struct plan_leaf {
	struct tree_node *node;
	enum plan_kind kind;
	struct draft_node *source; /* borrowed from the plan; of parts the first */
	struct draft_node **part;  /* ARRAY in parts: all of them, in no order; borrowed nodes */
	size_t n_parts;
	size_t index; /* ARRAY: which one of the file's */
	bool has_shape, is_jax;
	bool aggregated; /* its value is in the legacy file */
	unsigned rank;   /* of the whole array */
	uint64_t shape[LIMIT_RANK];
	struct span sharding, key_impl; /* JAX, in the tree's arena; p NULL: none was set */
	const uint64_t *chunk, *write;  /* of an array that several ranks hold; else NULL */
	enum dtype dtype;               /* SCALAR */
	uint8_t element[LIMIT_ITEM_BYTES];
	struct buf text;            /* STRING */
	struct plugin *plugin;      /* PLUGIN */
	struct plugin_files stored; /* PLUGIN: what it made of the file */
	struct kv *kv;              /* SCALAR, and parts that were put together: owned */
};

/* What an item that is one array was saved by. */
#define ARRAY_HANDLER \
	"orbax.checkpoint._src.handlers.array_checkpoint_handler.ArrayCheckpointHandler"

enum plan_item { PLAN_TREE, PLAN_JSON, PLAN_PROTO, PLAN_STORED, PLAN_PLUGIN_ITEM };

struct plan {
	struct draft_node *item; /* a reference */
	char *name;              /* of the item */
	enum plan_item kind;
	bool strict;
	bool joint;            /* a rank's share of an item: the tree is not finished yet */
	struct save_opts opts; /* of the item */
	struct plugin *plugin; /* PLAN_PLUGIN_ITEM */
	struct tree *tree;     /* PLAN_TREE */
	bool is_array;         /* a tree of one leaf that Orbax's ArraySave wrote */
	struct tree *hint;     /* what a copied `_METADATA` says; NULL: nothing */
	bool hint_is_named;    /* its nodes have their names in a mount */
	struct tree_build build;
	struct plan_leaf *leaf;
	size_t n_leaves, cap;
	struct draft_node **held; /* references to all nodes that were looked at */
	size_t n_held, cap_held;
};

/* Of a child of the draft, or of the draft itself when it is one item. -EINVAL names what is wrong.
 */
int plan_new(struct draft_node *item, bool strict, struct plan **ret);
/* Accepts NULL. */
void plan_free(struct plan *p);
DEFINE_AUTO(plan, struct plan, plan_free);

/* ---- parts of it ---- */

/* A leaf below parent, or the bare one (NULL): 1; 0 when it is none and need not be one; -EINVAL.
 * (draft_leaf.c) */
int plan_file(struct plan *p, struct tree_node *parent, struct draft_node *n);
/* The parts of one array, all of the same stem; parent as above. (draft_parts.c) */
int plan_parts(struct plan *p, struct tree_node *parent, struct draft_node **parts, size_t n);
/* The key that a name below parent stands for. (draft_tree.c) */
int plan_key(struct plan *p, const struct tree_node *parent, struct draft_node *n, struct span stem,
	     bool is_dir, struct buf *ret);
/* A leaf with that key; ret NULL when there is one already, which is fine when not strict. */
int plan_leaf_new(struct plan *p, struct tree_node *parent, struct draft_node *n, struct span key,
		  struct plan_leaf **ret);
/* The tree is whole: order, names of leaves, what it says of the item. (draft_tree.c) */
int plan_finish_tree(struct plan *p);
/* What an array is recorded as, by options and xattrs. tensor: its name in the file, or empty. */
int plan_array(struct plan *p, struct plan_leaf *l, struct span tensor);

/* Whether it is a file of a name that is of no tree: the draft makes its own. (draft_tree.c) */
bool plan_is_metadata(const struct draft_node *n);
/* Make a dict, whose children are there, a namedtuple where an xattr or the copied `_METADATA` says
 * so. (draft_rich.c) */
int plan_namedtuple(struct plan *p, struct draft_node *dir, struct tree_node *node);

/*
 * Encode the scalars, put parts together: kv of each leaf is set or its file has it.
 * (draft_parts.c, draft_leaf.c)
 */
int plan_encode_scalar(struct plan_leaf *l);
int plan_join_parts(struct plan *p, struct plan_leaf *l, bool *ret_shifted);

/* ---- one array in boxes, wherever they lie (boxes.c) ---- */

struct box {
	uint64_t start[LIMIT_RANK], extent[LIMIT_RANK];
	int rank;         /* who has it, for messages; -1: nobody is named */
	const char *name; /* of its file, for messages, when rank is -1 */
};

/* -EINVAL names two boxes that overlap, or where there is a hole. what: the array's name. */
int boxes_check(const struct box *box, size_t n, unsigned rank, const uint64_t *shape,
		const char *what);
/*
 * Elements of the whole in C order, from readers of the boxes: n elements of box i from its element
 * `first` on.
 */
typedef int box_read_fn(void *arg, size_t i, uint64_t first, uint64_t n, uint8_t *p);
struct box_reader {
	const struct box *box;
	size_t n;
	unsigned rank;
	const uint64_t *shape;
	uint64_t item; /* bytes an element */
	box_read_fn *read;
	void *arg;
};
/* arg is a struct box_reader; as array_read_fn. */
int boxes_read(void *arg, uint64_t off, size_t n, void *p);

#endif
