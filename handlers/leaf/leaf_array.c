/* SPDX-License-Identifier: Apache-2.0 */
/*
 * leaf_array.c - arrays: jax.Array and np.ndarray.
 *
 * A leaf that no document describes is an array, too, and so is a leaf that a
 * transform makes of others.
 */
#include "core/base/err.h"
#include "handlers/leaf/leaf.h"

static const char *const typestr[] = { "jax.Array", "np.ndarray", "", NULL };

static bool array_recorded(const struct tree_node *leaf)
{
	const struct aggregate *a = leaf->aggregate;

	return leaf->source ||
	       (leaf->value == TREE_VALUE_AGGREGATE && a &&
		((a->kind == AGGREGATE_ARRAY && !a->is_scalar) || a->kind == AGGREGATE_SPEC));
}

static int array_classify(const struct leaf_type *t, struct leaf_input *f, struct leaf_desc *ret)
{
	int r = f->ext == NAME_EXT_NPY ? f->ops->array(f, ret) : 0;

	return r < 0 ? r : f->ext == NAME_EXT_NPY;
}

static void array_describe(const struct leaf_desc *d, struct leaf_record *ret)
{
	ret->typestr = span_str(d->is_jax ? "jax.Array" : "np.ndarray");
	ret->is_sharded = d->is_jax;
}

static int array_encode(const struct leaf_desc *d, struct leaf_input *f, struct leaf_sink *to)
{
	return to->ops->encoded(to);
}

/* The elements as they are stored: cast, in C order. */
static int array_aggregate(const struct leaf_desc *d, struct leaf_input *f, struct aggregate *ret)
{
	auto_of(zarr) struct zarr *z = NULL;
	struct span *chunk = arena_calloc(f->arena, 1, sizeof(*chunk));
	uint64_t *shape = arena_calloc(f->arena, LIMIT_RANK, sizeof(*shape));
	uint8_t *p;
	int r = f->ops->encoded(f, &z);

	if (r < 0)
		return r;
	if (z->meta.bytes > f->memory_left)
		return fail(-EFBIG, "aggregate: %llu bytes do not fit half of write_budget",
			    (unsigned long long)z->meta.bytes);
	f->memory_left -= z->meta.bytes;
	p = arena_alloc(f->arena, z->meta.bytes + 1);
	if (!p || !chunk || !shape)
		return fail(-ENOMEM, "cannot aggregate an array");
	r = zarr_read_into(z, NULL, 0, z->meta.bytes, p);
	memcpy(shape, z->meta.shape, z->meta.rank * sizeof(*shape));
	*chunk = span_of(p, z->meta.bytes);
	*ret = (struct aggregate){ .kind = AGGREGATE_ARRAY,
				   .rank = (uint8_t)z->meta.rank,
				   .n_chunks = 1,
				   .shape = shape,
				   .dtype = dtype_info(z->meta.dtype)->name,
				   .chunks = chunk,
				   .item_size = dtype_info(z->meta.dtype)->size };
	return r;
}

const struct leaf_type leaf_array = {
	.name = "array",
	.noun = "an array",
	.typestr = typestr,
	.summary = "jax.Array and np.ndarray, stored by zarr: .npy",
	.ext = NAME_EXT_NPY,
	.in_store = true,
	.in_boxes = true,
	.recorded = array_recorded,
	.open = leaf_open_array,
	.classify = array_classify,
	.describe = array_describe,
	.encode = array_encode,
	.aggregate = array_aggregate,
};
