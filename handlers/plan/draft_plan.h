/* SPDX-License-Identifier: Apache-2.0 */
/*
 * draft_plan.h - the plan of one item: its tree, and the place of each leaf's value.
 *
 * A plan is made from names and contents. The strict plan of a commit requires everything to be
 * valid, and encodes what is not encoded yet. The plan for a read of `_METADATA` leaves out what is
 * not a leaf yet.
 */
#ifndef PYTREEFS_DRAFT_PLAN_H
#define PYTREEFS_DRAFT_PLAN_H

#include "core/tree/tree_build.h"
#include "handlers/draft/draft_array.h"
#include "handlers/draft/draft_file.h"
#include "handlers/leaf/leaf.h"
#include "handlers/plugin/plugins.h"

/* A leaf, and the files of the draft that contain it. */
struct plan_leaf {
	struct tree_node *node;
	struct leaf_desc desc;     /* for parts: of the whole array */
	struct draft_node *source; /* borrowed from the plan; for parts, the first one */
	/* for an array in parts: all parts, unordered; nodes are borrowed */
	struct draft_node **part;
	size_t n_parts;
	size_t index;                  /* for an array: its index in the file */
	bool aggregated;               /* its value is in the legacy file */
	const uint64_t *chunk, *write; /* for an array that several ranks write; else NULL */
	/* an array that was encoded for the commit, such as a number or joined parts; owned */
	struct kv *kv;
};

/* The handler that is recorded for an item that is one array. */
#define ARRAY_HANDLER \
	"orbax.checkpoint._src.handlers.array_checkpoint_handler.ArrayCheckpointHandler"

enum plan_item {
	PLAN_TREE,
	PLAN_JSON,
	PLAN_PROTO,
	PLAN_STORED,
	PLAN_PLUGIN_ITEM,
	PLAN_BESIDE /* no item, but the files beside the items, which have the name "" together */
};

struct plan;

struct plan {
	struct draft_node *item; /* a reference */
	char *name;              /* name of the item */
	enum plan_item kind;
	bool strict;
	struct draft_node *refused; /* the name at the top that is not a leaf; or NULL */
	/*
	 * It has the part of a rank of a job. What needs the parts of all ranks is left to the
	 * primary: whether parts tile an array, the types of dicts, the shapes that devices wrote,
	 * the format, and the end of the tree.
	 */
	bool partial;
	struct save_opts opts; /* options of the item */
	struct plugin *plugin; /* for PLAN_PLUGIN_ITEM */
	struct tree *tree;     /* for PLAN_TREE */
	bool is_array;         /* the tree is one leaf, saved by Orbax's ArraySave */
	char *copied_handler;  /* of the item, by the copied `_CHECKPOINT_METADATA`; or NULL */
	struct tree *hint;     /* parsed from a copied `_METADATA`; NULL: none */
	bool hint_is_named;    /* names of its nodes are set, as in a mount */
	struct tree_build build;
	struct plan_leaf *leaf;
	size_t n_leaves, cap;
	/*
	 * files and directories beside the arrays or items, which are stored as they are; borrowed
	 * from held
	 */
	struct draft_node **other;
	size_t n_others, cap_others;
	struct draft_node **held; /* references to all nodes that the plan uses */
	size_t n_held, cap_held;
};

/*
 * Make the plan of a child of the draft, or of the draft itself: of its tree when it is one item,
 * else of what lies beside its items. -EINVAL: the message names the error.
 */
int plan_new(struct draft_node *item, bool strict, struct plan **ret);
/* Accepts NULL. */
void plan_free(struct plan *p);
DEFINE_AUTO(plan, struct plan, plan_free);

/* ---- parts of a plan ---- */

/*
 * Add the leaf of a file below parent (NULL: it is the whole tree): 1; 0: it is not a leaf, and
 * need not be one; -EINVAL. (draft_leaf.c)
 */
int plan_file(struct plan *p, struct tree_node *parent, struct draft_node *n);
/* Add the tree of a safetensors file: 1, 0 or -EINVAL as plan_file(). (draft_tensors.c) */
int plan_safetensors(struct plan *p, struct tree_node *parent, struct draft_node *n);
/* The name of a file without its extension. */
struct span plan_stem(const struct draft_node *n);
/* Let a description have the array, with a copy of its shape. */
int plan_take_shape(struct plan *p, struct array_type t, struct leaf_desc *ret);
/*
 * Add an array in parts, which all have the same stem; parent as for plan_file(). (draft_parts.c)
 */
