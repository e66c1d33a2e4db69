/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kv_sum.h - the checksum that follows a value in a data file of ours.
 *
 * A value of an OCDBT database is a range of a data file, and no reader looks at the bytes between
 * two values: TensorStore and Orbax read exactly the range that a node refers to. So each value
 * that we write is followed by a trailer with its CRC-32C. The trailer needs no file, no key and no
 * second sync; it stays valid when databases are merged by reference, and is copied with the file.
 *
 *  offset  bytes
 *       0      8  KV_SUM_MAGIC; all integers are little-endian
 *       8      4  CRC-32C of the value
 *      12      4  CRC-32C of the twelve bytes before
 *
 * The bytes after a value of another writer are not a trailer, except with a chance of 2^-57. A
 * magic number with one wrong bit counts as a damaged trailer, so a single bit flip in it does not
 * disable the check.
 */
#ifndef PYTREEFS_KV_SUM_H
#define PYTREEFS_KV_SUM_H

#include "core/kv/kv.h"

#define KV_SUM_BYTES 16
#define KV_SUM_MAGIC 0x9d63726333326370ULL /* "pc23crc" and a byte that no text has */

void kv_sum_pack(uint32_t crc, uint8_t ret[KV_SUM_BYTES]);
/* 1: a trailer, *ret is the CRC-32C of the value; 0: not a trailer; -EBADMSG: a damaged trailer. */
int kv_sum_parse(const uint8_t p[KV_SUM_BYTES], uint32_t *ret);

/*
 * Compare value with the trailer in tail; a tail that is too short is not a trailer. Returns as
 * kv_sum_parse() does.
 */
int kv_sum_check(struct span value, struct span tail);
/* The same for a located value, whose checksum may be in a table instead. */
int kv_loc_compare(const struct kv_loc *loc, struct span value, struct span tail);
/*
 * The same for a located value that is read piece by piece into room. Returns 0 for a value in
 * memory, which has no checksum.
 */
int kv_loc_check(const struct kv_loc *loc, void *room, size_t n_room);
/*
 * The same for a value whose first `done` bytes, with the CRC-32C crc, have been read already: this
 * reads the rest, at most KV_SUM_REST bytes, and the trailer.
 */
#define KV_SUM_REST 64
int kv_loc_check_end(const struct kv_loc *loc, uint64_t done, uint32_t crc);
/*
 * kv_loc_check_end() for a caller that reads these bytes together with those before them.
 * kv_loc_has_end() returns whether there is something to compare, and sets ret to the number of
 * bytes after `done` that are needed for it, possibly 0. kv_loc_compare_end() compares.
 */
bool kv_loc_has_end(const struct kv_loc *loc, uint64_t done, size_t *ret);
int kv_loc_compare_end(const struct kv_loc *loc, uint64_t done, uint32_t crc, const uint8_t *end);
/*
 * Whether the value may have a checksum: in a table, or in the bytes after it, which are then worth
 * reading.
 */
static inline bool kv_loc_may_have_sum(const struct kv_loc *loc)
{
	return loc->where == KV_FILE && (loc->tail || loc->has_sum);
}
/* Whether the value has a checksum, without reading the value. Returns as kv_sum_parse() does. */
int kv_loc_has_sum(const struct kv_loc *loc);

#endif
