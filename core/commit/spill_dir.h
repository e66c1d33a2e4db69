/* SPDX-License-Identifier: Apache-2.0 */
/* spill_dir.h - a local directory for making a step that belongs elsewhere, such as in a bucket. */
#ifndef PYTREEFS_SPILL_DIR_H
#define PYTREEFS_SPILL_DIR_H

#include "core/io/io.h"

struct spill_dir {
	struct io_dir *parent, *dir; /* dir is the directory itself */
	struct io_file *lock;        /* held while it is used */
	char *name;                  /* in parent */
};

/*
 * Make a directory in the directory `where`. Directories there whose processes are gone are
 * removed. The engine must outlive it.
 */
int spill_dir_make(struct io_engine *io, const char *where, struct spill_dir *ret);
/* Remove it with its contents, of which nothing is open. Does nothing if it was never made. */
void spill_dir_remove(struct spill_dir *d);

#endif
