/* SPDX-License-Identifier: Apache-2.0 */
/*
 * leaf_none.c - None and placeholders: nothing is stored.
 */
#include "handlers/leaf/leaf.h"

static const char *const typestr[] = { "None", "placeholder", NULL };

static bool none_recorded(const struct tree_node *leaf)
{
	return leaf->value == TREE_VALUE_NONE || leaf->value == TREE_VALUE_PLACEHOLDER ||
	       (leaf->value == TREE_VALUE_AGGREGATE && leaf->aggregate &&
		leaf->aggregate->kind == AGGREGATE_NIL);
}

static int none_open(const struct leaf_type *t, struct item *item, const struct tree_node *leaf,
		     struct value *ret)
{
	ret->kind = VALUE_NONE;
	return 0;
}

const struct leaf_type leaf_none = {
	.name = "none",
	.typestr = typestr,
	.summary = "None and placeholders, nothing stored: .null",
	.ext = NAME_EXT_NULL,
	.recorded = none_recorded,
	.open = none_open,
};
