/* SPDX-License-Identifier: Apache-2.0 */
/*
 * leaf_bytes.c - Python bytes, which only the legacy msgpack file can hold: files of flax, and
 * leaves that `aggregate=` selects.
 *
 * The value is an array of uint8, so every view of an array works.
 */
#include "core/base/err.h"
#include "handlers/leaf/leaf.h"

static const char *const typestr[] = { "bytes", NULL };

static bool bytes_recorded(const struct tree_node *leaf)
{
	return leaf->value == TREE_VALUE_AGGREGATE && leaf->aggregate &&
	       leaf->aggregate->kind == AGGREGATE_BYTES;
}

static int bytes_classify(const struct leaf_type *t, struct leaf_input *f, struct leaf_desc *ret)
{
	return f->ext == t->ext;
}

static int bytes_encode(const struct leaf_desc *d, struct leaf_input *f, struct leaf_sink *to)
{
	return fail(-EINVAL, "Orbax can store bytes only in the legacy file of an item: aggregate= "
			     "chooses the leaves that go there");
}

static int bytes_aggregate(const struct leaf_desc *d, struct leaf_input *f, struct aggregate *ret)
{
	auto_buf bytes = { 0 };
	int r = f->ops->contents(f, &bytes);

	if (r < 0)
		return r;
	if (bytes.n > f->memory_left)
		return fail(-EFBIG, "aggregate: %zu bytes do not fit half of write_budget",
			    bytes.n);
	f->memory_left -= bytes.n;
	ret->kind = AGGREGATE_BYTES;
	return arena_keep(f->arena, buf_span(&bytes), &ret->s);
}

const struct leaf_type leaf_bytes = {
	.name = "bytes",
	.noun = "bytes",
	.typestr = typestr,
	.summary = "bytes, stored in the legacy msgpack file: .bin",
	.ext = NAME_EXT_BIN,
	.recorded = bytes_recorded,
	.open = leaf_open_array,
	.classify = bytes_classify,
	.encode = bytes_encode,
	.aggregate = bytes_aggregate,
};
