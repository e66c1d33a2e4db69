/*
 * prefetch.c - chunks decoded before anyone asks, by jobs of the pool.
 *
 * A hint only: every failure is met again, and reported, by the reader that
 * comes for the chunk.
 */
#include "core/zarr/chunk.h"

struct prefetch {
	struct pool_job job;
	struct zarr *z;			/* a reference */
	struct chunk c;
	uint64_t off, n;
};

static void prefetch_run(struct pool_job *job)
{
	struct prefetch *p = container_of(job, struct prefetch, job);

	/* Whoever reads the chunk meets the error again and reports it. */
	if (chunk_open(p->z, &p->c, 1) >= 0) {
		if (p->c.mode == CHUNK_REMOTE)
			chunk_remote_ahead(p->z, &p->c, p->off, p->n);
		if (p->c.mode == CHUNK_STREAM)
			stream_ahead(p->c.stream, (p->off + p->n - 1) / PIECE_BYTES);
		chunk_close(p->z, &p->c, 1);
	}
	zarr_unref(p->z);
	free(p);
}

void chunk_prefetch(struct zarr *z, const uint64_t *index, uint64_t off, uint64_t n)
{
	struct chunk c = { .in_runs = true };
	struct prefetch *p;
	struct stream *s;

	memcpy(c.index, index, sizeof(c.index));
	chunk_number(z, &c);
	if (!z->env->pool || n == 0 || (z->leaf_raw && chunk_is_placed(z, &c)))
		return;
	if (chunk_is_remote(z, &c)) {
		struct cache_key key = stream_piece_key(z, c.number, off / PIECE_BYTES);

		if (cache_has(z->env->cache, &key, CACHE_READY_OR_BUSY))
			return;
	} else if (chunk_is_streamed(z)) {
		s = stream_find(z, c.number);
		if (s) {
			stream_ahead(s, (off + n - 1) / PIECE_BYTES);
			stream_put(s);
			return;
		}
	} else {
		struct cache_key key = chunk_whole_key(z, c.number);

		if (cache_has(z->env->cache, &key, CACHE_READY_OR_BUSY))
			return;
	}
	p = calloc(1, sizeof(*p));
	if (!p)
		return;
	p->job.run = prefetch_run;
	p->z = zarr_ref(z);
	p->c = c;
	p->off = off;
	p->n = n;
	atomic_fetch_add_explicit(&z->env->prefetches, 1, memory_order_relaxed);
	pool_post(z->env->pool, &p->job);
}
