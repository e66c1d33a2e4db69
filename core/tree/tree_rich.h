/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tree_rich.h - the member value_metadata_tree of `_METADATA`; private to core/tree.
 */
#ifndef PYTREEFS_TREE_RICH_H
#define PYTREEFS_TREE_RICH_H

#include "core/tree/tree.h"

/*
 * Set the kinds (and types) of a finished tree's containers. -EUCLEAN when the text is not JSON or
 * does not match the structure of the tree; the tree is then as without rich types.
 */
int tree_parse_rich(struct tree *tree, struct span json, const char *what);
/* Append the JSON text for a tree. */
int tree_print_rich(const struct tree *tree, struct buf *ret);

/* Append {"value_type": "jax.Array", "skip_deserialize": false, ...} of a node without children. */
int tree_print_value(const struct tree_node *node, bool rich, struct buf *ret);

#endif
