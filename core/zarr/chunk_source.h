/* SPDX-License-Identifier: Apache-2.0 */
/*
 * chunk_source.h - the stored bytes of one chunk, and how they become elements: the one way in
 * which a chunk is read.
 *
 * A source is a range of a stored value: a whole object, or a part of a shard. chunk_locate() finds
 * it. There are two ways to its elements, and both compare the checksum of the value, where it has
 * one:
 *
 *  - Whole: read chunk_source_range(), in one batch with other chunks, then chunk_source_decode().
 *    For chunks of moderate size.
 *  - In pieces: a chunk_input reads and sums the stored bytes, and chunk_source_decode_pieces()
 *    decodes them in bounded memory; or the caller passes chunk_input_pull() to a decoder that it
 *    owns. The checksum is compared with the last stored byte; a reader that stops before has not
 *    compared it.
 *
 * Elements are copied out of the decoded bytes by core/dtype/strided.h, of whole chunks at once and
 * of pieces window by window. Readers differ only in where a part goes: the cache (chunk.c,
 * stream.c), the caller's memory (read_many/), nowhere (`verify`), sums (tools/scan), or, without
 * decoding, another store (write/zarr_copy.c).
 *
 * Notes of failures do not name the chunk: only the caller knows its place in the grid
 * (chunk_text()).
 */
#ifndef PYTREEFS_CHUNK_SOURCE_H
#define PYTREEFS_CHUNK_SOURCE_H

#include "core/kv/kv_sum.h"
#include "core/zarr/zarr.h"

/* loc is released by the owner; zeroed, the chunk is not stored. */
struct chunk_source {
	struct kv_loc loc; /* of the value */
	uint64_t off, len; /* range of the chunk's stored bytes in it */
};

/*
 * Whether the whole value is read with the chunk, to compare its checksum: the chunk is all of the
 * value, except for the index of a shard that has only this chunk.
 */
static inline bool chunk_source_is_all(const struct chunk_source *src)
{
	return kv_loc_may_have_sum(&src->loc) && src->loc.len - src->len <= KV_SUM_REST;
}

/*
 * Whether the chunk's last stored byte completes a value that has a checksum; sets ret to the
 * number of bytes after it that are needed to compare.
 */
bool chunk_source_has_end(const struct chunk_source *src, size_t *ret);
/*
 * Check that the stored size is plausible: -EUCLEAN, naming both sizes, when it is more than about
 * twice the decoded size, or, of elements without a codec, another one. Call this before the chunk
 * is read as a whole or copied, and before a part of elements without a codec is read.
 */
int chunk_source_check_size(const struct zarr *z, const struct chunk_source *src);

/* ---- whole ---- */

/*
 * The bytes of the file to read for chunk_source_decode(): the chunk, or the whole value with its
 * checksum. 0 when they are in memory.
 */
size_t chunk_source_range(const struct chunk_source *src, uint64_t *ret_off);
/*
 * Compare the checksum of these bytes; sets ret to the stored bytes of the chunk. Returns 1 when a
 * checksum covers them, 0 when there is none, -EBADMSG.
 */
int chunk_source_compare(const struct chunk_source *src, const uint8_t *in, struct span *ret);
/* The same, and decode all of the chunk to out. */
int chunk_source_decode(const struct zarr *z, const struct chunk_source *src, const uint8_t *in,
			uint8_t *out);

/* ---- in pieces ---- */

/*
 * Reads stored bytes one piece after the other. The members up to is_result, or src and stored,
 * are set by the caller; the rest is zeroed.
 */
struct chunk_input {
	const struct chunk_source *src; /* borrowed */
	/*
	 * Two pieces of `size` bytes: the next one is read while the caller works on the current
	 * one. is_single: one piece, read when it is needed; for inputs that several threads use in
	 * turn. is_result: room for the whole chunk, whose bytes stay there.
	 */
	uint8_t *buf;
	size_t size;
	bool is_single, is_result;

	struct span stored; /* the stored bytes, if they are in memory and were compared */
	struct io_req req;
	bool asked;    /* req is in flight */
	uint64_t used; /* stored bytes that were passed on */
	uint32_t crc;  /* of those bytes */
};
/* A codec_pull_fn. */
int chunk_input_pull(void *arg, struct span *ret);
/*
 * Read the next n bytes at most into a single piece, of which it has the first `got` already, and
 * pass them on.
 */
int chunk_input_next(struct chunk_input *in, size_t n, size_t got, struct span *ret);

/* Where decoded pieces go. */
struct chunk_pieces {
	/* the memory of the whole decoded chunk; or NULL, and two pieces of `size` bytes */
	uint8_t *whole, *scratch;
	size_t size;     /* of a piece: a multiple of 16 bytes */
	uint64_t window; /* see codec_stream_open(): -EFBIG beyond it */
	uint64_t need;   /* the number of decoded bytes after which to stop */
	/*
	 * Called with each piece, whose first byte is byte `at` of the decoded chunk; an error ends
	 * it. May be NULL.
	 */
	int (*sink)(void *arg, uint64_t at, const uint8_t *p, size_t n);
	void *arg;
};
/* Decode a chunk, or its first part. Nothing is in flight afterwards. */
int chunk_source_decode_pieces(const struct zarr *z, struct chunk_input *in,
			       const struct chunk_pieces *to);

#endif
