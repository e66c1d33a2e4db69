/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stream.h - random access to chunks that are too large to hold.
 *
 * Orbax writes one chunk per shard, so one compressed frame of gigabytes is the
 * ordinary case. Such a chunk is decoded as a stream into pieces of PIECE_BYTES
 * that go into the cache. A sequential reader pays for the decode once. A reader
 * that jumps back to a piece that is gone makes the decoder start again, and this
 * time what is decoded is also written to an unlinked spill file, from which
 * every later piece is read. Without a spill file (spill=off, or its limit
 * reached) each jump back decodes from the start: slow, bounded, correct.
 *
 * One thread at a time drives a stream's decoder; others wait for the piece that
 * they need. A job of the pool drives it ahead of a sequential reader.
 *
 * The history that all decoders hold is bounded together: a
 * stream that needs a decoder takes the memory of one that is not being driven.
 *
 * The limit of spill files is that of all temporary files of readers: values that
 * are computed or put together in one are counted, too (streams_file()).
 */
#ifndef PYTREEFS_STREAM_H
#define PYTREEFS_STREAM_H

#include "core/zarr/guess.h"
#include "core/zarr/zarr.h"

#define PIECE_BYTES ((size_t)1 << 20)

struct streams;
struct stream;

struct streams_opts {
	const char *spill_dir; /* NULL: no spill files */
	uint64_t spill_limit;
	uint64_t window_limit;  /* most memory that one decoder may take for its history */
	uint64_t decoder_limit; /* of all decoders together; at least that of one */
};
/* Pool and cache may be set later through the env that is given to stream_get(). */
int streams_new(const struct streams_opts *opts, struct streams **ret);
/* No stream may be held any more, no job be posted. Accepts NULL. */
void streams_free(struct streams *s);
/* Forget the streams of an owner that are not held. */
void streams_drop(struct streams *s, uint64_t owner);

struct streams_stats {
	uint64_t live, restarts, spill_bytes, spill_reads;
	uint64_t decoder_bytes, decoder_peak_bytes;
};
void streams_stats(struct streams *s, struct streams_stats *ret);

/*
 * An unlinked temporary file of `size` bytes, to be written by the caller: counted in spill_limit
 * until its last reference is gone. Without a spill directory it is in /var/tmp: its bytes are
 * nowhere else. -ENOSPC, with the numbers, when the limit is reached and no other file can go.
 */
int streams_file(struct streams *s, struct io_engine *io, uint64_t size, struct io_file **ret);

/* Who has such a file and can make it again: asked to give it up when room is needed. */
struct streams_user {
	struct streams_user *next, **at; /* in the table, oldest first; at NULL: not in it */
	/*
	 * Take the file out, when nobody is reading it; else NULL. `open`: even when somebody has
	 * it open. Called with the table's lock held: neither waits nor gives references back.
	 */
	struct io_file *(*give_up)(struct streams_user *u, bool open);
};
/* Last among the users, once. */
void streams_user_add(struct streams *s, struct streams_user *u);
void streams_user_remove(struct streams *s, struct streams_user *u);

/*
 * The stream of leaf chunk `number` of z, whose stored bytes are [off, off + len) of the value at
 * loc. loc is taken on success (and released here when the stream exists already). Held until
 * stream_put().
 */
int stream_get(struct zarr *z, uint64_t number, struct kv_loc *loc, uint64_t off, uint64_t len,
	       struct stream **ret);
/* The same without a place: NULL when there is no live stream, so that no look-up is needed. */
struct stream *stream_find(struct zarr *z, uint64_t number);
void stream_put(struct stream *s);

/* Pin one piece; ret_bytes is its length (the last may be short). */
int stream_piece(struct stream *s, uint64_t piece, struct cache_entry **ret, size_t *ret_bytes);
/*
 * Let a job of the pool decode up to and including `last`, for a reader that is at `first`; or,
 * with a guess, for one that may come.
 */
void stream_ahead(struct stream *s, uint64_t first, uint64_t last, struct zarr_guess *guess);
/* Whether the cache has all of those pieces: then they need no decoder. */
bool stream_has_pieces(const struct zarr *z, uint64_t number, uint64_t first, uint64_t last);

/* The cache's key of a piece; for explain. */
struct cache_key stream_piece_key(const struct zarr *z, uint64_t number, uint64_t piece);

#endif
