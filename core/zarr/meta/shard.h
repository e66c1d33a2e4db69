/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shard.h - the index of a shard.
 */
#ifndef PYTREEFS_SHARD_H
#define PYTREEFS_SHARD_H

#include "core/base/buf.h"
#include "core/zarr/meta/zarr_meta.h"

/*
 * Decode the index of a shard, of index_bytes, into 2 * entries numbers: offset and length of each
 * inner chunk. object_len is the length of the whole shard. -EUCLEAN: an entry exceeds the shard,
 * or has all ones in one number only; -EBADMSG: the checksum does not match. Missing chunks have
 * UINT64_MAX in both numbers. ret may be the memory of index itself.
 */
int shard_index_decode(const struct zarr_shard *s, struct span index, uint64_t object_len,
		       uint64_t *ret);
/* Append the encoded index of these entries. */
int shard_index_encode(const struct zarr_shard *s, const uint64_t *entries, struct buf *ret);

#endif
