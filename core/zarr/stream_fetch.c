/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stream_fetch.c - the input of decoders whose chunk is in a store, fetched ahead (fetch.h).
 *
 * A decoder takes its input in order. If each part were read only when it is needed, every part
 * would cost a round trip. Jobs of the pool therefore fetch stored bytes ahead; their number is
 * estimated from the stored and the decoded size of the chunk.
 */
#include "core/zarr/stream_impl.h"

#include "core/zarr/chunk.h"
#include "core/zarr/fetch.h"

#define MARGIN ((uint64_t)1 * MiB) /* stored bytes beyond the estimate */

bool stream_is_fetched(const struct stream *s)
{
	return s->z->env->in_store && s->src.loc.where == KV_FILE && s->src.loc.file->key &&
	       s->z->leaf->codecs.n;
}

static struct fetch stream_fetch_of(const struct stream *s)
{
	size_t end = 0;

	chunk_source_has_end(&s->src, &end);
	return (struct fetch){ .z = s->z,
			       .file = s->src.loc.file,
			       .off = s->src.loc.off + s->src.off,
			       .len = s->src.len + end,
			       .number = s->number,
			       .kind = FETCH_STORED };
}

/* ---- jobs ---- */

static void fetch_work(struct stream *s, uint64_t first, uint64_t last, bool is_guess)
{
	uint64_t at = atomic_load(&s->input_at) / STREAM_PIECE_BYTES;
	struct fetch f = stream_fetch_of(s);

	/* The decoder may have been faster, and have read it. */
	if (at <= last)
		fetch_pieces(&f, MAX(first, at), last, is_guess);
}

uint64_t stream_fetch_claim(struct stream *s, uint64_t last, uint64_t *ret_from)
{
	uint64_t want = last + 1 >= s->pieces ? UINT64_MAX : (last + 1) * STREAM_PIECE_BYTES;
	struct fetch f = stream_fetch_of(s);
	uint64_t to = f.len;

	if (want != UINT64_MAX) {
		double stored = (double)want / (double)s->bytes * (double)s->src.len;

		to = MIN(f.len,
			 ((uint64_t)stored + MARGIN + FETCH_BYTES - 1) / FETCH_BYTES * FETCH_BYTES);
	}
	*ret_from = MAX(s->fetch_to, atomic_load(&s->input_at) / FETCH_BYTES * FETCH_BYTES);
	s->fetch_to = MAX(s->fetch_to, to);
	return to;
}

void stream_fetch_post(struct stream *s, uint64_t from, uint64_t to, struct zarr_guess *guess)
{
	for (uint64_t at = from; at < to; at += FETCH_BYTES)
		stream_post(s, at / STREAM_PIECE_BYTES,
			    (MIN(at + FETCH_BYTES, to) - 1) / STREAM_PIECE_BYTES, guess,
			    fetch_work);
}

/* ---- the decoder ---- */

size_t stream_fetch_take(struct stream *s, uint64_t at, uint8_t *p, size_t n)
{
	struct fetch f = stream_fetch_of(s);
	struct cache *cache = s->z->env->cache;
	size_t got = 0;

	while (got < n) {
		uint64_t piece = (at + got) / STREAM_PIECE_BYTES;
		size_t skip = (size_t)((at + got) % STREAM_PIECE_BYTES);
		size_t part =
			(size_t)MIN(MIN(n - got, STREAM_PIECE_BYTES - skip), f.len - at - got);
		struct cache_entry *e;

		if (!fetch_find(&f, piece, &e))
			break;
		memcpy(p + got, chunk_cached(e) + skip, part);
		cache_put(cache, e);
		got += part;
		if (skip + part == STREAM_PIECE_BYTES || at + got == f.len) {
			struct cache_key key = fetch_key(s->z, s->number, FETCH_STORED, piece);

			cache_drop_behind(cache, &key, 1);
		}
	}
	return got;
}
