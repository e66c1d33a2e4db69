/* SPDX-License-Identifier: Apache-2.0 */
/*
 * zarr.c - open arrays, and the arithmetic of views.
 *
 * zarr_read.c reads; chunk.c decodes chunks.
 */
#include "core/zarr/zarr.h"

#include <assert.h>

#include "core/base/err.h"
#include "core/base/log.h"
#include "core/base/meter.h"
#include "core/dtype/cast.h"
#include "core/zarr/meta/meta_cache.h"

/* Derive the innermost level, by axis of the array. -EFBIG when its chunks cannot be numbered. */
static int derive_leaf(struct zarr *z)
{
	const struct zarr_meta *m = &z->meta;
	const struct zarr_level *level = &m->level;
	const struct dtype_info *t = dtype_info(m->dtype);
	uint64_t stride = t->size, numbers = 1;

	while (level->shard)
		level = &level->shard->inner;
	if (level->bytes > LIMIT_CHUNK_BYTES)
		return fail(-EFBIG, "chunk of %llu bytes, the limit is 2^55",
			    (unsigned long long)level->bytes);
	z->leaf = level;
	z->leaf_in_order = true;
	for (unsigned i = 0; i < m->rank; i++) {
		z->leaf_in_order &= level->axis[i] == i;
		z->leaf_chunk[level->axis[i]] = level->shape[i];
	}
	for (unsigned i = m->rank; i > 0; i--) {
		z->leaf_stride[level->axis[i - 1]] = stride;
		stride *= level->shape[i - 1];
	}
	for (unsigned i = 0; i < m->rank; i++) {
		uint64_t padded;

		z->leaf_grid[i] = div_up(m->shape[i], z->leaf_chunk[i]);
		/*
		 * Shards count with their part beyond the array's edge, since its entries have
		 * numbers, too.
		 */
		if (!mul_fits(m->grid[i], m->chunk[i] / z->leaf_chunk[i], &padded) ||
		    !mul_fits(numbers, MAX(padded, (uint64_t)1), &numbers))
			return fail(-EFBIG, "array has more than 2^64 chunks");
	}
	z->leaf_as_shown = !level->big_endian && t->bits == 8 * t->size;
	/* bools are checked on their way */
	z->leaf_raw = level->codecs.n == 0 && z->leaf_as_shown && m->dtype != DTYPE_BOOL;
	return 0;
}

int zarr_to_shown(const struct zarr *z, void *p, size_t n)
{
	size_t count = n / dtype_info(z->meta.dtype)->size;

	if (z->leaf->big_endian)
		cast_swap(z->meta.dtype, p, count);
	cast_canonical(z->meta.dtype, p, count);
	return z->any_bools ? 0 : cast_check(z->meta.dtype, p, count);
}

static int zarr_read_meta(struct zarr *z)
{
	static const char *const names[] = { ".zarray", "zarr.json" };
	auto_buf key = { 0 }, text = { .metered = true };
	/* A kv of one array alone (its prefix is empty) may be freed before its owner, the item. */
	bool by_array = z->env->in_store && z->prefix_len > 0;
	int r = 0;

	if (by_array)
		z->shared = meta_cache_get(z->env->metas, z->owner, z->tag, z->kv);
	if (z->shared) {
		z->meta = z->shared->meta;
		return 0;
	}
	for (size_t i = 0; i < ARRAY_LEN(names) && r == 0; i++) {
		buf_clear(&key);
		r = buf_add(&key, z->prefix, z->prefix_len);
		if (r < 0)
			return r;
		r = buf_add_str(&key, names[i]);
		if (r < 0)
			return r;
		r = kv_get_all(z->kv, buf_span(&key), LIMIT_ZARR_META_BYTES, &text);
	}
	if (r == 0)
		return fail(-ENOENT, "no '%s.zarray' and no 'zarr.json' beside it in '%s'",
			    z->prefix, z->kv->name);
	if (r < 0)
		return r;
	r = meta_cache_parse(z->env->metas, buf_span(&text), buf_str(&key), &z->shared);
	if (r < 0)
		return r;
	z->meta = z->shared->meta;
	if (by_array && text.n <= META_CACHED_BYTES)
		meta_cache_put(z->env->metas, z->owner, z->tag, z->kv, z->shared);
	return 0;
}

int zarr_open(struct zarr_env *env, struct kv *kv, struct span prefix, uint64_t owner, uint32_t tag,
	      struct zarr **ret)
{
	struct zarr *z = calloc(1, sizeof(*z));
	int r;

