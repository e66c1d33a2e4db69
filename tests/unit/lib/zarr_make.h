/* SPDX-License-Identifier: Apache-2.0 */
/*
 * zarr_make.h - for tests of reading: arrays of any layout in a memory store, made by the project's
 * own encoders, and their elements as plain memory.
 *
 * The document alone determines the array. Some chunks, and inner chunks of shards, are not stored
 * and have the fill value; unused bits of int2 and int4 are dirty, as other writers leave them.
 */
#ifndef PYTREEFS_ZARR_MAKE_H
#define PYTREEFS_ZARR_MAKE_H

#include "tests/unit/lib/unit.h"

#include <stdlib.h>

#include "core/base/limits.h"
#include "core/dtype/cast.h"
#include "core/zarr/meta/shard.h"
#include "core/zarr/stream.h"
#include "core/zarr/zarr.h"

struct made_opts {
	const char *io;              /* NULL: "sync" */
	unsigned threads;            /* of the pool; 0: none */
	uint64_t cache, budget;      /* 0: 64 MiB */
	struct streams_opts streams; /* window_limit 0: 32 MiB */
	bool in_file;                /* chunks are ranges of a file */
	unsigned missing;            /* of 100 chunks */
	bool smooth;                 /* elements that compress: a slow ramp */
	uint64_t seed;
};

struct made {
	struct zarr_env env;
	struct budget budget;
	struct kv *kv;
	struct io_file *file;
	struct zarr *z;
	struct zarr_meta meta;
	uint8_t *want; /* the elements in C order, little-endian, without dirty bits */
	const struct made_opts *opts;
	uint64_t random, file_end;
};

static inline uint64_t made_random(struct made *m, uint64_t below)
{
	m->random = m->random * 6364136223846793005u + 1442695040888963407u;
	return below ? (m->random >> 33) % below : 0;
}

static inline uint64_t made_index(const struct made *m, const uint64_t *pos)
{
	uint64_t at = 0;

	for (unsigned i = 0; i < m->meta.rank; i++)
		at = at * m->meta.shape[i] + pos[i];
	return at;
}

/* Advance a position in C order; false at the end. */
static inline bool made_step(uint64_t *pos, const uint64_t *shape, unsigned rank)
{
	for (unsigned i = rank; i > 0; i--) {
		if (++pos[i - 1] < shape[i - 1])
			return true;
		pos[i - 1] = 0;
	}
	return false;
}

static inline bool made_inside(const struct made *m, const uint64_t *pos)
{
	for (unsigned i = 0; i < m->meta.rank; i++)
		if (pos[i] >= m->meta.shape[i])
			return false;
	return true;
}

/* Set the elements of an object at origin to the fill value. */
static inline void made_missing(struct made *m, const struct zarr_level *l, const uint64_t *origin)
{
	size_t item = dtype_info(m->meta.dtype)->size;
	uint64_t pos[LIMIT_RANK] = { 0 }, at[LIMIT_RANK];

	do {
		for (unsigned i = 0; i < m->meta.rank; i++)
			at[l->axis[i]] = origin[l->axis[i]] + pos[i];
		if (made_inside(m, at))
			memcpy(m->want + made_index(m, at) * item, m->meta.fill, item);
	} while (made_step(pos, l->shape, m->meta.rank));
}

/* Add the elements of an object from `at` on along its last axis; outside of the array the fill
 * value. */
static inline void made_row(struct made *m, const struct zarr_level *l, const uint64_t *at,
			    struct buf *raw)
{
	unsigned rank = m->meta.rank, axis = rank ? l->axis[rank - 1] : 0;
	uint64_t n = rank ? l->shape[rank - 1] : 1, inside = 0, stride = 1;
	size_t size = dtype_info(m->meta.dtype)->size;
	const uint8_t *from = m->want + made_index(m, at) * size;

	if (made_inside(m, at))
		inside = rank ? MIN(n, m->meta.shape[axis] - at[axis]) : 1;
	for (unsigned i = axis + 1; i < rank; i++)
		stride *= m->meta.shape[i];
	if (stride == 1)
		memcpy(raw->p + raw->n, from, inside * size);
	for (uint64_t i = stride == 1 ? inside : 0; i < n; i++)
		memcpy(raw->p + raw->n + i * size,
		       i < inside ? from + i * stride * size : m->meta.fill, size);
	raw->n += n * size;
}

