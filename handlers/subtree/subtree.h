/* SPDX-License-Identifier: Apache-2.0 */
/*
 * subtree.h - the PyTrees below a name: one for a directory, an item or a leaf, several for a step.
 *
 * What a view of a whole directory is made of (node_subtree.c), and what tools walk. Items stay
 * open as long as the subtree does.
 */
#ifndef PYTREEFS_SUBTREE_H
#define PYTREEFS_SUBTREE_H

#include "core/step/item.h"

enum part_kind {
	PART_TREE,   /* item and tree are set */
	PART_FILES,  /* an item that is not a PyTree: files as stored */
	PART_BROKEN, /* an item that cannot be opened: note says why */
};

struct subtree_part {
	enum part_kind kind;
	char *path;        /* names from the node to the item: "state"; "" when the node is in it */
	char *source;      /* of the item below SOURCE: "100/state" */
	struct file_id id; /* of the item when it was looked at; zeros when it could not be */
	struct item *item; /* a reference */
	const struct tree_node *tree;
	struct err_note *note;
};

struct subtree {
	struct subtree_part *part; /* in the order of the listing */
	size_t n;
	struct timespec mtime;
};

/* The whole tree of one item; path as in subtree_part. */
int subtree_of_item(struct item *item, const char *path, struct subtree *ret);
/*
 * One part more, at the end; path and source as in subtree_part, copied. An item gets a reference;
 * one that cannot be opened keeps the reason that the thread has a note of for code. id NULL: not
 * known.
 */
int subtree_add_tree(struct subtree *st, const char *path, struct item *item,
		     const struct tree_node *tree);
int subtree_add_broken(struct subtree *st, const char *path, const char *source, int code);
int subtree_add_files(struct subtree *st, const char *path, const char *source,
		      const struct file_id *id);
void subtree_release(struct subtree *st);
#define auto_subtree __attribute__((cleanup(subtree_release))) struct subtree

/* The nodes below t, and t, are those of its tree numbered from t->id to before this. */
uint32_t subtree_end(const struct tree_node *t);
/* Whether it holds something: not None, and no placeholder. */
bool subtree_is_leaf(const struct tree_node *t);
/*
 * The name of a leaf of a part from the node on: "state/params/w.npy". The leaf that is the node
 * itself has its own name.
 */
int subtree_path(const struct subtree_part *part, const struct tree_node *leaf, struct buf *ret);
/*
 * What patterns of options are matched against: the leaf's path from its item's name on,
 * "state/params/w.npy", where *ret_skip names may be left out in front (glob_selects()).
 */
int subtree_rule_path(const struct item *item, const struct tree_node *leaf, struct buf *ret,
		      unsigned *ret_skip);
/* The name of an item in its step; empty where it is not known. */
struct span subtree_item_name(const struct item *item);
/* The same in keys, joined by a separator, as safetensors files have it: "state.params.w". */
int subtree_key(const struct subtree_part *part, const struct tree_node *leaf,
		const char *separator, struct buf *ret);

#endif
