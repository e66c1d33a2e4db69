/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stream.h - random access to chunks that are too large to hold in memory.
 *
 * Orbax writes one chunk per shard, so one compressed frame of gigabytes is an ordinary case. Such
 * a chunk is decoded as a stream into pieces of STREAM_PIECE_BYTES, which go into the cache. A
 * sequential reader decodes it once. A reader that jumps back to a piece that was evicted makes the
 * decoder start again; from then on, decoded pieces are also written to an unlinked spill file,
 * from which they are read later. Without a spill file (spill=off, or its limit is reached), each
 * jump back decodes from the start, which is slow but correct and needs bounded memory.
 *
 * One thread at a time drives the decoder of a stream; others wait for the piece that they need. A
 * job of the pool drives it ahead of a sequential reader.
 *
 * The history of all decoders together is bounded: a stream that needs a decoder takes the memory
 * of one that no thread drives.
 *
 * The limit of spill files is that of all temporary files of readers: files of computed or
 * assembled values count, too (streams_file()).
 */
#ifndef PYTREEFS_STREAM_H
#define PYTREEFS_STREAM_H

#include "core/zarr/chunk_source.h"
#include "core/zarr/guess.h"

#define STREAM_PIECE_BYTES ((size_t)1 << 20)

struct streams;
struct stream;

struct streams_opts {
	const char *spill_dir; /* NULL: no spill files */
	uint64_t spill_limit;
	uint64_t window_limit;  /* the most memory for the history of one decoder */
	uint64_t decoder_limit; /* the most for all decoders together; at least that of one */
};
/* Pool and cache may be set later, in the env that is passed to stream_get(). */
int streams_new(const struct streams_opts *opts, struct streams **ret);
/* No stream may be held and no job queued. Accepts NULL. */
void streams_free(struct streams *s);
/* Remove the streams of an owner that are not held. */
void streams_drop(struct streams *s, uint64_t owner);

struct streams_stats {
	uint64_t live, restarts, spill_bytes, spill_reads;
	uint64_t decoder_bytes, decoder_peak_bytes;
};
void streams_stats(struct streams *s, struct streams_stats *ret);

/*
 * Create an unlinked temporary file of `size` bytes, for the caller to write. It counts against
 * spill_limit until its last reference is dropped. Without a spill directory it is in /var/tmp,
 * since its bytes exist nowhere else. -ENOSPC, with the numbers, when the limit is reached and no
 * other file can be removed.
 */
int streams_file(struct streams *s, struct io_engine *io, uint64_t size, struct io_file **ret);

/*
 * An owner of such a file that can produce it again, and is asked to give it up when room is
 * needed.
 */
struct streams_user {
	/* the list, oldest first; `at` is NULL when it is not in the list */
	struct streams_user *next, **at;
	/*
	 * Return the file, giving it up, unless somebody is reading it; else NULL. `open`: even if
	 * somebody has it open. Called with the table's lock held: must neither wait nor drop
	 * references.
	 */
	struct io_file *(*give_up)(struct streams_user *u, bool open);
};
/* Append to the list of users, once. */
void streams_user_add(struct streams *s, struct streams_user *u);
void streams_user_remove(struct streams *s, struct streams_user *u);

/*
 * Get the stream of leaf chunk `number` of z. On success it takes src->loc, and releases it when
 * the stream exists already. The stream is held until stream_put().
 */
int stream_get(struct zarr *z, uint64_t number, struct chunk_source *src, struct stream **ret);
/* The same for a live stream, which needs no look-up; NULL when there is no such stream. */
struct stream *stream_find(struct zarr *z, uint64_t number);
void stream_put(struct stream *s);

/* Pin one piece. */
int stream_piece(struct stream *s, uint64_t piece, struct cache_entry **ret);
/*
 * Let a job of the pool decode up to and including `last`, for a reader that is at `first`, or with
 * a guess for a reader that may come.
 */
void stream_ahead(struct stream *s, uint64_t first, uint64_t last, struct zarr_guess *guess);
/* Whether the cache has all of these pieces, so that no decoder is needed. */
bool stream_has_pieces(const struct zarr *z, uint64_t number, uint64_t first, uint64_t last);

/* The cache key of a piece; for explain. */
struct cache_key stream_piece_key(const struct zarr *z, uint64_t number, uint64_t piece);

#endif