static inline void made_elements(struct made *m, const struct zarr_level *l, const uint64_t *origin,
				 struct buf *ret)
{
	const struct dtype_info *t = dtype_info(m->meta.dtype);
	uint64_t pos[LIMIT_RANK] = { 0 }, at[LIMIT_RANK];
	auto_buf raw = { 0 };

	assert_int_equal(buf_reserve(&raw, l->bytes), 0);
	do {
		for (unsigned i = 0; i < m->meta.rank; i++)
			at[l->axis[i]] = origin[l->axis[i]] + pos[i];
		made_row(m, l, at, &raw);
	} while (made_step(pos, l->shape, m->meta.rank ? m->meta.rank - 1 : 0));
	assert_int_equal(raw.n, l->bytes);
	for (size_t i = 0; t->bits < 8 * t->size && i < raw.n; i += t->size)
		raw.p[i] |= (uint8_t)(made_random(m, 256) << t->bits);
	if (l->big_endian)
		cast_swap(m->meta.dtype, raw.p, raw.n / t->size);
	assert_int_equal(codec_encode(&l->codecs, buf_span(&raw), ret), 0);
}

static inline void made_object(struct made *m, const struct zarr_level *l, const uint64_t *origin,
			       struct buf *ret);

static inline void made_shard(struct made *m, const struct zarr_level *l, const uint64_t *origin,
			      struct buf *ret)
{
	const struct zarr_shard *s = l->shard;
	auto_free uint64_t *index = calloc(2 * s->entries, sizeof(*index));
	uint64_t pos[LIMIT_RANK] = { 0 }, at[LIMIT_RANK], entry = 0, before;
	auto_buf inner = { 0 }, packed = { 0 };

	assert_non_null(index);
	before = s->index_at_start ? s->index_bytes : 0;
	do {
		memcpy(at, origin, sizeof(at));
		for (unsigned i = 0; i < m->meta.rank; i++)
			at[l->axis[i]] += pos[i] * (l->shape[i] / s->grid[i]);
		index[2 * entry] = index[2 * entry + 1] = UINT64_MAX;
		if (made_random(m, 100) < m->opts->missing) {
			made_missing(m, &s->inner, at);
		} else {
			/* Bytes that belong to no chunk are allowed. */
			assert_int_equal(buf_add_zero(&inner, made_random(m, 4)), 0);
			index[2 * entry] = before + inner.n;
			made_object(m, &s->inner, at, &inner);
			index[2 * entry + 1] = before + inner.n - index[2 * entry];
		}
		entry++;
	} while (made_step(pos, s->grid, m->meta.rank));
	assert_int_equal(shard_index_encode(s, index, &packed), 0);
	assert_int_equal(packed.n, s->index_bytes);
	assert_int_equal(buf_add_span(ret, buf_span(s->index_at_start ? &packed : &inner)), 0);
	assert_int_equal(buf_add_span(ret, buf_span(s->index_at_start ? &inner : &packed)), 0);
}

static inline void made_object(struct made *m, const struct zarr_level *l, const uint64_t *origin,
			       struct buf *ret)
{
	if (l->shard)
		made_shard(m, l, origin, ret);
	else
		made_elements(m, l, origin, ret);
}

static inline void made_put(struct made *m, struct span key, struct span value)
{
	struct io_req req = { .op = IO_WRITE, .p = (void *)(uintptr_t)value.p, .n = value.n };

	if (!m->opts->in_file) {
		assert_int_equal(kv_put(m->kv, key, value), 0);
		return;
	}
	if (!m->file)
		assert_int_equal(io_file_temp(m->env.io, NULL, "/tmp", &m->file), 0);
	req.file = m->file;
	req.off = m->file_end + made_random(m, 3);
	if (value.n)
		assert_int_equal(io_run(m->env.io, &req, 1), 0);
	m->file_end = m->file->size = req.off + value.n;
	assert_int_equal(kv_mem_put_file(m->kv, key, m->file, req.off, value.n), 0);
}

