/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kv_table.h - checksums of the values of a directory store, in a table beside them.
 *
 * A file with a value has no room for a trailer (kv_sum.h): TensorStore refuses a raw chunk that is
 *longer than its elements. So the directory of an item that we write without a database has a
 *directory of tables, one for each rank that wrote values, which no Orbax looks at. All integers
 *are little-endian:
 *
 *	offset  bytes
 *	     0      8  KV_TABLE_MAGIC
 *	     8      8  n, the number of values
 *	    16   12 n  of each value, in ascending order: 64-bit hash of its key, CRC-32C of its
 *bytes 4     CRC-32C of all before
 *
 * No table, and a value that is in none, are read as if nobody had thought of it. A damaged table
 *is an error for every value, since nobody knows which were in it; whoever wants to read without it
 *removes it.
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
	struct kv_table_entry *entry; /* sorted by hash once it is loaded or packed */
	size_t n, cap;
};

/* A value that is written; its key as readers will spell it. */
int kv_table_add(struct kv_table *t, struct span key, uint32_t crc);
/*
 * The bytes of a table file, appended. 0: there are none, for a table has no values, or more than
 * LIMIT_SUM_ENTRIES: these are not covered. 1: there are. -EINVAL: two keys have one hash, or one
 * key two values.
 */
int kv_table_pack(struct kv_table *t, struct buf *ret);
/* What the bytes of a table file say, appended to t. -EBADMSG: damaged. -EFBIG: above
 * LIMIT_SUM_ENTRIES with what t has. */
int kv_table_parse(struct span bytes, struct kv_table *t);
/* All tables of an item's directory: 1; 0 when there are none, or too many values for a reader to
 * remember. */
int kv_table_load(struct io_dir *item, struct kv_table *ret);
bool kv_table_find(const struct kv_table *t, struct span key, uint32_t *ret);
/* Accepts NULL. */
void kv_table_release(struct kv_table *t);

#define auto_kv_table __attribute__((cleanup(kv_table_release))) struct kv_table

#endif
