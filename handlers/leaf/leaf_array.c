/* SPDX-License-Identifier: Apache-2.0 */
/*
 * leaf_array.c - arrays: jax.Array and np.ndarray.
 *
 * A leaf that no document describes, and one that a source makes, is an array, too.
 */
#include "handlers/leaf/leaf.h"

static const char *const typestr[] = { "jax.Array", "np.ndarray", "", NULL };

static bool array_recorded(const struct tree_node *leaf)
{
	const struct aggregate *a = leaf->aggregate;

	return leaf->source || (leaf->value == TREE_VALUE_AGGREGATE && a &&
				a->kind == AGGREGATE_ARRAY && !a->is_scalar);
}

static int array_open(const struct leaf_type *t, struct item *item, const struct tree_node *leaf,
		      struct value *ret)
{
	int r = item_array(item, leaf, &ret->array);

	if (r >= 0)
		ret->kind = VALUE_ARRAY;
	return r;
}

const struct leaf_type leaf_array = {
	.name = "array",
	.typestr = typestr,
	.summary = "jax.Array and np.ndarray, stored by zarr: .npy",
	.ext = NAME_EXT_NPY,
	.recorded = array_recorded,
	.open = array_open,
};
