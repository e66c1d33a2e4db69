/* SPDX-License-Identifier: Apache-2.0 */
/*
 * leaf.c - leaf types: which handler a leaf has, and the built-in ones.
 *
 * Without `_METADATA` nothing is recorded: every array is an array, and what has
 * a text in a strings file is a string.
 */
#include "handlers/leaf/leaf.h"

#include "core/base/err.h"
#include "core/base/log.h"
#include "handlers/plugin/plugins.h"

static int array_open(const struct leaf_handler *h, struct item *item, const struct tree_node *leaf,
		      struct value *ret)
{
	int r = item_array(item, leaf, &ret->array);

	if (r >= 0)
		ret->kind = VALUE_ARRAY;
	return r;
}

static int scalar_open(const struct leaf_handler *h, struct item *item,
		       const struct tree_node *leaf, struct value *ret)
{
	int r = array_open(h, item, leaf, ret);

	if (r < 0)
		return r;
	if (ret->array->meta.rank != 0) {
		r = fail(-EUCLEAN, "a scalar of rank %u", ret->array->meta.rank);
		value_release(ret);
		return r;
	}
	ret->is_scalar = true;
	return 0;
}

static int string_open(const struct leaf_handler *h, struct item *item,
		       const struct tree_node *leaf, struct value *ret)
{
	int r = item_string(item, leaf, &ret->text);

	if (r >= 0)
		ret->kind = VALUE_TEXT;
	return r;
}

static int none_open(const struct leaf_handler *h, struct item *item, const struct tree_node *leaf,
		     struct value *ret)
{
	ret->kind = VALUE_NONE;
	return 0;
}

static const char *const array_types[] = { "jax.Array", "np.ndarray", "", NULL };
static const char *const scalar_types[] = { "scalar", NULL };
static const char *const string_types[] = { "string", NULL };
static const char *const none_types[] = { "None", "placeholder", NULL };

const struct leaf_handler leaf_array = {
	.name = "array",
	.typestr = array_types,
	.summary = "jax.Array and np.ndarray, stored by zarr: .npy",
	.ext = NAME_EXT_NPY,
	.open = array_open,
};
const struct leaf_handler leaf_scalar = {
	.name = "scalar",
	.typestr = scalar_types,
	.summary = "Python and numpy numbers, stored as arrays of rank 0: .json",
	.ext = NAME_EXT_JSON,
	.open = scalar_open,
};
const struct leaf_handler leaf_string = {
	.name = "string",
	.typestr = string_types,
	.summary = "str, stored in one file of the item: .txt",
	.ext = NAME_EXT_TXT,
	.open = string_open,
};
const struct leaf_handler leaf_none = {
	.name = "none",
	.typestr = none_types,
	.summary = "None and placeholders, nothing stored: .null",
	.ext = NAME_EXT_NULL,
	.open = none_open,
};

const struct leaf_handler *const leaf_handlers[] = { &leaf_array, &leaf_scalar, &leaf_string,
						     &leaf_none, NULL };

/* Of plugins and built-in handlers, the one that takes a type string. */
static const struct leaf_handler *handler_of_type(struct span typestr)
{
	const struct leaf_handler *builtin = NULL, *plugin;

	for (size_t i = 0; leaf_handlers[i] && !builtin; i++)
		for (const char *const *t = leaf_handlers[i]->typestr; *t; t++)
			if (span_eq(typestr, span_str(*t)))
				builtin = leaf_handlers[i];
	plugin = plugin_handler_of_type(typestr, builtin != NULL);
	return plugin || plugins_replace_builtin() ? plugin : builtin;
}

static const struct leaf_handler *aggregate_handler(const struct aggregate *a)
{
	if (a->kind == AGGREGATE_NIL)
		return &leaf_none;
	if (a->kind == AGGREGATE_STRING)
		return &leaf_string;
	return a->kind == AGGREGATE_ARRAY && !a->is_scalar ? &leaf_array : &leaf_scalar;
}

const struct leaf_handler *leaf_handler_of(const struct tree_node *leaf)
{
	if (leaf->value == TREE_VALUE_NONE || leaf->value == TREE_VALUE_PLACEHOLDER)
		return &leaf_none;
	/* What the value is counts more than what the document calls it. The file may lack it,
	 * though. */
	if (leaf->value == TREE_VALUE_AGGREGATE && leaf->aggregate)
		return aggregate_handler(leaf->aggregate);
	return leaf->source ? &leaf_array : handler_of_type(leaf->value_type);
}

enum name_ext leaf_ext(void *arg, const struct tree_node *leaf)
{
	const struct leaf_handler *h = leaf_handler_of(leaf);

	return h ? h->ext : NAME_EXT_NONE;
}

int leaf_open(struct item *item, const struct tree_node *leaf, struct value *ret)
{
	const struct leaf_handler *h = leaf_handler_of(leaf);
	struct value v = { 0 };
	int r;

	if (!h)
		return fail(-EOPNOTSUPP, "no handler for leaves of type '%.*s'",
			    SPAN_ARG(leaf->value_type));
	trace(TRACE_LEAF, "%s open '%.*s'", h->name, SPAN_ARG(leaf->param));
	r = h->open(h, item, leaf, &v);
	if (r < 0) {
		value_release(&v);
		return err_at(r, "leaf '%.*s'", SPAN_ARG(leaf->param));
	}
	*ret = v;
	return 0;
}
