/* SPDX-License-Identifier: Apache-2.0 */
/*
 * zarr_encode.h - encode an array's bytes in C order to chunk objects.
 */
#ifndef PYTREEFS_ZARR_ENCODE_H
#define PYTREEFS_ZARR_ENCODE_H

#include "core/dtype/strided.h"
#include "core/zarr/write/zarr_write.h"

/*
 * Bands: the array's bytes are cut along one axis, so that each band contains whole chunks. Chunks
 * have one position on all axes before it (or the axis has one position), so a band is a run of the
 * C-order stream, and a box.
 */
struct encode_plan {
	unsigned axis;       /* the axis that is cut; rank 0: none */
	uint64_t rows;       /* extent of chunks on this axis */
	uint64_t row_bytes;  /* bytes of one position on this axis */
	uint64_t band_bytes; /* rows * row_bytes, at most the size of the array */
	uint64_t chunk_cost; /* memory to encode one chunk, besides the band */
	unsigned tasks;      /* the most chunks of a band that are encoded at the same time */
	bool omit_fill;      /* chunks that consist of the fill value are not stored */
	bool band_is_chunk;  /* a full band is one chunk, in the same order of bytes */
};

/*
 * budget: bytes for bands and the chunks that are encoded. -EOPNOTSUPP for layouts that we do not
 * write: transposed, big-endian, several inner chunks.
 */
int encode_plan(const struct zarr *z, uint64_t budget, struct encode_plan *ret);
/* The memory of a band, and of its chunks while they are encoded. */
uint64_t encode_band_cost(const struct encode_plan *plan);
/*
 * The size of the band that begins at byte `at` of the stream; smaller at the end of the axis that
 * is cut.
 */
uint64_t encode_band_len(const struct zarr *z, const struct encode_plan *plan, uint64_t at);
/*
 * Encode the chunks of the band that begins at byte `at` of the stream, several at a time, and put
 * them into kv.
 */
int encode_band(struct write_env *we, struct kv *kv, const struct zarr *z,
		const struct encode_plan *plan, uint64_t at, const uint8_t *bytes);
/*
 * Append one chunk object, encoded from its decoded bytes; ends at an error of write_env_check().
 */
int encode_chunk(const struct write_env *we, const struct zarr *z, const uint8_t *bytes,
		 struct buf *ret);
/* -EINVAL when n bytes of elements have one that readers refuse: a bool that is neither 0 nor 1. */
int encode_check(const struct zarr *z, const uint8_t *p, size_t n);

/* One chunk of a box in memory. */
struct box_chunk {
	/* Set by the caller. */
	const struct zarr *z;
	enum dtype have; /* of the elements in memory */
	const struct zarr_box *box;

	uint64_t chunk[LIMIT_RANK];
	struct strided elements; /* from memory to the chunk */
	const uint8_t *p;        /* the first of them */
	uint64_t bytes;          /* of them in memory */
	bool is_full;            /* it does not extend beyond the array */
	bool is_there;           /* the elements are the decoded chunk where they are */
};
/* Determine the elements of a chunk, of which the number in its box is given. */
void box_chunk_place(struct box_chunk *c, uint64_t number);
/* Check its elements, encode it, and put it, unless it consists of the fill value (omit_fill). */
int box_chunk_put(struct write_env *we, struct kv *kv, const struct box_chunk *c, bool omit_fill);

/* Whether an object is the chunk itself: there are no codecs. */
bool encode_is_plain(const struct zarr *z);
/* Fill the memory of a decoded chunk with the fill value. */
void encode_fill(const struct zarr *z, uint8_t *p);
/*
 * Encode and put a chunk piece by piece, if its codecs can (codec_writes_pieces()): no more than a
 * piece of it is in memory. source gets runs of elements on the last axis, each in the chunk.
 */
int encode_long_chunk(const struct write_env *we, struct kv *kv, const struct zarr *z,
		      const uint64_t *chunk, zarr_source_fn *source, void *arg);
/*
 * Append what follows an encoded innermost chunk of stored_len bytes in its object: in v3 the index
 * of its shard.
 */
int encode_wrap(const struct zarr *z, uint64_t stored_len, struct buf *ret_tail);

#endif
