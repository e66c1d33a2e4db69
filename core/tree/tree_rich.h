/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tree_rich.h - the member value_metadata_tree of `_METADATA`; private to core/tree.
 */
#ifndef PYTREEFS_TREE_RICH_H
#define PYTREEFS_TREE_RICH_H

#include "core/tree/tree.h"

/*
 * Set the kinds (and types) of a finished tree's containers. -EUCLEAN when the text is not JSON or
 * its structure is not the tree's; the tree is then as if there had been none.
 */
int tree_parse_rich(struct tree *tree, struct span json, const char *what);
/* The JSON text for a tree. */
int tree_print_rich(const struct tree *tree, struct buf *ret);

/* Of a childless node: {"value_type": "jax.Array", "skip_deserialize": false, ...}. */
int tree_print_value(const struct tree_node *node, bool rich, struct buf *ret);

#endif
