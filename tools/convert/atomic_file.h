/* SPDX-License-Identifier: Apache-2.0 */
/*
 * atomic_file.h - a file or directory that a command makes: written under a temporary name beside
 * its own, made durable, and renamed. There is all of it under its name, or what was there before.
 *
 * The temporary name is ".NAME.pytreefs-PID", and a lock on it says that somebody writes it. What a
 * killed process left is removed by the next one that makes the same.
 */
#ifndef PYTREEFS_ATOMIC_FILE_H
#define PYTREEFS_ATOMIC_FILE_H

#include "core/io/io.h"

struct atomic_file {
	struct io_dir *dir;      /* where its name is */
	char *name, *temp_name;  /* in dir */
	char *temp;              /* the whole path of temp_name */
	struct io_dir *temp_dir; /* of a directory, else NULL */
	struct io_file *file;    /* of a file, else NULL */
	int lock;                /* of a directory; -1: none */
	bool is_dir, force;
	bool is_joined; /* another process has begun it, and ends it */
	bool is_made;   /* what is at the temporary name is ours */
};

/*
 * Everything goes through io. -EEXIST: there is something, and no force; force replaces a file, or
 * a directory that an export made.
 */
int atomic_file_begin(struct io_engine *io, const char *path, bool is_dir, bool force,
		      struct atomic_file *ret);
/* A part in what another process has begun: its temporary name is known. Released, and never
 * committed. */
int atomic_file_join(struct io_engine *io, const char *temp, bool is_dir, struct atomic_file *ret);
/* What this process has written is durable. */
int atomic_file_sync(struct atomic_file *n);
/* All that was written is durable, then it has its name. */
int atomic_file_commit(struct atomic_file *n);
/* What was not committed goes away. Accepts a zeroed one. */
void atomic_file_release(struct atomic_file *n);
#define auto_atomic_file __attribute__((cleanup(atomic_file_release))) struct atomic_file

/* Whether a name is one of those temporary ones, of any process. */
bool atomic_file_is_temp(const char *name);

#endif
