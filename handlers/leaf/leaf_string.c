/* SPDX-License-Identifier: Apache-2.0 */
/*
 * leaf_string.c - texts, which are together in one file of their item.
 */
#include "handlers/leaf/leaf.h"

static const char *const typestr[] = { "string", NULL };

static bool string_recorded(const struct tree_node *leaf)
{
	return leaf->value == TREE_VALUE_AGGREGATE && leaf->aggregate &&
	       leaf->aggregate->kind == AGGREGATE_STRING;
}

static int string_open(const struct leaf_type *t, struct item *item, const struct tree_node *leaf,
		       struct value *ret)
{
	int r = item_string(item, leaf, &ret->text);

	if (r >= 0)
		ret->kind = VALUE_TEXT;
	return r;
}

const struct leaf_type leaf_string = {
	.name = "string",
	.typestr = typestr,
	.summary = "str, stored in one file of the item: .txt",
	.ext = NAME_EXT_TXT,
	.recorded = string_recorded,
	.open = string_open,
};