int plan_parts(struct plan *p, struct tree_node *parent, struct draft_node **parts, size_t n);
/* Get the key for a name below parent. (draft_tree.c) */
int plan_key(struct plan *p, const struct tree_node *parent, struct draft_node *n, struct span stem,
	     bool is_dir, struct buf *ret);
/*
 * Make a leaf with that key. *ret is NULL when the key exists already, which is an error only for a
 * strict plan.
 */
int plan_leaf_new(struct plan *p, struct tree_node *parent, struct draft_node *n, struct span key,
		  struct plan_leaf **ret);
/* Finish a complete tree: order, names of leaves, properties of the item. (draft_tree.c) */
int plan_finish_tree(struct plan *p);
/*
 * Make l an array, with properties from options and xattrs. tensor: its name in the file, or empty.
 */
int plan_array(struct plan *p, struct plan_leaf *l, struct span tensor);
/* Store the record of a leaf, for the documents, in its node. */
int plan_record(struct plan *p, struct plan_leaf *l);

/* Whether the file has a name for which the draft generates its own contents. (draft_tree.c) */
bool plan_is_metadata(const struct draft_node *n);
/*
 * Turn a dict with complete children into a namedtuple, or give it an order of its own, if an xattr
 * or the copied `_METADATA` says so. (draft_rich.c)
 */
int plan_namedtuple(struct plan *p, struct draft_node *dir, struct tree_node *node);
/*
 * Turn a dict of an unfinished tree into a namedtuple of that type. Returns NULL, or the reason why
 * it remains a dict.
 */
const char *plan_node_type(struct plan *p, struct tree_node *node, const struct tree_type *t,
			   bool rich_off);
/* Whether rich_types was explicitly switched off for the item. */
bool plan_rich_off(const struct plan *p);

/* ---- for the commit ---- */

/*
 * Returns the name of the handler with which Orbax restores the item; {} for an item that Orbax
 * does not know.
 * (plan_handler.c)
 */
struct span plan_handler(const struct plan *p);
/*
 * The file of a leaf, in the form that leaf types use. Release it with leaf_input_release().
 * (draft_leaf.c)
 */
struct plan_input {
	struct leaf_input input;
	struct plan *plan;
	struct plan_leaf *leaf; /* NULL: it is being classified */
	struct draft_node *node;
	struct save_opts opts; /* private to draft_leaf.c */
};
void plan_leaf_input(struct plan *p, struct plan_leaf *l, struct plan_input *ret);
/* Store an array of the elements that `read` returns in the item's store, and set l->kv. */
int plan_store(struct plan_leaf *l, const struct array_type *t, array_read_fn *read, void *arg);
/* The same for elements in memory. */
int plan_store_array(struct plan_leaf *l, const struct array_type *t, const void *elements);
/* Join parts: sets l->kv, or *ret_shifted when the chunks of the parts can be used unchanged. */
int plan_join_parts(struct plan *p, struct plan_leaf *l, bool *ret_shifted);

/* ---- one array in boxes from any source (boxes.c) ---- */

struct box {
	uint64_t start[LIMIT_RANK], extent[LIMIT_RANK];
	int rank;         /* rank that has the box, for messages; -1: none */
	const char *name; /* name of its file, for messages, when rank is -1 */
};

/*
 * Check that boxes tile the array. -EINVAL: the message names two boxes that overlap, or the place
 * of a hole. what: the array's name.
 */
int boxes_check(const struct box *box, size_t n, unsigned rank, const uint64_t *shape,
		const char *what);
/*
 * Reads an array in C order from its boxes. `read` returns n elements of box i, from its element
 * `first` on.
 */
typedef int box_read_fn(void *arg, size_t i, uint64_t first, uint64_t n, uint8_t *p);
struct box_reader {
	const struct box *box;
	size_t n;
	struct array_type array;
	box_read_fn *read;
	void *arg;
};
/* An array_read_fn; arg is a struct box_reader. */
int boxes_read(void *arg, uint64_t off, size_t n, void *p);
/* A box_read_fn for boxes that are stored arrays; arg is an array of struct zarr *. */
int box_read_zarr(void *arg, size_t i, uint64_t first, uint64_t n, uint8_t *p);

#endif
