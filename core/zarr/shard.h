/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shard.h - where an inner chunk of a shard lies.
 */
#ifndef PYTREEFS_SHARD_H
#define PYTREEFS_SHARD_H

#include "core/base/buf.h"
#include "core/zarr/zarr_meta.h"

/*
 * Decode a shard's index (index_bytes long) into 2 * entries numbers, offset and length by turns.
 * object_len is the length of the whole shard: entries beyond it are -EUCLEAN, as is one with only
 * one word all ones; the checksum -EBADMSG. Missing chunks have both words UINT64_MAX. ret may be
 * the memory of index itself.
 */
int shard_index_decode(const struct zarr_shard *s, struct span index, uint64_t object_len,
		       uint64_t *ret);
/* And back: for writing. */
int shard_index_encode(const struct zarr_shard *s, const uint64_t *entries, struct buf *ret);

#endif
