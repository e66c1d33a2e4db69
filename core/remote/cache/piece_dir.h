/* SPDX-License-Identifier: Apache-2.0 */
/*
 * piece_dir.h - the directory of the cache on disk (cache_dir=): pieces of objects as files, shared
 * by all mounts and commands of a user that name it.
 *
 * A file is written under another name, renamed when it is complete, and never changed. So readers
 * need no lock, and a removed file stays readable where it is open. Nothing is synced: a file that
 * a power loss damaged fails its checksums, and is fetched again.
 *
 * Any thread may call these functions. None makes a read fail: after an error the cache has less.
 */
#ifndef PYTREEFS_CORE_PIECE_PIECE_DIR_H
#define PYTREEFS_CORE_PIECE_PIECE_DIR_H

#include "core/io/io.h"
#include "core/remote/cache/piece.h"

struct piece_dir;

/*
 * Make the directory unless it exists, and check that no other user can write there (-EPERM).
 * limit: the largest number of bytes, or 0 for any number.
 */
int piece_dir_open(struct io_engine *io, const char *path, uint64_t limit, struct piece_dir **ret);
/* Accepts NULL. */
void piece_dir_close(struct piece_dir *d);
DEFINE_AUTO(piece_dir, struct piece_dir, piece_dir_close);
/* mkdir() of the directory, before the process gives up the right to do so; 0 if it exists already.
 */
int piece_dir_make(const char *path);

/* Open the file of a piece of n bytes; NULL if it does not exist. The bytes are not checked. */
struct io_file *piece_dir_get(struct piece_dir *d, const struct piece_id *id, size_t n);
/* Note a use of a file that was read and checked: unused files are evicted first. */
void piece_dir_used(struct piece_dir *d, struct io_file *file);
/* Remove a file that failed its checks. */
void piece_dir_damaged(struct piece_dir *d, const struct piece_id *id);
/* Store a piece; the longest unused ones are evicted if there are too many. */
void piece_dir_put(struct piece_dir *d, const struct piece_id *id, struct span data);

struct piece_dir_stats {
	uint64_t stored, evicted, damaged; /* pieces */
};
void piece_dir_stats(struct piece_dir *d, struct piece_dir_stats *ret);

#endif
