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
	ret->axis = axis;
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

/* Whether three quarters of the cache hold n chunks. */
static bool cache_holds(const struct zarr *z, uint64_t n)
{
	uint64_t bytes;

	return mul_fits(n, z->leaf->bytes, &bytes) && bytes <= cache_limit(z->env->cache) / 4 * 3;
}

/* Returns whether the array is read in slabs. */
static bool slabs_of(const struct zarr *z, struct slabs *ret)
{
	struct slabs s;
	uint64_t rows;

	if (z->meta.rank == 0 || z->meta.bytes == 0 || z->leaf_raw || z->env->remote ||
	    chunk_is_streamed(z))
		return false;
	bands_of(z, &s.b);
	rows = MIN(cache_limit(z->env->cache) / 4 / s.b.row, s.b.chunk_rows);
	if (s.b.chunks < 2 || cache_holds(z, s.b.chunks) || rows < 2)
		return false;
	s.bytes = rows * s.b.row;
	s.per_band = div_up(s.b.chunk_rows, rows);
	*ret = s;
	return true;
}

/*
 * Whether the view is read in slabs; then ret_row is the number of its bytes in a row. It must need
 * half of the chunks of a band, and all elements of a row that are between its first and its last.
 */
static bool view_slabs_of(const struct zarr *z, const struct zarr_view *v, struct slabs *ret,
			  uint64_t *ret_row)
{
	uint64_t chunks = 1, row = dtype_info(v->dtype)->size;
	struct slabs s;

	if (v->n_elements == 0 || !slabs_of(z, &s))
		return false;
	for (unsigned i = 0; i < v->rank; i++) {
		const struct zarr_axis *a = &v->axis[i];
		uint64_t last = a->start + a->step * (a->count - 1);

		/* Padding is not stored. */
		if (last >= z->meta.shape[i] || (i >= s.b.axis && a->step > 1 && a->count > 1))
			return false;
		if (i > s.b.axis) {
			chunks *= last / z->leaf_chunk[i] - a->start / z->leaf_chunk[i] + 1;
			row *= a->count;
		}
	}
	if (chunks < div_up(s.b.chunks, 2) || cache_holds(z, chunks) ||
	    row > FEW_CHUNKS * REQUEST_BYTES)
		return false;
	*ret = s;
	*ret_row = row;
	return true;
}

bool slab_is_for(const struct zarr *z, const struct zarr_view *v)
{
	struct slabs s;
	uint64_t row;

	return view_slabs_of(z, v, &s, &row);
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

	block_free(v->p, v->n);
	free(v->damage.bits);
	free(v);
}

/*
 * Decode a slab for the cache. One slab is decoded at a time, by all threads of the pool, so that a
 * quarter of the cache is reserved for one at most. Reserving never waits. The read budget cannot
 * have this memory: the chunks wait for that, and budgets do not nest.
 */
static int slab_fill(struct zarr *z, const struct slab *slab, struct cache_entry *e)
{
	size_t item = dtype_info(z->meta.dtype)->size, n = (size_t)(slab->end - slab->begin);
	struct content *v = calloc(1, sizeof(*v));
	struct cache *cache = z->env->cache;
	struct zarr_view whole;
	struct bands b;
	int r = v ? 0 : fail(-ENOMEM, "cannot allocate a slab");

	if (r < 0) {
		cache_fail(cache, e, r);
		return r;
	}
	bands_of(z, &b);
	zarr_view_whole(&z->meta, &whole);
	v->n = n;
	v->damage = (struct damage){ band_at(&b, slab->begin).number * b.chunks, b.chunks, NULL };
	pthread_mutex_lock(&z->env->slab_lock);
	cache_reserve(cache, e, block_size(n));
	trace(TRACE_ZARR, "slab of '%s' %llu+%zu", z->prefix, (unsigned long long)slab->begin, n);
	v->p = block_alloc(n);
	r = !v->p ? fail(-ENOMEM, "cannot allocate %zu bytes", n) :
		    reading_elements(z, &whole, slab->begin / item, n / item, v->p, &v->damage,
				     NULL);
	if (r < 0) {
		content_free(v);
		cache_fail(cache, e, r);
	} else {
		cache_fill(cache, e, v,
			   block_size(n) + sizeof(*v) + (v->damage.bits ? v->damage.n / 8 : 0),
			   content_free);
	}
	pthread_mutex_unlock(&z->env->slab_lock);
	return MIN(r, 0);
}

