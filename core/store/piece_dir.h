/* SPDX-License-Identifier: Apache-2.0 */
/*
 * piece_dir.h - the directory of the cache on disk (cache_dir=): pieces of objects as files, shared
 * by all mounts and commands of a user that name it.
 *
 * A file is written under another name and renamed when it is whole, and never changed. Who reads
 * needs no lock, and who removes a file takes it from no reader. Nothing is synced: what a power
 * loss leaves of a file does not have its checksums, and is fetched again.
 *
 * Any thread may call. No function here fails a read: what goes wrong with the cache means that it
 * has less.
 */
#ifndef PYTREEFS_CORE_STORE_PIECE_DIR_H
#define PYTREEFS_CORE_STORE_PIECE_DIR_H

#include "core/io/io.h"
#include "core/store/piece.h"

struct piece_dir;

/*
 * Make the directory unless it exists, and check that no other user can write there (-EPERM).
 * limit: bytes that it may have; 0: any number.
 */
int piece_dir_open(struct io_engine *io, const char *path, uint64_t limit, struct piece_dir **ret);
/* Accepts NULL. */
void piece_dir_close(struct piece_dir *d);
/* mkdir() of it, for who gives up the right to do it later; 0 also when it exists. */
int piece_dir_make(const char *path);

/* The file of a piece of n bytes, or NULL: it does not exist. Its bytes are not checked. */
struct io_file *piece_dir_get(struct piece_dir *d, const struct piece_id *id, size_t n);
/* It was checked and read from: it stays longer than those that were not. */
void piece_dir_used(struct piece_dir *d, struct io_file *file);
/* It is not what it should be. */
void piece_dir_damaged(struct piece_dir *d, const struct piece_id *id);
/* Keep a piece; the oldest go when there are too many. */
void piece_dir_put(struct piece_dir *d, const struct piece_id *id, struct span data);

struct piece_dir_stats {
	uint64_t stored, evicted, damaged; /* pieces */
};
void piece_dir_stats(struct piece_dir *d, struct piece_dir_stats *ret);

#endif
