/* SPDX-License-Identifier: Apache-2.0 */
/*
 * slab.c - decode bands of chunks that do not fit into the cache, a quarter of the cache at a time.
 */
#include "core/zarr/slab.h"

#include "core/base/blocks.h"
#include "core/base/err.h"
#include "core/base/log.h"
#include "core/zarr/chunk.h"
#include "core/zarr/reading.h"

#define FEW_CHUNKS 4              /* a request for less than this part of a row needs few chunks */
#define REQUEST_BYTES (512 * KiB) /* the size of the requests of a sequential reader */

/* ---- bands ---- */

void bands_of(const struct zarr *z, struct bands *ret)
{
	unsigned axis = 0;

	*ret = (struct bands){ .row = dtype_info(z->meta.dtype)->size,
			       .chunks = 1,
			       .whole_rows = z->leaf_in_order };
	while (axis + 1 < z->meta.rank && z->leaf_chunk[axis] == 1)
		axis++;
	for (unsigned i = axis + 1; i < z->meta.rank; i++) {
		ret->row *= z->meta.shape[i];
		ret->chunks *= z->leaf_grid[i];
		ret->whole_rows &= z->leaf_chunk[i] == z->meta.shape[i];
	}
	ret->rows = z->meta.shape[axis];
	ret->chunk_rows = z->leaf_chunk[axis];
	ret->per_rows = z->leaf_grid[axis];
}

struct band_range band_at(const struct bands *b, uint64_t off)
{
	uint64_t outer = off / (b->row * b->rows), place = off / b->row % b->rows / b->chunk_rows;
	uint64_t row = outer * b->rows + place * b->chunk_rows;
	uint64_t end = MIN(row + b->chunk_rows, (outer + 1) * b->rows);

	return (struct band_range){ outer * b->per_rows + place, row * b->row, end * b->row };
}

/* ---- slabs ---- */

struct slabs {
	struct bands b;
	uint64_t bytes;    /* of a slab, whole rows; the last one of a band may have less */
	uint64_t per_band; /* number of slabs in a full band */
};

/* Returns whether the array is read in slabs. */
static bool slabs_of(const struct zarr *z, struct slabs *ret)
{
	uint64_t limit = cache_limit(z->env->cache), band, rows;
	struct slabs s;

	if (z->meta.rank == 0 || z->meta.bytes == 0 || z->leaf_raw || z->env->remote ||
	    chunk_is_streamed(z))
		return false;
	bands_of(z, &s.b);
	if (s.b.chunks < 2 ||
	    (mul_fits(s.b.chunks, z->leaf->bytes, &band) && band <= limit / 4 * 3))
		return false;
	rows = MIN(limit / 4 / s.b.row, s.b.chunk_rows);
	if (rows < 2 || s.b.row > FEW_CHUNKS * REQUEST_BYTES)
		return false;
	s.bytes = rows * s.b.row;
	s.per_band = div_up(s.b.chunk_rows, rows);
	*ret = s;
	return true;
}

bool slab_is_for(const struct zarr *z, const struct zarr_view *v)
{
	struct slabs s;

	return v->plain && slabs_of(z, &s);
}

static struct slab slab_at(const struct zarr *z, const struct slabs *s, uint64_t off)
{
	struct band_range band = band_at(&s->b, off);
	uint64_t i = (off - band.begin) / s->bytes, begin = band.begin + i * s->bytes;

	return (struct slab){
		.key = { z->owner, band.number * s->per_band + i,
			 (uint64_t)z->tag << 40 | (uint64_t)1 << 35 },
		.begin = begin,
		.end = MIN(begin + s->bytes, band.end),
	};
}

bool slab_of(const struct zarr *z, uint64_t off, struct slab *ret)
{
	struct slabs s;

	if (!slabs_of(z, &s))
		return false;
	*ret = slab_at(z, &s, off);
	return true;
}

/* The value of a slab in the cache. */
struct content {
	size_t n;
	uint8_t *p;           /* a block; the bytes of damaged chunks are undefined */
	struct damage damage; /* of the chunks of its band */
};

static void content_free(void *value)
{
	struct content *v = value;

	if (v)
		block_free(v->p, v->n);
	if (v)
		free(v->damage.bits);
	free(v);
}

