/* SPDX-License-Identifier: Apache-2.0 */
/*
 * prefetch.c - decode or fetch chunks before they are requested, in jobs of the pool, and drop them
 * after reading (drop-behind).
 *
 * These are only hints: the reader that comes for the chunk meets every failure again, and reports
 * it.
 */
#include "core/base/err.h"
#include "core/zarr/chunk.h"
#include "core/zarr/fetch.h"
#include "core/zarr/slab.h"

/* chunks of one band; if there are more, they are small and not worth the time */
#define PASS_MAX 4096

struct prefetch {
	struct pool_job job;
	struct zarr *z; /* a reference */
	struct chunk c;
	uint64_t off, n;
	struct zarr_guess *guess; /* a reference, or NULL */
};

/* Whether the cache has the entry, or some thread is filling it. */
static bool prefetch_is_there(const struct zarr *z, const struct cache_key *key)
{
	return cache_has(z->env->cache, key, CACHE_READY_OR_BUSY);
}

static void prefetch_run(struct pool_job *job)
{
	struct prefetch *p = container_of(job, struct prefetch, job);
	uint64_t first = p->off / STREAM_PIECE_BYTES,
		 last = (p->off + p->n - 1) / STREAM_PIECE_BYTES;
	struct cache_key whole = chunk_whole_key(p->z, p->c.number);
	/* A guess takes no memory that readers need. */
	bool may = !p->guess || (!zarr_guess_is_over(p->guess) &&
				 budget_has_room(p->z->env->budget, 2 * chunk_cost(p->z)));

	/*
	 * The reader may have come first, and even be gone: using the chunk again would delay its
	 * eviction.
	 */
	if (!prefetch_is_there(p->z, &whole) && may) {
		/* The reader of the chunk will meet and report the error. */
		if (chunk_open(p->z, &p->c, 1) < 0)
			err_clear();
		if (p->c.mode == CHUNK_RAW && chunk_raw_is_fetched(p->z))
			chunk_raw_ahead(p->z, &p->c, p->off, p->n, p->guess);
		if (p->c.mode == CHUNK_REMOTE)
			chunk_remote_ahead(p->z, &p->c, p->off, p->n);
		if (p->c.mode == CHUNK_STREAM)
			stream_ahead(p->c.stream, first, last, p->guess);
		if (p->c.mode == CHUNK_WHOLE && p->guess)
			cache_put_ahead(p->z->env->cache, take(p->c.pin));
		chunk_close(p->z, &p->c, 1);
	}
	zarr_guess_unref(p->guess);
	zarr_unref(p->z);
	free(p);
}

static void post(struct zarr *z, const struct chunk *c, uint64_t off, uint64_t n,
		 struct zarr_guess *guess)
{
	struct prefetch *p = calloc(1, sizeof(*p));

	if (!p)
		return;
	p->job.run = prefetch_run;
	p->z = zarr_ref(z);
	p->c = *c;
	p->off = off;
	p->n = n;
	p->guess = zarr_guess_ref(guess);
	atomic_fetch_add_explicit(&z->env->prefetches, 1, memory_order_relaxed);
	(guess ? pool_post_idle : pool_post)(z->env->pool, &p->job);
}

void chunk_prefetch(struct zarr *z, const uint64_t *index, uint64_t off, uint64_t n,
		    struct zarr_guess *guess)
{
	uint64_t first = off / STREAM_PIECE_BYTES, last = (off + n - 1) / STREAM_PIECE_BYTES;
	struct chunk c = { .in_runs = true };
	struct cache_key key;
	struct stream *s;
	bool is_remote;

	memcpy(c.index, index, sizeof(c.index));
	chunk_number(z, &c);
	if (!z->env->pool || n == 0)
		return;
	is_remote = chunk_is_remote(z, &c);
	if (z->leaf_raw && chunk_is_direct(z, &c)) {
		/* The kernel reads a local file ahead. */
		if (!chunk_raw_is_fetched(z) || is_remote)
			return;
		/* A job for each request, so that many are under way at once. */
		for (uint64_t at = off, end = off + n, next; at < end; at = next) {
			key = fetch_key(z, c.number, FETCH_RAW, at / STREAM_PIECE_BYTES);
			next = MIN(at - at % FETCH_BYTES + FETCH_BYTES, end);
			if (next - at > STREAM_PIECE_BYTES || !prefetch_is_there(z, &key))
				post(z, &c, at, next - at, guess);
		}
		return;
	}
	/* Nothing is to be done for what is there or coming; an open stream decodes the range. */
	if (is_remote || !chunk_is_streamed(z)) {
		key = is_remote ? chunk_remote_key(z, c.number, first) :
				  chunk_whole_key(z, c.number);
		if (!prefetch_is_there(z, &key))
			post(z, &c, off, n, guess);
		return;
	}
	s = stream_find(z, c.number);
	if (s)
		stream_ahead(s, first, last, guess);
	else if (!stream_has_pieces(z, c.number, first, last))
		post(z, &c, off, n, guess);
	stream_put(s);
}

/* Drop pieces of the only chunk of a band. */
static void pass_pieces(struct zarr *z, const struct band_range *b, uint64_t from, uint64_t to)
{
	uint64_t piece = from > b->begin ? (from - b->begin) / STREAM_PIECE_BYTES : 0;

	for (; b->begin + piece * STREAM_PIECE_BYTES < b->end &&
	       MIN(b->begin + (piece + 1) * STREAM_PIECE_BYTES, b->end) <= to;
	     piece++) {
		struct cache_key key = z->leaf_raw ? fetch_key(z, b->number, FETCH_RAW, piece) :
						     stream_piece_key(z, b->number, piece);

		cache_drop_behind(z->env->cache, &key, 1);
	}
}

void zarr_drop_behind(struct zarr *z, const struct zarr_view *v, uint64_t from, uint64_t to)
{
	bool streamed = chunk_is_streamed(z) || z->leaf_raw;
	struct bands b;

	if (!v->plain || z->meta.rank == 0 || v->bytes == 0 || chunk_is_shared(z) ||
	    (z->leaf_raw && !chunk_raw_is_fetched(z)))
		return;
	bands_of(z, &b);
	if (streamed ? !b.whole_rows : b.chunks > PASS_MAX)
		return;
	if (slab_drop_behind(z, v, from, to))
		return;
	for (uint64_t at = from; at < v->bytes;) {
		struct band_range band = band_at(&b, at);

		if (streamed) {
			pass_pieces(z, &band, from, to);
		} else if (band.end <= to) {
			struct cache_key key = chunk_whole_key(z, band.number * b.chunks);

			cache_drop_behind(z->env->cache, &key, b.chunks);
		}
		if (band.end > to)
			return;
		at = band.end;
	}
}
