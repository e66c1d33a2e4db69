/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tree_msgpack.h - what the files about the legacy aggregate file share; private to core/tree.
 */
#ifndef PYTREEFS_TREE_MSGPACK_H
#define PYTREEFS_TREE_MSGPACK_H

#include "core/tree/tree.h"

enum ext_type { EXT_NDARRAY = 1, EXT_COMPLEX = 2, EXT_SCALAR = 3, EXT_TUPLE = 4 };

/*
 * An array of this shape and this many bytes, its shape copied into the tree's arena; chunks and
 * dtype are the caller's to set. -EUCLEAN when the bytes are not a multiple of the elements.
 */
int aggregate_array(struct tree *tree, const char *what, const uint64_t *shape, unsigned rank,
		    uint64_t bytes, struct aggregate *ret);
/* The array that a map with "shape" and "chunks" stands for; children are still a list. */
int aggregate_join(struct tree *tree, const char *what, const struct tree_node *map,
		   struct aggregate *ret);

#endif
