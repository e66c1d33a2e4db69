/* SPDX-License-Identifier: Apache-2.0 */
/*
 * atomic_file.h - a file or directory that a command makes: it is written under a temporary name,
 * made durable, and renamed. Either all of it is visible under the final name, or what was there
 * before.
 *
 * The temporary name is ".NAME.pytreefs-PID", and its lock is held while it is written. A later
 * command that makes the same name removes what a killed process has left.
 */
#ifndef PYTREEFS_ATOMIC_FILE_H
#define PYTREEFS_ATOMIC_FILE_H

#include "core/io/io.h"

struct atomic_file {
	struct io_dir *dir;      /* the directory of both names */
	char *name, *temp_name;  /* in dir */
	char *temp;              /* the full path of temp_name */
	struct io_dir *temp_dir; /* for a directory, else NULL */
	struct io_file *file;    /* for a file, else NULL */
	int lock;                /* for a directory; -1: none */
	bool is_dir, force;
	bool is_made; /* this process created the temporary name */
};

/*
 * Begin a file or directory. All changes go through io. -EEXIST: it exists, and force is not set;
 * force replaces a file, or a directory made by an export.
 */
int atomic_file_begin(struct io_engine *io, const char *path, bool is_dir, bool force,
		      struct atomic_file *ret);
/*
 * Open what another process has begun, by its temporary name, to write a part of it. Must be
 * released, and not committed.
 */
int atomic_file_join(struct io_engine *io, const char *temp, bool is_dir, struct atomic_file *ret);
/* Make durable what this process has written. */
int atomic_file_sync(struct atomic_file *n);
/* Make everything durable, and rename it to its final name. */
int atomic_file_commit(struct atomic_file *n);
/* Remove it, unless it was committed. Accepts a zeroed struct. */
void atomic_file_release(struct atomic_file *n);
#define auto_atomic_file __attribute__((cleanup(atomic_file_release))) struct atomic_file

/* Whether a name is such a temporary name, of any process. */
bool atomic_file_is_temp(const char *name);

#endif
