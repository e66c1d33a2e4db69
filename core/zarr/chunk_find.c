/* SPDX-License-Identifier: Apache-2.0 */
/*
 * chunk_find.c - locate an innermost chunk.
 *
 * Level by level: the key of the stored object, then one shard index per level
 * of nesting. Indices are read once and cached like chunks.
 */
#include "core/base/err.h"
#include "core/zarr/chunk.h"
#include "core/zarr/meta/shard.h"

void chunk_number(const struct zarr *z, struct chunk *c)
{
	c->number = 0;
	for (unsigned i = 0; i < z->meta.rank; i++)
		c->number = c->number * z->leaf_grid[i] + c->index[i];
}

int zarr_object_key(const struct zarr *z, const uint64_t *index, struct buf *ret)
{
	int r = buf_add(ret, z->prefix, z->prefix_len);

	return r < 0 ? r : zarr_chunk_key(&z->meta, index, ret);
}

int zarr_object_locate(const struct zarr *z, const uint64_t *index, struct kv_loc *ret)
{
	auto_buf text = { 0 };
	int r = zarr_object_key(z, index, &text);
	const struct span key = buf_span(&text);

	return r < 0 ? r : kv_locate(z->kv, &key, ret, 1);
}

int chunk_key(const struct zarr *z, const struct chunk *c, struct buf *ret)
{
	uint64_t object[LIMIT_RANK];

	for (unsigned i = 0; i < z->meta.rank; i++)
		object[i] = c->index[i] * z->leaf_chunk[i] / z->meta.chunk[i];
	return zarr_object_key(z, object, ret);
}

struct shard_index {
	uint64_t n;
	uint64_t entry[]; /* offset and length of each inner chunk */
};

/* Read and check the index of the shard [off, off + len) of the value. */
static int index_read(const struct zarr_shard *s, const struct chunk *c, struct shard_index **ret)
{
	auto_free struct shard_index *ix = NULL;
	uint8_t *raw;
	uint64_t at;
	int r;

	if (c->src.len < s->index_bytes)
		return fail(-EUCLEAN, "shard of %llu bytes is shorter than its index of %llu",
			    (unsigned long long)c->src.len, (unsigned long long)s->index_bytes);
	ix = malloc(sizeof(*ix) + s->index_bytes);
	if (!ix)
		return fail(-ENOMEM, "cannot allocate a shard index of %llu entries",
			    (unsigned long long)s->entries);
	/* Decode it in place, since it may be large. */
	raw = (uint8_t *)ix->entry;
	at = c->src.off + (s->index_at_start ? 0 : c->src.len - s->index_bytes);
	r = kv_loc_read(&c->src.loc, at, s->index_bytes, raw);
	if (r < 0)
		return r;
	r = shard_index_decode(s, span_of(raw, s->index_bytes), c->src.len, ix->entry);
	if (r < 0)
		return r;
	ix->n = s->entries;
	*ret = take(ix);
	return 0;
}

/*
 * Read the index into the cache entry. The budget bounds the indices of many shards. Besides its
 * own entry, the thread may hold chunks that it began; a holder of budget waits for neither.
 */
static int index_fill(struct zarr *z, const struct zarr_shard *s, const struct chunk *c,
		      struct cache_entry *e)
{
	struct shard_index *ix = NULL;
	int r = budget_take(z->env->budget, s->index_bytes);

	if (r == 0) {
		r = index_read(s, c, &ix);
		budget_give(z->env->budget, s->index_bytes);
	}
	if (r < 0)
		cache_fail(z->env->cache, e, r);
	else
		cache_fill(z->env->cache, e, ix, sizeof(*ix) + s->index_bytes, free);
	return r;
}

/* Narrow c to inner chunk `entry` of the shard numbered `shard` at this level. */
static int enter_shard(struct zarr *z, const struct zarr_shard *s, unsigned level, uint64_t shard,
		       uint64_t entry, struct chunk *c)
{
	struct cache_key key = { z->owner, shard,
				 (uint64_t)z->tag << 40 | 1 | (uint64_t)level << 36 };
	struct cache *cache = z->env->cache;
	const struct shard_index *ix;
	struct cache_entry *e;
	int r = cache_begin(cache, &key, &e);

	if (r < 0)
		return r;
	if (r == CACHE_MINE)
		r = index_fill(z, s, c, e);
	else if (r == CACHE_BUSY)
		r = cache_wait(cache, e);
	ix = e->value;
	if (r >= 0 && ix->entry[2 * entry] == UINT64_MAX) {
		kv_loc_release(&c->src.loc);
	} else if (r >= 0) {
		c->src.off += ix->entry[2 * entry];
		c->src.len = ix->entry[2 * entry + 1];
	}
	cache_put(cache, e);
	return MIN(r, 0);
}

