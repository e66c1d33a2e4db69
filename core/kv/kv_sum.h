/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kv_sum.h - the checksum that follows a value in a file of ours.
 *
 * A value of an OCDBT database is a range of a data file, and no reader looks at what lies between
 * two of them: TensorStore and Orbax read exactly the range that a node refers to. So each value
 * that we write is followed by a trailer with its CRC-32C. It needs no file, no key and no second
 * sync, stays right when databases are merged by reference, and goes along when the file is copied.
 *
 *	offset  bytes
 *	     0      8  KV_SUM_MAGIC, little-endian as the rest
 *	     8      4  CRC-32C of the value
 *	    12      4  CRC-32C of the twelve bytes before
 *
 * What follows a value of another writer is not a trailer, but for one chance in 2^57. A magic
 *number with one wrong bit is a damaged one: a single flip in it does not turn the check off.
 */
#ifndef PYTREEFS_KV_SUM_H
#define PYTREEFS_KV_SUM_H

#include "core/kv/kv.h"

#define KV_SUM_BYTES 16
#define KV_SUM_MAGIC 0x9d63726333326370ULL /* "pc23crc" and a byte that no text has */

void kv_sum_pack(uint32_t crc, uint8_t ret[KV_SUM_BYTES]);
/* 1: a trailer, *ret is the value's CRC-32C; 0: it is not a trailer; -EBADMSG: a damaged one. */
int kv_sum_parse(const uint8_t p[KV_SUM_BYTES], uint32_t *ret);

/*
 * Compare `value` with the trailer in `tail`; a tail that is shorter than a trailer is not one.
 * Returns as kv_sum_parse().
 */
int kv_sum_check(struct span value, struct span tail);
/* The same of a located value whose checksum may be in a table, too. */
int kv_loc_compare(const struct kv_loc *loc, struct span value, struct span tail);
/* The same of a located value, read piece by piece through room. A value in memory has none: 0. */
int kv_loc_check(const struct kv_loc *loc, void *room, size_t n_room);
/*
 * The same when its first `done` bytes, whose CRC-32C is crc, have been read already: the others,
 * at most KV_SUM_REST, and the trailer are read now.
 */
#define KV_SUM_REST 64
int kv_loc_check_end(const struct kv_loc *loc, uint64_t done, uint32_t crc);
/*
 * The same for who reads these bytes along with those before them: whether anything is compared,
 * how many bytes follow `done` for it, perhaps none, and the comparison.
 */
bool kv_loc_has_end(const struct kv_loc *loc, uint64_t done, size_t *ret);
int kv_loc_compare_end(const struct kv_loc *loc, uint64_t done, uint32_t crc, const uint8_t *end);
/* Whether it may have a checksum: what follows it is worth reading, or a table has it. */
static inline bool kv_loc_may_have_sum(const struct kv_loc *loc)
{
	return loc->where == KV_FILE && (loc->tail || loc->has_sum);
}
/* Whether it has one, without looking at the value. */
int kv_loc_has_sum(const struct kv_loc *loc);

#endif
