/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fetch.h - stored bytes of chunks in a store (io_store.h), fetched ahead of a reader: pieces of
 * STREAM_PIECE_BYTES in the cache.
 *
 * In a store each read takes a round trip, and only many concurrent requests use the bandwidth.
 * Jobs of the pool fetch pieces, one job for each request. A reader takes pieces that are there or
 * in flight, and reads everything else by itself. So a failure, or a cache that is too small, costs
 * only time.
 */
#ifndef PYTREEFS_ZARR_FETCH_H
#define PYTREEFS_ZARR_FETCH_H

#include "core/zarr/guess.h"
#include "core/zarr/zarr.h"

#define FETCH_PIECES 2 /* of one request */
#define FETCH_BYTES (FETCH_PIECES * STREAM_PIECE_BYTES)

/* Which bytes: two kinds for each chunk, with pieces of their own in the cache. */
enum fetch_kind {
	FETCH_RAW,    /* of a raw chunk, for answers */
	FETCH_STORED, /* of an encoded chunk, for its decoder */
};

struct fetch {
	struct zarr *z; /* borrowed, as the file */
	struct io_file *file;
	uint64_t off, len; /* in the file */
	uint64_t number;   /* of the chunk */
	enum fetch_kind kind;
};

struct cache_key fetch_key(const struct zarr *z, uint64_t number, enum fetch_kind kind,
			   uint64_t piece);
/* Read pieces first to last, at most FETCH_PIECES, that are not there, into the cache. */
void fetch_pieces(const struct fetch *f, uint64_t first, uint64_t last, bool is_guess);
/*
 * True, with the piece pinned in *ret, if it is there or was in flight. chunk_cached() gives the
 * bytes of such an entry.
 */
bool fetch_find(const struct fetch *f, uint64_t piece, struct cache_entry **ret);

#endif
