/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tree_msgpack.h - shared by the files about the legacy aggregate file; private to core/tree.
 */
#ifndef PYTREEFS_TREE_MSGPACK_H
#define PYTREEFS_TREE_MSGPACK_H

#include "core/tree/tree.h"

enum ext_type { EXT_NDARRAY = 1, EXT_COMPLEX = 2, EXT_SCALAR = 3, EXT_TUPLE = 4 };

/*
 * Set ret to an array of this shape and size, with the shape copied into the tree's arena; the
 * caller sets chunks and dtype. -EUCLEAN when the size is not a multiple of the number of elements.
 */
int aggregate_array(struct tree *tree, const char *what, const uint64_t *shape, unsigned rank,
		    uint64_t bytes, struct aggregate *ret);
/*
 * Convert a map with "shape" and "chunks", whose children are still a list, to the array that it
 * represents.
 */
int aggregate_join(struct tree *tree, const char *what, const struct tree_node *map,
		   struct aggregate *ret);

/*
 * Whether a map, whose children are still a list, is the TensorStore spec of an array, as T5X
 * writes it in place of an array. ret: what it says of the array, and its path, both in the tree's
 * arena. A spec that cannot be followed is described as such: the error is that of the leaf.
 */
bool aggregate_is_spec(const struct tree_node *map);
int aggregate_spec(struct tree *tree, const struct tree_node *map, struct aggregate *ret,
		   struct span *ret_path);

#endif
