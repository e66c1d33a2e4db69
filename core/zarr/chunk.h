/* SPDX-License-Identifier: Apache-2.0 */
/*
 * chunk.h - the innermost chunks of an array, opened for one operation.
 *
 * A chunk is either not stored (its elements are the fill value), whole in the
 * cache, a range of a data file that has the elements as they are shown, a
 * stream of pieces (stream.h), or decoded by another process.
 */
#ifndef PYTREEFS_CHUNK_H
#define PYTREEFS_CHUNK_H

#include "core/dtype/strided.h"
#include "core/zarr/chunk_source.h"
#include "core/zarr/stream.h"
#include "core/zarr/zarr.h"

enum chunk_mode {
	CHUNK_CLOSED,
	CHUNK_FILL,
	CHUNK_WHOLE,
	CHUNK_RAW,
	CHUNK_STREAM,
	CHUNK_REMOTE, /* another process sends the pieces */
};

struct chunk {
	uint64_t index[LIMIT_RANK]; /* place in the grid of innermost chunks; set by the caller */
	bool local;   /* decode it here even if another process could; set by the caller */
	bool in_runs; /* the caller reads long runs, so a raw range needs no cache */

	uint64_t number; /* rank of index in C order */
	enum chunk_mode mode;
	int remote_rank;         /* REMOTE */
	struct cache_entry *pin; /* WHOLE; STREAM, REMOTE, RAW: a piece, or NULL */
	uint64_t pin_piece;
	uint64_t copied_end;     /* RAW: end of the last run that was copied; 0: none was */
	bool in_ranges;          /* RAW: pieces cannot be fetched */
	struct chunk_source src; /* RAW; all modes while opening */
	struct stream *stream;
};

/*
 * Open n chunks: look them up, read everything that is missing in one batch, decode in parallel.
 * Waits for the read budget. On failure all are closed, and the note names the chunk and its place.
 */
int chunk_open(struct zarr *z, struct chunk *c, size_t n);
void chunk_close(struct zarr *z, struct chunk *c, size_t n);

/* The most bytes of the cache and the budget that opening one chunk takes. */
uint64_t chunk_cost(const struct zarr *z);

/*
 * Append bytes [off, off + n) of the decoded chunk as segments, without copying them. Not for FILL.
 */
int chunk_gather(struct zarr *z, struct chunk *c, uint64_t off, size_t n, struct segments *g);
/* Copy elements, of which the first is at byte `at` of the decoded chunk. Not for FILL. */
int chunk_copy(struct zarr *z, struct chunk *c, const struct strided *s, uint64_t at, uint8_t *to);

/*
 * Decode in the background what a reader of [off, off + n) of the chunk needs. guess is NULL for a
 * reader that is reading sequentially.
 */
void chunk_prefetch(struct zarr *z, const uint64_t *index, uint64_t off, uint64_t n,
		    struct zarr_guess *guess);

/* Append the key of the stored object that has the chunk with the index of c. */
int chunk_key(const struct zarr *z, const struct chunk *c, struct buf *ret);
/*
 * Locate the chunk: sets src of c. src.loc.where is KV_ABSENT when it is not stored. Reads
 * shard indices, through the cache.
 */
int chunk_locate(struct zarr *z, struct chunk *c, size_t n);
/* Count a chunk that is not stored: an error that names it, where the checkpoint says that all are.
 */
int chunk_missing(struct zarr *z, const struct chunk *c);
/*
 * Whether a checksum covers a located chunk: returns 1 or 0. has_nodes: an inline value is in a
 * node, which has a checksum.
 */
int chunk_is_summed(struct zarr *z, const struct chunk *c, bool has_nodes);
/*
 * The same for a chunk whose value has no checksum of its own, from its first CODEC_HEAD_BYTES, or
 * all of it.
 */
bool chunk_head_is_summed(const struct zarr *z, const struct chunk *c, struct span head,
			  bool has_nodes);
/* Append "chunk 0/3 (value:d/1f..:4096:812)", for messages. */
void chunk_text(struct zarr *z, const struct chunk *c, struct buf *out);
/* Prefix the note of code with that text. Returns code. */
int chunk_err(struct zarr *z, const struct chunk *c, int code);
/* Append the same as members of a JSON object. */
void chunk_json(struct zarr *z, const struct chunk *c, struct buf *out);

/* Whether chunks are so large that they are decoded in pieces. */
bool chunk_is_streamed(const struct zarr *z);
/*
 * Whether chunk_open() only locates the chunk: a stream, or a raw range that is read in long runs.
 */
bool chunk_is_direct(const struct zarr *z, const struct chunk *c);
/* Whether other processes may want chunks that this one has decoded. */
static inline bool chunk_is_shared(const struct zarr *z)
{
	return z->env->remote && z->address.p;
}
/* Whether another process decodes the chunk; c->remote_rank is then set. */
bool chunk_is_remote(const struct zarr *z, struct chunk *c);
/*
 * Pieces of such a chunk: pin one, fetching it when it is not in the cache; its key in the cache;
 * fetch the pieces of a range.
 */
int chunk_remote_piece(struct zarr *z, const struct chunk *c, uint64_t piece,
		       struct cache_entry **ret);
struct cache_key chunk_remote_key(const struct zarr *z, uint64_t number, uint64_t piece);
void chunk_remote_ahead(struct zarr *z, const struct chunk *c, uint64_t off, uint64_t n);
/* Whether pieces of raw chunks are fetched ahead of sequential readers (fetch.h): in a store. */
bool chunk_raw_is_fetched(const struct zarr *z);
/* Fetch the first FETCH_PIECES pieces of a range that are not there. c is open, in mode RAW. */
void chunk_raw_ahead(struct zarr *z, const struct chunk *c, uint64_t off, uint64_t n,
		     bool is_guess);
/* chunk_gather() and chunk_copy() of a chunk in mode RAW. */
int chunk_raw_gather(struct zarr *z, struct chunk *c, uint64_t off, size_t n, struct segments *g);
int chunk_raw_copy(struct zarr *z, struct chunk *c, const struct strided *s, uint64_t at,
		   uint8_t *to);
/*
 * Fill a cache entry that this thread began with a block of n bytes, which it takes on success; the
 * bytes of such an entry.
 */
int chunk_fill_entry(struct zarr *z, struct cache_entry *e, uint8_t *p, size_t n);
const uint8_t *chunk_cached(const struct cache_entry *e);
/* Set number from index. */
void chunk_number(const struct zarr *z, struct chunk *c);
/* The cache key of a chunk that is cached whole. */
struct cache_key chunk_whole_key(const struct zarr *z, uint64_t number);

#endif
