/* SPDX-License-Identifier: Apache-2.0 */
/*
 * chunk.h - the innermost chunks of an array, opened for one operation.
 *
 * A chunk is in one of four states: not stored (its elements are the fill
 * value), whole in the cache, a range of a data file that holds the elements as
 * they are, or a stream of pieces (stream.h).
 */
#ifndef PYTREEFS_CHUNK_H
#define PYTREEFS_CHUNK_H

#include "core/kv/kv_sum.h"
#include "core/zarr/stream.h"
#include "core/zarr/zarr.h"

enum chunk_mode {
	CHUNK_CLOSED,
	CHUNK_FILL,
	CHUNK_WHOLE,
	CHUNK_RAW,
	CHUNK_STREAM,
	CHUNK_REMOTE, /* pieces come from another process */
};

struct chunk {
	uint64_t index[LIMIT_RANK]; /* place in the leaf grid; set by the caller */
	bool local;   /* whoever decodes it for all: it is decoded here; set by the caller */
	bool in_runs; /* the caller reads long runs: a raw range needs no cache */

	uint64_t number; /* C-order rank of index */
	enum chunk_mode mode;
	int remote_rank;         /* REMOTE */
	struct cache_entry *pin; /* WHOLE; STREAM, REMOTE: the piece that was read last */
	uint64_t pin_piece;
	struct kv_loc loc; /* RAW; while opening, all */
	uint64_t off, len; /* stored bytes inside the value */
	struct stream *stream;
};

/*
 * Open n chunks: look them up, read all that is missing in one batch, decode in parallel. Waits for
 * the read budget. On failure all are closed, and the note names the chunk and its place.
 */
int chunk_open(struct zarr *z, struct chunk *c, size_t n);
void chunk_close(struct zarr *z, struct chunk *c, size_t n);

/*
 * Whether the stored bytes are plausible for what they decode to: -EUCLEAN naming both sizes when
 * they are more than twice as many. To be asked before they are read whole, or copied.
 */
int chunk_check_size(const struct zarr *z, const struct chunk *c);

/* Bytes of the cache and the budget that opening one chunk takes at most. */
uint64_t chunk_cost(const struct zarr *z);

/* WHOLE: the elements. */
const uint8_t *chunk_bytes(const struct chunk *c);
/* Bytes [off, off + n) of the decoded chunk as segments, without copying. Not for FILL. */
int chunk_gather(struct zarr *z, struct chunk *c, uint64_t off, size_t n, struct segments *g);
/* The same, copied. Not for FILL. */
int chunk_copy(struct zarr *z, struct chunk *c, uint64_t off, size_t n, void *p);

/* Decode in the background what [off, off + n) of the chunk needs; guess NULL: somebody reads on. */
void chunk_prefetch(struct zarr *z, const uint64_t *index, uint64_t off, uint64_t n,
		    struct zarr_guess *guess);

/*
 * Where the chunk is: sets loc, off and len of c; loc.where KV_ABSENT when it is not stored.
 * Reads shard indices, through the cache.
 */
int chunk_locate(struct zarr *z, struct chunk *c, size_t n);
/*
 * Whether the value is read whole with the chunk, to compare it with the checksum that may follow
 * it: the chunk is all of it, but for the index of a shard that holds only one.
 */
static inline bool chunk_is_all(const struct chunk *c)
{
	return kv_loc_may_have_sum(&c->loc) && c->loc.len - c->len <= KV_SUM_REST;
}
/* Whether a checksum covers a located chunk: 1 or 0. has_nodes: one that is inline lies in a node,
 * which has one. */
int chunk_is_summed(struct zarr *z, const struct chunk *c, bool has_nodes);
/* "chunk 0/3 (value:d/1f..:4096:812)" for messages. */
void chunk_text(struct zarr *z, const struct chunk *c, struct buf *out);
/* The same as members of a JSON object. */
void chunk_json(struct zarr *z, const struct chunk *c, struct buf *out);

/* Large enough to be decoded in pieces. */
bool chunk_is_streamed(const struct zarr *z);
/* Opening only finds it: a stream, or a raw range that is read in long runs. */
bool chunk_is_direct(const struct zarr *z, const struct chunk *c);
/* Whether another process decodes it; c->remote_rank is set then. */
bool chunk_is_remote(const struct zarr *z, struct chunk *c);
/* Pin a piece of such a chunk, fetched when it is not in the cache; its key there; fetch those of a
 * range. */
int chunk_remote_piece(struct zarr *z, const struct chunk *c, uint64_t piece,
		       struct cache_entry **ret);
struct cache_key chunk_remote_key(const struct zarr *z, uint64_t number, uint64_t piece);
void chunk_remote_ahead(struct zarr *z, const struct chunk *c, uint64_t off, uint64_t n);
/* Fill a cache entry that this thread began with a block of n bytes, which is taken on success; its
 * bytes. */
int chunk_cache(struct zarr *z, struct cache_entry *e, uint8_t *p, size_t n);
const uint8_t *chunk_cached(const struct cache_entry *e);
/* Set number from index. */
void chunk_number(const struct zarr *z, struct chunk *c);
/* The cache's key of a chunk that is kept whole. */
struct cache_key chunk_whole_key(const struct zarr *z, uint64_t number);

#endif