static inline void made_chunks(struct made *m)
{
	uint64_t chunk[LIMIT_RANK] = { 0 }, origin[LIMIT_RANK];

	for (unsigned i = 0; i < m->meta.rank; i++)
		if (!m->meta.grid[i])
			return;
	do {
		auto_buf key = { 0 }, object = { 0 };

		for (unsigned i = 0; i < m->meta.rank; i++)
			origin[i] = chunk[i] * m->meta.chunk[i];
		if (made_random(m, 100) < m->opts->missing) {
			made_missing(m, &m->meta.level, origin);
			continue;
		}
		assert_int_equal(buf_add_str(&key, "a/"), 0);
		assert_int_equal(zarr_chunk_key(&m->meta, chunk, &key), 0);
		made_object(m, &m->meta.level, origin, &object);
		made_put(m, buf_span(&key), buf_span(&object));
	} while (made_step(chunk, m->meta.grid, m->meta.rank));
}

static inline void made_env(struct made *m, const struct made_opts *o)
{
	struct streams_opts so = o->streams;

	so.window_limit = so.window_limit ? so.window_limit : 32 * MiB;
	assert_int_equal(io_engine_open(o->io ? o->io : "sync", &m->env.io), 0);
	assert_int_equal(cache_new(o->cache ? o->cache : 64 * MiB, &m->env.cache), 0);
	budget_init(&m->budget, "read_budget", o->budget ? o->budget : 64 * MiB);
	m->env.budget = &m->budget;
	assert_int_equal(streams_new(&so, &m->env.streams), 0);
	if (o->threads)
		assert_int_equal(pool_new(o->threads, &m->env.pool), 0);
	assert_int_equal(kv_mem_new(m->env.io, &m->kv), 0);
}

static inline void made_open(struct made *m)
{
	int r = zarr_open(&m->env, m->kv, span_str("a/"), cache_owner(), 7, &m->z);

	if (r < 0)
		fail_msg("cannot open: %s", err_text(r));
}

/* Bytes that rise by one after each `run` of them, and after each 100,000. */
static inline void made_ramp(uint8_t *p, uint64_t n, uint64_t run)
{
	for (uint64_t at = 0, end; at < n; at = end) {
		end = MIN(MIN((at / run + 1) * run, (at / 100000 + 1) * 100000), n);
		memset(p + at, (int)(at / run + at / 100000), end - at);
	}
}

/* Make the array that doc describes. Zeroes m first. */
static inline void made_array(struct made *m, const char *doc, const struct made_opts *o)
{
	size_t item;

	memset(m, 0, sizeof(*m));
	m->opts = o;
	m->random = o->seed * 0x9e3779b97f4a7c15 + 1;
	made_env(m, o);
	if (zarr_meta_parse(span_str(doc), "doc", &m->meta) < 0)
		fail_msg("%s: %s", doc, unit_last_note());
	item = dtype_info(m->meta.dtype)->size;
	m->want = malloc(m->meta.bytes + 1);
	assert_non_null(m->want);
	if (o->smooth)
		made_ramp(m->want, m->meta.bytes, 700 * item);
	for (uint64_t i = 0; !o->smooth && i < m->meta.bytes; i++)
		m->want[i] = (uint8_t)made_random(m, 256);
	cast_canonical(m->meta.dtype, m->want, m->meta.n_elements);
	if (m->meta.dtype == DTYPE_BOOL)
		for (uint64_t i = 0; i < m->meta.bytes; i++)
			m->want[i] &= 1;
	made_chunks(m);
	assert_int_equal(kv_put(m->kv, span_str(m->meta.format == 2 ? "a/.zarray" : "a/zarr.json"),
				span_str(doc)),
			 0);
	made_open(m);
}

static inline void made_release(struct made *m)
{
	zarr_unref(m->z);
	pool_free(m->env.pool);
	streams_free(m->env.streams);
	kv_free(m->kv);
	io_file_unref(m->file);
	cache_free(m->env.cache);
	budget_release(&m->budget);
	io_engine_close(m->env.io);
	zarr_meta_release(&m->meta);
	free(m->want);
}

#endif