/* Decode the elements of a slab. */
static int content_new(struct zarr *z, const struct slab *slab, struct content **ret)
{
	size_t item = dtype_info(z->meta.dtype)->size, n = (size_t)(slab->end - slab->begin);
	struct content *v = calloc(1, sizeof(*v));
	struct zarr_view whole;
	struct bands b;
	int r;

	bands_of(z, &b);
	if (v)
		*v = (struct content){
			.n = n,
			.p = block_alloc(n),
			.damage = { band_at(&b, slab->begin).number * b.chunks, b.chunks, NULL },
		};
	trace(TRACE_ZARR, "slab of '%s' %llu+%zu", z->prefix, (unsigned long long)slab->begin, n);
	zarr_view_whole(&z->meta, &whole);
	r = v && v->p ? reading_pass(z, &whole, slab->begin / item, n / item, v->p, &v->damage) :
			fail(-ENOMEM, "cannot allocate %zu bytes", n);
	if (r < 0)
		content_free(v);
	else
		*ret = v;
	return r;
}

/*
 * Decode a slab for the cache. One slab is decoded at a time, by all threads of the pool, so that a
 * quarter of the cache is reserved for one at most. Reserving never waits. The read budget cannot
 * have this memory: the chunks wait for that, and budgets do not nest.
 */
static int slab_fill(struct zarr *z, const struct slab *slab, struct cache_entry *e)
{
	size_t n = (size_t)(slab->end - slab->begin);
	struct content *v;
	int r;

	pthread_mutex_lock(&z->env->slab_lock);
	cache_reserve(z->env->cache, e, block_size(n));
	r = content_new(z, slab, &v);
	if (r >= 0)
		cache_fill(z->env->cache, e, v,
			   block_size(n) + sizeof(*v) + (v->damage.bits ? v->damage.n / 8 : 0),
			   content_free);
	pthread_mutex_unlock(&z->env->slab_lock);
	return r;
}

static int slab_open(struct zarr *z, const struct slab *slab, struct cache_entry **ret)
{
	struct cache_entry *e;
	int r = cache_begin(z->env->cache, &slab->key, &e);

	if (r < 0)
		return r;
	if (r == CACHE_MINE) {
		r = slab_fill(z, slab, e);
		if (r < 0)
			cache_fail(z->env->cache, e, r);
	} else {
		r = r == CACHE_BUSY ? cache_wait(z->env->cache, e) : 0;
	}
	if (r < 0)
		cache_put(z->env->cache, e);
	else
		*ret = e;
	return r;
}

/*
 * Copy elements of the view from the slab with the first one to out, at most n. Returns their
 * number, 0 when the slab cannot be decoded, or the error of a damaged chunk.
 */
static int64_t slab_copy(struct zarr *z, const struct slabs *s, const struct zarr_view *v,
			 uint64_t first, uint64_t n, uint8_t *out)
{
	size_t item = dtype_info(z->meta.dtype)->size;
	struct slab slab = slab_at(z, s, first * item);
	const struct content *content;
	struct cache_entry *e;
	int r = 0;

	if (slab_open(z, &slab, &e) < 0) {
		err_clear();
		return 0;
	}
	content = e->value;
	n = MIN(n, slab.end / item - first);
	/* A reference would keep the whole slab pinned until the answer is sent. */
	memcpy(out, content->p + (first * item - slab.begin), n * item);
	/* Damaged chunks are read by each request, which fails unless they have been repaired. */
	if (content->damage.bits)
		r = reading_only(z, v, first, n, out, &content->damage);
	cache_put(z->env->cache, e);
	return r < 0 ? r : (int64_t)n;
}

int slab_read(struct zarr *z, const struct zarr_view *v, uint64_t off, size_t n, struct segments *g)
{
	size_t item = dtype_info(v->dtype)->size;
	uint64_t first = off / item, end = div_up(off + n, item);
	size_t bytes = (end - first) * item;
	struct slabs s;
	uint8_t *out;

	if (!v->plain || !slabs_of(z, &s) || n < s.b.row / FEW_CHUNKS)
		return 1;
	out = block_alloc(bytes);
	if (!out)
		return 1;
	for (uint64_t at = first; at < end;) {
		int64_t r = slab_copy(z, &s, v, at, end - at, out + (at - first) * item);

		if (r <= 0) {
			block_free(out, bytes);
			return r < 0 ? (int)r : 1;
		}
		at += r;
	}
	if (off > first * item)
		memmove(out, out + (off - first * item), n);
	return segments_add_block(g, out, bytes, n);
}

bool slab_drop_behind(struct zarr *z, const struct zarr_view *v, uint64_t from, uint64_t to)
{
	struct slabs s;

	if (!v->plain || !slabs_of(z, &s))
		return false;
	for (uint64_t at = from; at < to;) {
		struct slab slab = slab_at(z, &s, at);

		if (slab.end <= to)
			cache_drop_behind(z->env->cache, &slab.key, 1);
		at = slab.end;
	}
	return true;
}
