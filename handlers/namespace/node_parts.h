/* SPDX-License-Identifier: Apache-2.0 */
/*
 * node_parts.h - the PyTrees below a node: one for a directory, item or leaf, several for a step.
 */
#ifndef PYTREEFS_NODE_PARTS_H
#define PYTREEFS_NODE_PARTS_H

#include "handlers/namespace/ns.h"
#include "handlers/subtree/subtree.h"

/*
 * Get the PyTrees below a node. The caller releases ret. An item that cannot be opened becomes a
 * part of kind PART_BROKEN. -EINVAL: the node is a root of steps, or a file that is not a leaf.
 */
int node_open_subtree(struct node *n, struct subtree *ret);
/* Set the custom metadata of the subtree of a step; nothing for another node. */
int node_add_custom(struct node *n, struct subtree *st);
/* Add what the rules of transforms= leave out of the items of a subtree, as wholes. */
int node_parts_left_out(const struct transform *t, const struct subtree *st,
			struct transform_left_out *sum);
/*
 * Append what the log says of the items of the subtree of n, which may not be all that was saved: a
 * JSON list of texts; nothing if there is none.
 */
int node_parts_remarks(struct node *n, const struct subtree *st, struct buf *ret);
/*
 * Get the permissions of users who may read all contents and reach them. step: its path below
 * SOURCE, if the subtree is that of a step; else NULL.
 */
int node_parts_access(struct io_dir *source, const char *step, const struct subtree *st,
		      struct access *ret);

#endif
