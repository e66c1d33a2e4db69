/* SPDX-License-Identifier: Apache-2.0 */
/*
 * node_parts.h - the PyTrees below a node: one for a directory, an item or a leaf, several for a
 * step.
 */
#ifndef PYTREEFS_NODE_PARTS_H
#define PYTREEFS_NODE_PARTS_H

#include "handlers/namespace/ns.h"
#include "handlers/subtree/subtree.h"

/*
 * -EINVAL: a root of steps, or a file that is not a leaf. An item that cannot be opened is a part
 * of its own (PART_BROKEN). ret is the caller's to release.
 */
int node_open_subtree(struct node *n, struct subtree *ret);

#endif
