/* SPDX-License-Identifier: Apache-2.0 */
/*
 * subtree.h - the PyTrees below a name: one for a directory, an item or a leaf, several for a step.
 *
 * handlers/namespace/node_subtree.c makes files of them, and tools walk them. Items stay open as
 * long as the subtree.
 */
#ifndef PYTREEFS_SUBTREE_H
#define PYTREEFS_SUBTREE_H

#include "core/step/item.h"

enum part_kind {
	PART_TREE,   /* item and tree are set */
	PART_FILES,  /* an item that is not a PyTree: files as stored */
	PART_BROKEN, /* an item that cannot be opened: note has the reason */
};

struct subtree_part {
	enum part_kind kind;
	/* from the node to the item: "state"; "" when the node is inside the item */
	char *path;
	char *source;      /* path of the item below SOURCE: "100/state" */
	struct file_id id; /* the item's when the subtree was made; zeros when unknown */
	struct item *item; /* owns a reference */
	const struct tree_node *tree;
	struct err_note *note;
};

/* A file or directory that lies beside the items of a step, where readers of trees do not look. */
struct subtree_other {
	char *path, *source; /* as in subtree_part */
	unsigned char type;  /* DT_DIR or DT_REG */
};

struct subtree {
	struct subtree_part *part; /* in the order of the listing */
	size_t n;
	struct subtree_other *other; /* in the order of the listing */
	size_t n_others;
	struct timespec mtime;
	/* Custom metadata of the step that this is, as JSON (node_add_custom()); NULL: none. */
	char *custom;
};

/* The whole tree of one item, as a subtree with one part. path: see subtree_part. */
int subtree_of_item(struct item *item, const char *path, struct subtree *ret);
/*
 * Append a part. path and source are as in subtree_part, and copied. subtree_add_tree() takes a
 * reference to the item. subtree_add_broken() copies the note of this thread for `code`. id NULL:
 * unknown.
 */
int subtree_add_tree(struct subtree *st, const char *path, struct item *item,
		     const struct tree_node *tree);
int subtree_add_broken(struct subtree *st, const char *path, const char *source, int code);
int subtree_add_files(struct subtree *st, const char *path, const char *source,
		      const struct file_id *id);
int subtree_add_other(struct subtree *st, const char *path, const char *source, unsigned char type);
void subtree_release(struct subtree *st);
#define auto_subtree __attribute__((cleanup(subtree_release))) struct subtree

/*
 * Call `each` for every file and directory that is in none of the trees and in no item: those
 * beside the items, and those beside the arrays of each item that is there as a whole
 * (item_each_other()). part: the item; NULL: it is beside the items. `each` returns < 0 to stop.
 */
typedef int subtree_other_fn(void *arg, const struct subtree_part *part,
			     const struct subtree_other *other);
int subtree_each_other(const struct subtree *st, subtree_other_fn *each, void *arg);

/* A node of one of the trees. */
struct subtree_place {
	const struct subtree_part *part;
	const struct tree_node *node;
};
/*
 * Step to the next node, in the order of parts and within a tree depth first; a zeroed place steps
 * to the first one. Returns false after the last.
 */
bool subtree_next(const struct subtree *st, struct subtree_place *at);
/* The nodes of the subtree of t have the ids from t->id to before this number. */
uint32_t subtree_end(const struct tree_node *t);
/* Whether a leaf has a value, which None and placeholders have not. */
bool subtree_is_leaf(const struct tree_node *t);
/* The number of leaves from top down, those without a value, too, as Orbax counts them. */
uint32_t subtree_leaves(const struct tree *tree, const struct tree_node *top);
/*
 * Append the path of a leaf of a part, relative to the node: "state/params/w.npy". When the leaf is
 * the node itself, the path is its name.
 */
int subtree_path(const struct subtree_part *part, const struct tree_node *leaf, struct buf *ret);
/*
 * Append the path that patterns of options match: from the item's name on, "state/params/w.npy". A
 * pattern may leave out up to *ret_skip names at the front (glob_selects()).
 */
int subtree_rule_path(const struct item *item, const struct tree_node *leaf, struct buf *ret,
		      unsigned *ret_skip);
/* The name of an item in its step; empty when it is unknown. */
struct span subtree_item_name(const struct item *item);
/* Append the path as keys joined by a separator, as safetensors files have it: "state.params.w". */
int subtree_key(const struct subtree_part *part, const struct tree_node *leaf,
		const char *separator, struct buf *ret);

#endif
