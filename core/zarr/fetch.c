/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fetch.c - pieces of stored bytes, fetched ahead.
 *
 * Invariant: a thread that fills pieces waits only for the budget and the server, never for another
 * entry of the cache.
 */
#include "core/zarr/fetch.h"

#include "core/base/blocks.h"
#include "core/base/err.h"
#include "core/zarr/chunk.h"

struct cache_key fetch_key(const struct zarr *z, uint64_t number, enum fetch_kind kind,
			   uint64_t piece)
{
	struct cache_key key = stream_piece_key(z, number, piece);

	key.part |= (uint64_t)1 << (kind == FETCH_RAW ? 38 : 37);
	return key;
}

struct batch {
	struct cache_entry *e[FETCH_PIECES];
	uint8_t *block[FETCH_PIECES];
	struct io_req req[FETCH_PIECES];
	size_t n;
};

/* Begin a piece that no other thread has begun. */
static void fetch_begin(const struct fetch *f, uint64_t piece, struct batch *b)
{
	struct cache_key key = fetch_key(f->z, f->number, f->kind, piece);
	struct cache *cache = f->z->env->cache;
	uint64_t at = piece * STREAM_PIECE_BYTES;
	struct cache_entry *e;
	size_t n;
	int r;

	/* Using a piece that is there would delay its eviction. */
	if (at >= f->len || cache_has(cache, &key, CACHE_READY_OR_BUSY))
		return;
	r = cache_begin(cache, &key, &e);
	if (r != CACHE_MINE) {
		cache_put(cache, r < 0 ? NULL : e);
		return;
	}
	n = (size_t)MIN((uint64_t)STREAM_PIECE_BYTES, f->len - at);
	b->e[b->n] = e;
	b->block[b->n] = block_alloc(n);
	b->req[b->n] = (struct io_req){
		.op = IO_READ, .file = f->file, .p = b->block[b->n], .n = n, .off = f->off + at
	};
	b->n++;
}

void fetch_pieces(const struct fetch *f, uint64_t first, uint64_t last, bool is_guess)
{
	struct cache *cache = f->z->env->cache;
	struct batch b = { 0 };
	uint64_t cost = 0;
	int r = 0;

	for (uint64_t piece = first; piece <= last && b.n < FETCH_PIECES; piece++)
		fetch_begin(f, piece, &b);
	for (size_t i = 0; i < b.n; i++) {
		if (!b.block[i])
			r = fail(-ENOMEM, "cannot allocate %zu bytes", b.req[i].n);
		cost += b.req[i].n;
	}
	if (r >= 0 && b.n) {
		cost = budget_take_most(f->z->env->budget, cost);
		r = io_run_exact(f->z->env->io, b.req, b.n);
		budget_give(f->z->env->budget, cost);
	}
	for (size_t i = 0; i < b.n; i++) {
		int filled = r < 0 ? r : chunk_fill_entry(f->z, b.e[i], b.block[i], b.req[i].n);

		if (filled < 0) {
			block_free(b.block[i], b.req[i].n);
			cache_fail(cache, b.e[i], filled);
		}
		(is_guess && filled >= 0 ? cache_put_ahead : cache_put)(cache, b.e[i]);
	}
	/* A reader meets the error again, and reports it. */
	err_clear();
}

bool fetch_find(const struct fetch *f, uint64_t piece, struct cache_entry **ret)
{
	struct cache_key key = fetch_key(f->z, f->number, f->kind, piece);
	struct cache *cache = f->z->env->cache;
	struct cache_entry *e;

	if (!cache_peek(cache, &key, CACHE_READY_OR_BUSY, &e))
		return false;
	if (cache_wait(cache, e) < 0) {
		cache_put(cache, e);
		err_clear();
		return false;
	}
	*ret = e;
	return true;
}