	/* Cache keys have 24 bits for it (LIMIT_TREE_NODES). */
	assert(tag < 1u << 24);
	if (z)
		z->prefix = span_dup_str(prefix);
	if (!z || !z->prefix) {
		free(z);
		return fail(-ENOMEM, "cannot open array '%.*s'", SPAN_ARG(prefix));
	}
	z->prefix_len = prefix.n;
	z->env = env;
	z->kv = kv_ref(kv);
	z->owner = owner;
	z->tag = tag;
	atomic_init(&z->refs, 1);
	trace(TRACE_ZARR, "open '%s'", z->prefix);
	meter_begin();
	r = zarr_read_meta(z);
	meter_end();
	r = r < 0 ? r : derive_leaf(z);
	if (r < 0) {
		zarr_unref(z);
		return r;
	}
	*ret = z;
	return 0;
}

struct zarr *zarr_ref(struct zarr *z)
{
	atomic_fetch_add_explicit(&z->refs, 1, memory_order_relaxed);
	return z;
}

void zarr_unref(struct zarr *z)
{
	if (!z || atomic_fetch_sub_explicit(&z->refs, 1, memory_order_acq_rel) != 1)
		return;
	meta_shared_unref(z->shared);
	kv_free(z->kv);
	free((void *)(uintptr_t)z->address.p);
	free(z->prefix);
	free(z);
}

void zarr_view_whole(const struct zarr_meta *m, struct zarr_view *ret)
{
	*ret = (struct zarr_view){ .rank = m->rank,
				   .dtype = m->dtype,
				   .n_elements = m->n_elements,
				   .bytes = m->bytes,
				   .plain = true };
	for (unsigned i = 0; i < m->rank; i++) {
		ret->axis[i] = (struct zarr_axis){ 0, 1, m->shape[i], false };
		ret->shape[i] = m->shape[i];
	}
}

int zarr_view_reshape(struct zarr_view *v, unsigned rank, const uint64_t *shape)
{
	if (rank != v->rank)
		return fail(-EINVAL, "a shape of %u %s for an array of %u", rank,
			    noun(rank, "axis", "axes"), v->rank);
	for (unsigned i = 0; i < rank; i++) {
		if (shape[i] > INT64_MAX)
			return fail(-EINVAL, "extent %llu is too large",
				    (unsigned long long)shape[i]);
		v->shape[i] = shape[i];
		v->axis[i] = (struct zarr_axis){ 0, 1, shape[i], false };
	}
	v->plain = false;
	return 0;
}

int zarr_view_cast(struct zarr_view *v, enum dtype to)
{
	v->plain &= to == v->dtype;
	v->dtype = to;
	return zarr_view_finish(v);
}

int zarr_view_slice(struct zarr_view *v, unsigned axis, uint64_t start, uint64_t step,
		    uint64_t count, bool drop)
{
	uint64_t last;

	if (axis >= v->rank)
		return fail(-EINVAL, "axis %u of an array of %u axes", axis, v->rank);
	if (step == 0 || start > v->shape[axis] ||
	    (count && (!mul_fits(count - 1, step, &last) || !add_fits(last, start, &last) ||
		       last >= v->shape[axis])))
		return fail(-EINVAL, "a box beyond axis %u, which has %llu %s", axis,
			    (unsigned long long)v->shape[axis],
			    noun(v->shape[axis], "position", "positions"));
	v->axis[axis] = (struct zarr_axis){ start, step, count, drop };
	v->plain = false;
	return 0;
}

int zarr_view_finish(struct zarr_view *v)
{
	v->n_elements = 1;
	/* An empty view has no elements, whatever the other extents are. */
	for (unsigned i = 0; i < v->rank; i++)
		if (v->axis[i].count == 0)
			v->n_elements = 0;
	for (unsigned i = 0; i < v->rank && v->n_elements; i++)
		if (!mul_fits(v->n_elements, v->axis[i].count, &v->n_elements))
			return fail(-EFBIG, "view has more than 2^64 elements");
	if (!mul_fits(v->n_elements, dtype_info(v->dtype)->size, &v->bytes) || v->bytes > INT64_MAX)
		return fail(-EFBIG, "view of %llu elements exceeds 2^63 bytes",
			    (unsigned long long)v->n_elements);
	return 0;
}

unsigned zarr_view_result(const struct zarr_view *v, uint64_t ret_shape[LIMIT_RANK])
{
	unsigned rank = 0;

	for (unsigned i = 0; i < v->rank; i++)
		if (!v->axis[i].drop)
			ret_shape[rank++] = v->axis[i].count;
	return rank;
}
