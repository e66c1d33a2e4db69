/*
 * subtree.h - the PyTrees below a node: one for a directory, an item or a leaf, several for a step.
 *
 * What a view of a whole directory is made of (node_view.c), and what tools walk. Items stay open
 * as long as the subtree does.
 */
#ifndef PYTREEFS_SUBTREE_H
#define PYTREEFS_SUBTREE_H

#include "handlers/ns.h"

enum part_kind {
	PART_TREE,			/* item and tree are set */
	PART_FILES,			/* an item that is no PyTree: files as stored */
	PART_BROKEN,			/* an item that cannot be opened: note says why */
};

struct subtree_part {
	enum part_kind kind;
	char *path;			/* names from the node to the item: "state"; "" when the node is in it */
	char *source;			/* of the item below SOURCE: "100/state" */
	struct file_id id;		/* of the item when it was looked at; zeros when it could not be */
	struct item *item;		/* a reference */
	const struct tree_node *tree;
	struct err_note *note;
};

struct subtree {
	struct subtree_part *part;	/* in the order of the listing */
	size_t n;
	struct timespec mtime;
};

/* -EINVAL: a root of steps, or a file that is no leaf. Items that cannot be opened are no error. */
int subtree_open(struct node *n, struct subtree *ret);
/* The whole tree of one item; path as in subtree_part. */
int subtree_of_item(struct item *item, const char *path, struct subtree *ret);
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
/* The same in keys, joined by a separator, as safetensors files have it: "state.params.w". */
int subtree_key(const struct subtree_part *part, const struct tree_node *leaf, const char *separator,
		struct buf *ret);

#endif
