/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kv_table.h - checksums of the values of a directory store, in a table beside them.
 *
 * A file with a value has no room for a trailer (kv_sum.h): TensorStore refuses a raw chunk that is
 * longer than its elements. So the directory of an item that we write without a database has a
 * directory of tables, one for each rank that wrote values; Orbax ignores it. All integers are
 * little-endian:
 *
 *  offset  bytes
 *       0      8  KV_TABLE_MAGIC
 *       8      8  n, the number of values
 *      16   12 n  for each value, in ascending order: 64-bit hash of its key, CRC-32C
 *               4  CRC-32C of everything before
 *
 * Without a table, or an entry in one, a value is read without a check. A damaged table is an error
 * for every value, since its entries are unknown; to read without checks, remove the table.
 */
#ifndef PYTREEFS_KV_TABLE_H
#define PYTREEFS_KV_TABLE_H

#include "core/kv/kv.h"

#define KV_TABLE_DIR ".crc32c"
#define KV_TABLE_MAGIC 0x316c624163726370ULL /* "pcrcAbl1" */

struct kv_table_entry {
	uint64_t hash;
	uint32_t crc;
};

struct kv_table {
	struct kv_table_entry *entry; /* sorted by hash after kv_table_load() or kv_table_pack() */
	size_t n, cap;
};

/* Add the checksum of a value that is written; key is spelled as readers will spell it. */
int kv_table_add(struct kv_table *t, struct span key, uint32_t crc);
/*
 * Append the bytes of a table file and return 1; or return 0 when t has no values, or more than
 * LIMIT_SUM_ENTRIES, which then have no checksums. -EINVAL: two keys have the same hash, or one key
 * has two checksums.
 */
int kv_table_pack(struct kv_table *t, struct buf *ret);
/*
 * Add the entries of a table file to t. -EBADMSG: the file is damaged. -EFBIG: t would have more
 * than LIMIT_SUM_ENTRIES.
 */
int kv_table_parse(struct span bytes, struct kv_table *t);
/*
 * Read all tables of an item's directory. Returns 1; or 0 when it has none, or too many entries to
 * keep in memory.
 */
int kv_table_load(struct io_dir *item, struct kv_table *ret);
bool kv_table_find(const struct kv_table *t, struct span key, uint32_t *ret);
/* Accepts NULL. */
void kv_table_release(struct kv_table *t);

#define auto_kv_table __attribute__((cleanup(kv_table_release))) struct kv_table

#endif
