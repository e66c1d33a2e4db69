/* SPDX-License-Identifier: Apache-2.0 */
/*
 * node_tree.h - declarations shared by the nodes of a tree: directories, leaves, and views of both.
 */
#ifndef PYTREEFS_NODE_TREE_H
#define PYTREEFS_NODE_TREE_H

#include "handlers/format/format.h"
#include "handlers/namespace/ahead.h"
#include "handlers/namespace/ns.h"

struct copied_leaf;

/* A container of a tree. The item itself is the top container. */
struct node_dir {
	struct node node;
	struct item *item;            /* a reference */
	const struct tree_node *tree; /* a node of item->tree */
	bool is_item;                 /* the top container, which has the item's own files, too */
	struct timespec mtime;
	/*
	 * For the top container: its decode-ahead; whether the leaves of priority= have been
	 * prefetched.
	 */
	struct ahead *ahead;
	atomic_bool priority_asked;
};

/* A leaf in its default format, or a view of it. */
struct node_leaf {
	struct node node;
	struct item *item;
	const struct tree_node *tree;
	struct timespec mtime;
	enum name_ext ext;
	bool is_view;
	/* Set by the first stat; accessed atomically. */
	bool has_size;
	uint64_t size, stored;
	atomic_ullong requested; /* bytes, by all readers */
	struct timed_access own; /* of the leaf's own files; protected by the item's access_lock */
};

extern const struct node_ops node_dir_ops, node_leaf_ops, node_step_ops;

int node_leaf_new(struct node_dir *dir, struct span name, const struct tree_node *leaf,
		  enum name_ext ext, bool is_view, struct node **ret);
/* Whether the leaf's name has no box, shape or cast. */
bool node_leaf_is_whole(const struct node_leaf *l);
/*
 * Parse a name that is not an entry as a view. -ENOENT, with a message when the name looks like a
 * view but is not valid.
 */
int node_view_lookup(struct node_dir *dir, struct span name, struct node **ret);
/*
 * Returns -ENOENT for a name that is not a view, with the message of r when the name looks like a
 * view.
 */
int node_view_absent(struct span name, int r);
/*
 * Look up a view of a whole: `D.safetensors` for a D in dir, `.safetensors` for dir itself. -ENOENT
 * without a message when the name is not such a view; other errors have a message.
 */
int node_subtree_lookup(struct node *dir, struct span name, struct node **ret);
/* Look up an item that a plugin handles: 1 and its node; 0: no plugin handles it. */
int node_plugin_lookup(struct node *dir, struct span name, const char *path, struct node **ret);
/*
 * Get the value of a leaf. For an array, *ret_view is the view given by the name of the node and
 * the options of the mount.
 */
int node_leaf_value(struct node_leaf *l, struct value *ret, struct zarr_view *ret_view);
/* Open the format of the leaf's node. */
int node_leaf_format(struct node_leaf *l, struct format *ret);

/* xattrs user.pytree.* of leaves, directories, steps and the root of steps. */
int tree_xattr_list(struct node *n, struct buf *ret);
int tree_xattr_get(struct node *n, const char *name, struct buf *ret);
/*
 * Append the custom metadata of a step, as JSON; nothing if it has none. Does not ask who may read
 * them. -EUCLEAN: its file is malformed.
 */
int node_step_custom(struct node *step, struct buf *ret);
/* The same of a root of steps; -EACCES: the caller may not read them. */
int node_root_custom(struct node *root, struct buf *ret);
/* The directory of a step's node. Borrowed. */
struct io_dir *node_step_dir(struct node *n);
/* Its path below SOURCE. Borrowed. */
const char *node_step_path(struct node *n);
/* known_names_of_item() for an item of a step. path: below SOURCE */
int node_step_knows(struct node *step, struct span item, const char *path);
const struct file_id *node_step_id(struct node *n);

/* Get the properties that copies of a leaf take over. Texts live as long as n and write_shape. */
void leaf_copied(struct node *n, struct buf *write_shape, struct copied_leaf *ret);
/* Get the number of bytes that a leaf stores: chunks of an array, or the text of a string. */
int leaf_stored(struct item *item, const struct tree_node *leaf, uint64_t *ret);

#endif