/* The elements of a box of the view in the array, in C order; returns the byte of the first one. */
static uint64_t slab_box(const struct reading *rd, struct strided *ret)
{
	uint64_t stride[LIMIT_RANK], n = rd->item, at = 0;

	for (unsigned i = rd->grid.rank; i > 0; i--) {
		stride[i - 1] = n;
		n *= rd->z->meta.shape[i - 1];
	}
	*ret = (struct strided){ .have = rd->z->meta.dtype, .want = rd->v->dtype };
	for (unsigned i = 0; i < rd->grid.rank; i++) {
		const struct zarr_axis *a = &rd->v->axis[i];

		at += (a->start + a->step * rd->box.lo[i]) * stride[i];
		strided_add(ret, rd->box.hi[i] - rd->box.lo[i], a->step * stride[i], rd->stride[i]);
	}
	return at;
}

/*
 * Copy a box of the view out of its slabs. Returns 1 when a slab cannot be decoded. Damaged chunks
 * are read by each request, which fails unless they have been repaired.
 */
static int slab_copy(const struct slabs *s, const struct reading *rd, uint8_t *out)
{
	struct zarr *z = rd->z;
	struct strided copy;
	uint64_t first = slab_box(rd, &copy), end = first + strided_span(&copy);
	int r = 0;

	for (uint64_t at = first; at < end && r >= 0;) {
		struct slab slab = slab_at(z, s, at);
		const struct content *content;
		struct cache_entry *e;

		at = slab.end;
		if (!strided_has(&copy, first, slab.begin, slab.end))
			continue;
		r = cache_begin(z->env->cache, &slab.key, &e);
		if (r < 0) {
			err_clear();
			return 1;
		}
		if (r == CACHE_MINE)
			r = slab_fill(z, &slab, e);
		else if (r == CACHE_BUSY)
			r = cache_wait(z->env->cache, e);
		if (r < 0) {
			cache_put(z->env->cache, e);
			err_clear();
			return 1;
		}
		content = e->value;
		/* A reference would keep the whole slab pinned until the answer is sent. */
		strided_copy_window(&copy, first, content->p, slab.begin, slab.end, out);
		if (content->damage.bits)
			r = reading_elements(z, rd->v, rd->box.at, rd->box.n, out, NULL,
					     &content->damage);
		cache_put(z->env->cache, e);
	}
	return r;
}

int slab_read(struct zarr *z, const struct zarr_view *v, uint64_t off, size_t n, struct segments *g)
{
	size_t item = dtype_info(v->dtype)->size;
	uint64_t first = off / item, end = div_up(off + n, item), row;
	size_t bytes = (end - first) * item;
	struct reading rd;
	struct slabs s;
	uint8_t *out;
	int r;

	/*
	 * An ordinary read decodes each chunk for whole rows, and again for the parts of rows at
	 * both ends.
	 */
	if (!view_slabs_of(z, v, &s, &row) || n < row / FEW_CHUNKS ||
	    (end - first) * dtype_info(z->meta.dtype)->size > 2 * s.bytes)
		return 1;
	out = block_alloc(bytes);
	if (!out)
		return 1;
	reading_init(&rd, z, v, NULL);
	for (uint64_t at = first; at < end; at += rd.box.n) {
		reading_set_box(&rd, at, end - at);
		r = slab_copy(&s, &rd, out + (at - first) * item);
		if (r != 0) {
			block_free(out, bytes);
			return r;
		}
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
