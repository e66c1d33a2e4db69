/* SPDX-License-Identifier: Apache-2.0 */
/*
 * leaf_string.c - texts. All texts of an item are stored in one file.
 */
#include "core/base/err.h"
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

	if (r < 0)
		return r;
	ret->kind = VALUE_TEXT;
	return r;
}

/*
 * Takes .txt files and JSON texts. Number words are taken by leaf_scalar.c, which comes earlier in
 * the table.
 */
static int string_classify(const struct leaf_type *t, struct leaf_input *f, struct leaf_desc *ret)
{
	const struct json *j = NULL;
	struct span text;
	int r;

	if (f->ext == NAME_EXT_JSON) {
		r = leaf_input_json(f, &j);
		if (r < 0 || j->kind != JSON_STRING)
			return r;
		text = j->s;
	} else if (f->ext == NAME_EXT_TXT) {
		r = leaf_input_text(f, &text);
		if (r < 0)
			return r;
	} else {
		return 0;
	}
	if (!utf8_valid(text))
		return fail(-EINVAL, "the text is not UTF-8");
	r = arena_keep(f->arena, text, &ret->value);
	return r < 0 ? r : 1;
}

static void string_describe(const struct leaf_desc *d, struct leaf_record *ret)
{
	ret->text = d->value;
}

static int string_aggregate(const struct leaf_desc *d, struct leaf_input *f, struct aggregate *ret)
{
	*ret = (struct aggregate){ .kind = AGGREGATE_STRING, .s = d->value };
	return 0;
}

const struct leaf_type leaf_string = {
	.name = "string",
	.noun = "a text",
	.typestr = typestr,
	.summary = "str, stored in one file of the item: .txt",
	.ext = NAME_EXT_TXT,
	.recorded = string_recorded,
	.open = string_open,
	.classify = string_classify,
	.describe = string_describe,
	.aggregate = string_aggregate,
};
