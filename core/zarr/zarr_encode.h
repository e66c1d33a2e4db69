/* SPDX-License-Identifier: Apache-2.0 */
/*
 * zarr_encode.h - how an array's C-order bytes become chunk objects.
 */
#ifndef PYTREEFS_ZARR_ENCODE_H
#define PYTREEFS_ZARR_ENCODE_H

#include "core/zarr/zarr_write.h"

/*
 * Bands: the array's bytes are cut along one axis, so that each piece holds whole chunks. Axes
 * before it have chunks of one position (or are of one position themselves), so a band is a run of
 * the C-order stream.
 */
struct encode_plan {
	unsigned axis;       /* that is cut; rank 0: none */
	uint64_t rows;       /* chunk extent on it */
	uint64_t row_bytes;  /* bytes of one position on it */
	uint64_t band_bytes; /* rows * row_bytes, at most the array */
	uint64_t chunk_cost; /* memory to encode one chunk, beside the band */
	bool omit_fill;      /* chunks of nothing but the fill value are not stored */
	bool band_is_chunk;  /* a full band is one chunk, in its own byte order */
};

/* -EOPNOTSUPP for layouts that we do not write: transposed, big-endian, several inner chunks. */
int encode_plan(const struct zarr *z, struct encode_plan *ret);
/* Bytes of the band that begins at byte `at` of the stream: fewer at the end of the axis that is
 * cut. */
uint64_t encode_band_len(const struct zarr *z, const struct encode_plan *plan, uint64_t at);
/* Encode the chunks of the band that begins at byte `at` of the stream, and put them. */
int encode_band(struct write_env *we, struct kv *kv, const struct zarr *z,
		const struct encode_plan *plan, uint64_t at, const uint8_t *bytes);
/* One chunk object from its decoded bytes, appended. */
int encode_chunk(const struct zarr *z, const uint8_t *bytes, struct buf *ret);
/* An object whose innermost chunk is `stored`, already encoded: v3 adds the index of its shard. */
int encode_wrap(const struct zarr *z, uint64_t stored_len, struct buf *ret_tail);

#endif
