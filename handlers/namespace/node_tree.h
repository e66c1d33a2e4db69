/* SPDX-License-Identifier: Apache-2.0 */
/*
 * node_tree.h - what the files of the tree's nodes share: directories, leaves, views of both.
 */
#ifndef PYTREEFS_NODE_TREE_H
#define PYTREEFS_NODE_TREE_H

#include "handlers/format/format.h"
#include "handlers/namespace/ahead.h"
#include "handlers/namespace/ns.h"

/* A container of a tree; the item itself is the top one. */
struct node_dir {
	struct node node;
	struct item *item;            /* a reference */
	const struct tree_node *tree; /* of item */
	bool is_item;                 /* the top: has the item's own files too */
	struct timespec mtime;
	/* Of the top, for decode-ahead: who reads leaf after leaf; whether leaves that come first
	 * are being prefetched. */
	struct ahead *ahead;
	atomic_bool priority_asked;
};

/* A leaf in its default format, or any view of it. */
struct node_leaf {
	struct node node;
	struct item *item;
	const struct tree_node *tree;
	struct timespec mtime;
	enum name_ext ext;
	bool is_view;
	/* Known after the first stat; atomic. */
	bool has_size;
	uint64_t size, stored;
	/*
	 * Who may read what the leaf has of its own, when that was looked at, and how long it took.
	 * Protected by the item's access_lock.
	 */
	struct access own;
	int64_t own_at, own_took;
};

extern const struct node_ops node_dir_ops, node_leaf_ops, node_step_ops;

int node_leaf_new(struct node_dir *dir, struct span name, const struct tree_node *leaf,
		  enum name_ext ext, bool is_view, struct node **ret);
/* A name that is not an entry, read as a view; -ENOENT, with a note when the name is one that makes
 * no sense. */
int node_view_lookup(struct node_dir *dir, struct span name, struct node **ret);
/* -ENOENT for a name that is not in the grammar of views, with the note of r when the name looks
 * like one. */
int node_view_absent(struct span name, int r);
/*
 * A view of a whole: `D.safetensors` for a D in dir, `.safetensors` for dir itself. Quietly -ENOENT
 * when it is not a view; what cannot be made says why.
 */
int node_subtree_lookup(struct node *dir, struct span name, struct node **ret);
/* An item that a plugin takes: 1 and its node; 0 when none does. */
int node_plugin_lookup(struct node *dir, struct span name, const char *path, struct node **ret);
/* A leaf's value, and for an array the view of it that the node's name and the mount's options ask
 * for. */
int node_leaf_value(struct node_leaf *l, struct value *ret, struct zarr_view *ret_view);
/* The format that a leaf's node stands for. */
int node_leaf_format(struct node_leaf *l, struct format *ret);

/* user.pytree.* of leaves and directories. */
int leaf_xattr_list(struct node *n, struct buf *ret);
int leaf_xattr_get(struct node *n, const char *name, struct buf *ret);
int dir_xattr_list(struct node *n, struct buf *ret);
int dir_xattr_get(struct node *n, const char *name, struct buf *ret);
int step_xattr_list(struct node *n, struct buf *ret);
int step_xattr_get(struct node *n, const char *name, struct buf *ret);
/* The directory of a step's node. Borrowed. */
struct io_dir *node_step_dir(struct node *n);
/* Where it is below SOURCE. Borrowed. */
const char *node_step_path(struct node *n);
const struct file_id *node_step_id(struct node *n);

/* Bytes of what a leaf stores: chunks of an array, a string's text. */
int leaf_stored(struct item *item, const struct tree_node *leaf, uint64_t *ret);

#endif
