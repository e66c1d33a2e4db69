/* SPDX-License-Identifier: Apache-2.0 */
/*
 * leaf_scalar.c - numbers of Python and numpy: arrays of rank 0.
 */
#include "core/base/err.h"
#include "handlers/leaf/leaf.h"

static const char *const typestr[] = { "scalar", NULL };

static bool scalar_recorded(const struct tree_node *leaf)
{
	const struct aggregate *a = leaf->aggregate;

	if (leaf->value != TREE_VALUE_AGGREGATE || !a)
		return false;
	return a->kind == AGGREGATE_ARRAY ? a->is_scalar :
					    a->kind != AGGREGATE_NIL && a->kind != AGGREGATE_STRING;
}

static int scalar_open(const struct leaf_type *t, struct item *item, const struct tree_node *leaf,
		       struct value *ret)
{
	int r = item_array(item, leaf, &ret->array);

	if (r < 0)
		return r;
	ret->kind = VALUE_ARRAY;
	ret->is_scalar = true;
	return ret->array->meta.rank == 0 ?
		       0 :
		       fail(-EUCLEAN, "a scalar of rank %u", ret->array->meta.rank);
}

const struct leaf_type leaf_scalar = {
	.name = "scalar",
	.typestr = typestr,
	.summary = "Python and numpy numbers, stored as arrays of rank 0: .json",
	.ext = NAME_EXT_JSON,
	.recorded = scalar_recorded,
	.open = scalar_open,
};
