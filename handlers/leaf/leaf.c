/* SPDX-License-Identifier: Apache-2.0 */
/*
 * leaf.c - the table of leaf types, and the search for the type of a leaf or a file.
 *
 * Without `_METADATA` no types are recorded: every stored array is an array, and every leaf with a
 * text in `_strings.json` is a string.
 */
#include "handlers/leaf/leaf.h"

#include "core/base/err.h"
#include "core/base/log.h"

/* One line for each file leaf_NAME.c. */
/* clang-format off */
#define LEAF_TYPES(type) \
	type(array) \
	type(scalar) \
	type(string) \
	type(none) \
	type(bytes)
/* clang-format on */

#define DECLARE(name) extern const struct leaf_type leaf_##name;
#define ADDRESS(name) &leaf_##name,
LEAF_TYPES(DECLARE)
const struct leaf_type *const leaf_types[] = { LEAF_TYPES(ADDRESS) NULL };

/* Written only while options are read. */
static const struct leaf_type **added;
static size_t n_added;
static bool may_override, no_builtin;

int leaf_type_add(const struct leaf_type *t)
{
	const struct leaf_type **more = reallocarray(added, n_added + 1, sizeof(*more));

	if (!more)
		return fail(-ENOMEM, "cannot add leaf type '%s'", t->name);
	added = more;
	added[n_added++] = t;
	return 0;
}

void leaf_types_allow(bool override, bool builtin)
{
	may_override = override;
	no_builtin = !builtin;
}

static bool takes(const struct leaf_type *t, struct span typestr)
{
	for (const char *const *s = t->typestr; *s; s++)
		if (span_eq(typestr, span_str(*s)))
			return true;
	return t->takes && t->takes(t, typestr);
}

const struct leaf_type *leaf_type_of(const struct tree_node *leaf)
{
	const struct leaf_type *builtin = NULL;

	/* The place of the value counts more than the type string in the document. */
	for (size_t i = 0; leaf_types[i]; i++)
		if (leaf_types[i]->recorded && leaf_types[i]->recorded(leaf))
			return leaf_types[i];
	for (size_t i = 0; leaf_types[i] && !builtin && !no_builtin; i++)
		if (takes(leaf_types[i], leaf->value_type))
			builtin = leaf_types[i];
	if (builtin && !may_override)
		return builtin;
	for (size_t i = n_added; i > 0; i--)
		if (takes(added[i - 1], leaf->value_type))
			return added[i - 1];
	return builtin;
}

enum name_ext leaf_ext(void *arg, const struct tree_node *leaf)
{
	const struct leaf_type *t = leaf_type_of(leaf);

	return t ? t->ext : NAME_EXT_NONE;
}

int leaf_open_array(const struct leaf_type *t, struct item *item, const struct tree_node *leaf,
		    struct value *ret)
{
	int r = item_array(item, leaf, &ret->array);

	if (r < 0)
		return r;
	ret->kind = VALUE_ARRAY;
	return r;
}

int leaf_open(struct item *item, const struct tree_node *leaf, struct value *ret)
{
	const struct leaf_type *t = leaf_type_of(leaf);
	struct value v = { 0 };
	int r;

	if (!t)
		return fail(-EOPNOTSUPP, "no handler for leaves of type '%.*s'",
			    SPAN_ARG(leaf->value_type));
	trace(TRACE_LEAF, "%s open '%.*s'", t->name, SPAN_ARG(leaf->param));
	r = t->open(t, item, leaf, &v);
	if (r < 0) {
		value_release(&v);
		return err_at(r, "leaf '%.*s'", SPAN_ARG(leaf->param));
	}
	*ret = v;
	return 0;
}

int leaf_open_format(struct item *item, const struct tree_node *leaf, enum name_ext ext,
		     enum dtype cast, struct format *ret)
{
	auto_value v = { 0 };
	struct zarr_view view;
	int r = leaf_open(item, leaf, &v);

	if (r < 0 || v.kind != VALUE_ARRAY || cast == DTYPE_UNKNOWN)
		return r < 0 ? r : format_open(ext, &v, NULL, ret);
	zarr_view_whole(&v.array->meta, &view);
	r = zarr_view_cast(&view, cast);
	return r < 0 ? r : format_open(ext, &v, &view, ret);
}

int leaf_restored_dtype(struct item *item, const struct tree_node *leaf, int restore_dtype,
			bool is_scalar, enum dtype *dtype)
{
	struct span impl;
	int r;

	/* Python's bytes are not numbers, although they are read as uint8. */
	if (restore_dtype == DTYPE_UNKNOWN || is_scalar ||
	    (leaf->aggregate && leaf->aggregate->kind == AGGREGATE_BYTES))
		return 0;
	r = item_prng_impl(item, leaf, &impl);
	if (r == 0)
		*dtype = (enum dtype)restore_dtype;
	return MIN(r, 0);
}

/* ---- files of drafts ---- */

static int classify(const struct leaf_type *t, struct leaf_input *f, struct leaf_desc *ret)
{
	*ret = (struct leaf_desc){ .type = t };
	return t->classify ? t->classify(t, f, ret) : 0;
}

int leaf_classify(struct leaf_input *f, struct leaf_desc *ret)
{
	int r = 0;

	for (size_t i = n_added; i > 0 && r == 0; i--)
		r = classify(added[i - 1], f, ret);
	for (size_t i = 0; leaf_types[i] && r == 0; i++)
		r = classify(leaf_types[i], f, ret);
	if (r != -EINVAL || f->strict || !f->has_text)
		return r;
	err_clear();
	*ret = (struct leaf_desc){ .type = &leaf_string, .value = span_str("") };
	return 1;
}

int leaf_extensions(struct buf *ret)
{
	for (size_t i = 0; leaf_types[i]; i++)
		buf_addf(ret, "%s%s", i ? ", " : "", name_ext_text(leaf_types[i]->ext));
	for (size_t i = 0; i < n_added; i++)
		buf_addf(ret, ", %s", name_ext_text(added[i]->ext));
	return buf_failed(ret);
}

int leaf_type_number(const struct leaf_type *t)
{
	for (int i = 0; leaf_types[i]; i++)
		if (leaf_types[i] == t)
			return i;
	return -1;
}

int leaf_encode(const struct leaf_desc *d, struct leaf_input *f, struct leaf_sink *to)
{
	if (!d->type->encode)
		return 0;
	trace(TRACE_LEAF, "%s encode '%s'", d->type->name, f->name);
	return d->type->encode(d, f, to);
}

struct leaf_record leaf_describe(const struct leaf_desc *d)
{
	struct leaf_record ret = { .typestr = span_str(d->type->typestr[0]) };

	if (d->type->describe)
		d->type->describe(d, &ret);
	return ret;
}
