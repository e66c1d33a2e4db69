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
#include "handlers/leaf/leaf.h"
#include "handlers/plugin/plugins.h"

/* A leaf: what it is, and which of the draft's files have it. */
struct plan_leaf {
	struct tree_node *node;
	struct leaf_desc desc;     /* of parts, of the whole array */
	struct draft_node *source; /* borrowed from the plan; of parts the first */
	struct draft_node **part;  /* of an array in parts: all, in no order; borrowed nodes */
	size_t n_parts;
	size_t index;                  /* of an array: which one of the file's */
	bool aggregated;               /* its value is in the legacy file */
	const uint64_t *chunk, *write; /* of an array that several ranks hold; else NULL */
	struct kv *kv; /* encoded for the commit: a number, parts put together; owned */
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
	bool collective;       /* a rank's share of an item: the tree is not finished yet */
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

/* A leaf below parent, or the bare one (NULL): 1; 0 when it is not a leaf and need not be one;
 * -EINVAL. (draft_leaf.c) */
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
/* l is an array, described by options and xattrs. tensor: its name in the file, or empty. */
int plan_array(struct plan *p, struct plan_leaf *l, struct span tensor);
/* What the documents say of a leaf goes into its node. */
int plan_record(struct plan *p, struct plan_leaf *l);

/* Whether it is a file of a name that is of no tree: the draft makes its own. (draft_tree.c) */
bool plan_is_metadata(const struct draft_node *n);
/* Make a dict, whose children are there, a namedtuple where an xattr or the copied `_METADATA` says
 * so. (draft_rich.c) */
int plan_namedtuple(struct plan *p, struct draft_node *dir, struct tree_node *node);
/* Make a dict, before its tree is finished, a namedtuple of that type: NULL, or why it stays a
 * dict. */
const char *plan_node_type(struct plan *p, struct tree_node *node, const struct tree_type *t,
			   bool rich_off);
/* Whether somebody said that the item records no types. */
bool plan_rich_off(const struct plan *p);

/* ---- for the commit ---- */

/* The file of a leaf as its type sees it; release it with leaf_input_release(). (draft_leaf.c) */
struct plan_input {
	struct leaf_input input;
	struct plan *plan;
	struct plan_leaf *leaf; /* NULL: it is being classified */
	struct draft_node *node;
	struct save_opts opts; /* private to draft_leaf.c */
};
void plan_leaf_input(struct plan *p, struct plan_leaf *l, struct plan_input *ret);
/* Store an array of these elements in the item's store: l->kv. */
int plan_store_array(struct plan_leaf *l, enum dtype t, unsigned rank, const uint64_t *shape,
		     const void *elements);
/* Put parts together: l->kv is set, or the parts can be used as they are (shifted). */
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