/* Descend through the levels of sharding to the innermost chunk. */
static int chunk_descend(struct zarr *z, struct chunk *c)
{
	const struct zarr_level *level = &z->meta.level;
	uint64_t pos[LIMIT_RANK], extent[LIMIT_RANK], number = 0;
	unsigned depth = 0;
	int r = 0;

	/*
	 * Position of the chunk's first element, relative to the current object, on each axis of
	 * the array.
	 */
	for (unsigned i = 0; i < z->meta.rank; i++) {
		pos[i] = c->index[i] * z->leaf_chunk[i];
		number = number * z->meta.grid[i] + pos[i] / z->meta.chunk[i];
		pos[i] %= z->meta.chunk[i];
	}
	while (level->shard && c->src.loc.where != KV_ABSENT && r >= 0) {
		const struct zarr_shard *s = level->shard;
		uint64_t entry = 0;

		for (unsigned i = 0; i < z->meta.rank; i++)
			extent[level->axis[i]] = level->shape[i] / s->grid[i];
		for (unsigned i = 0; i < z->meta.rank; i++)
			entry = entry * s->grid[i] + pos[level->axis[i]] / extent[level->axis[i]];
		for (unsigned i = 0; i < z->meta.rank; i++)
			pos[i] %= extent[i];
		r = enter_shard(z, s, depth++, number, entry, c);
		number = number * s->entries + entry;
		level = &s->inner;
	}
	if (r < 0 || c->src.loc.where == KV_ABSENT)
		return r;
	/* The index is cached, and another file may have taken the place of its shard. */
	if (c->src.off > c->src.loc.len || c->src.len > c->src.loc.len - c->src.off)
		return fail(-EUCLEAN, "[%llu, +%llu) is beyond its %llu bytes",
			    (unsigned long long)c->src.off, (unsigned long long)c->src.len,
			    (unsigned long long)c->src.loc.len);
	return 0;
}

int chunk_locate(struct zarr *z, struct chunk *c, size_t n)
{
	auto_free struct span *keys = calloc(n, sizeof(*keys));
	auto_free struct kv_loc *locs = calloc(n, sizeof(*locs));
	auto_free size_t *ends = calloc(n, sizeof(*ends));
	auto_buf text = { 0 };
	int r = 0;

	if (!keys || !locs || !ends)
		return fail(-ENOMEM, "cannot look up %zu chunks", n);
	for (size_t i = 0; i < n && r >= 0; i++) {
		chunk_number(z, &c[i]);
		r = chunk_key(z, &c[i], &text);
		ends[i] = text.n;
	}
	for (size_t i = 0; i < n; i++)
		keys[i] = span_of(text.p + (i ? ends[i - 1] : 0), ends[i] - (i ? ends[i - 1] : 0));
	if (r < 0)
		return r;
	r = kv_locate(z->kv, keys, locs, n);
	if (r < 0)
		return r;
	for (size_t i = 0; i < n; i++) {
		c[i].src.loc = locs[i];
		c[i].src.off = 0;
		c[i].src.len = locs[i].len;
	}
	for (size_t i = 0; i < n && r >= 0; i++) {
		r = chunk_descend(z, &c[i]);
		if (r < 0)
			r = chunk_err(z, &c[i], io_why_bad(r, c[i].src.loc.file));
	}
	for (size_t i = 0; i < n && r < 0; i++)
		kv_loc_release(&c[i].src.loc);
	return r;
}

int chunk_missing(struct zarr *z, const struct chunk *c)
{
	auto_buf where = { 0 };

	atomic_fetch_add_explicit(&z->env->chunks_missing, 1, memory_order_relaxed);
	if (!z->missing_is_error)
		return 0;
	chunk_text(z, c, &where);
	return fail(-EUCLEAN, "%s is not stored, and the checkpoint says that every chunk is",
		    buf_str(&where));
}

void chunk_text(struct zarr *z, const struct chunk *c, struct buf *out)
{
	auto_buf key = { 0 }, place = { 0 };
	struct err_note reason;

	/* The caller adds the text to a note, and to look up the place may make another one. */
	err_peek(&reason);
	if (chunk_key(z, c, &key) < 0)
		return;
	if (kv_where_text(z->kv, buf_span(&key), &place) < 0)
		buf_add_str(&place, "unknown place");
	err_restore(&reason);
	buf_add_str(out, "chunk '");
	buf_add_shown(out, buf_span(&key));
	buf_add_str(out, "' (");
	buf_add_shown(out, buf_span(&place));
	buf_add_str(out, ")");
}

int chunk_err(struct zarr *z, const struct chunk *c, int code)
{
	auto_buf where = { 0 };

	chunk_text(z, c, &where);
	return err_at(code, "%s", buf_str(&where));
}

void chunk_json(struct zarr *z, const struct chunk *c, struct buf *out)
{
	auto_buf key = { 0 }, place = { 0 };

	if (chunk_key(z, c, &key) < 0)
		return;
	buf_add_str(out, "\"key\": ");
	json_put_str(out, buf_span(&key), JSON_PRETTY);
	buf_add_str(out, ", \"place\": ");
	if (kv_where_text(z->kv, buf_span(&key), &place) < 0)
		buf_add_str(out, "null");
	else
		json_put_str(out, buf_span(&place), JSON_PRETTY);
}

int zarr_place(struct zarr *z, struct zarr_place *ret)
{
	struct chunk c = { 0 };
	int r = chunk_locate(z, &c, 1);

	if (r < 0)
		return r;
	r = c.src.loc.where == KV_FILE;
	if (r)
		*ret = (struct zarr_place){ c.src.loc.file->ino, c.src.loc.off + c.src.off };
	kv_loc_release(&c.src.loc);
	return r;
}
