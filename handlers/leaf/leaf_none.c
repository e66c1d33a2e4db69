/* SPDX-License-Identifier: Apache-2.0 */
/*
 * leaf_none.c - None and placeholders, for which nothing is stored.
 */
#include "core/base/err.h"
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

/* An empty .null file, or the JSON text null. */
static int none_classify(const struct leaf_type *t, struct leaf_input *f, struct leaf_desc *ret)
{
	const struct json *j = NULL;
	struct span text = { 0 };
	int r;

	if (f->ext == NAME_EXT_JSON) {
		r = leaf_input_json(f, &j);
		return r < 0 ? r : j->kind == JSON_NULL;
	}
	if (f->ext != NAME_EXT_NULL)
		return 0;
	r = leaf_input_text(f, &text);
	if (r < 0)
		return r;
	if (text.n)
		return fail(-EINVAL, "a file of None must be empty, it has %zu bytes", text.n);
	return 1;
}

static void none_describe(const struct leaf_desc *d, struct leaf_record *ret)
{
	ret->stored = TREE_VALUE_NONE;
}

const struct leaf_type leaf_none = {
	.name = "none",
	.noun = "None",
	.typestr = typestr,
	.summary = "None and placeholders, nothing stored: .null",
	.ext = NAME_EXT_NULL,
	.recorded = none_recorded,
	.open = none_open,
	.classify = none_classify,
	.describe = none_describe,
};
