/* SPDX-License-Identifier: Apache-2.0 */
/*
 * spill_dir.h - a directory of this machine in which a step is made that belongs elsewhere.
 */
#ifndef PYTREEFS_SPILL_DIR_H
#define PYTREEFS_SPILL_DIR_H

#include "core/io/io.h"

struct spill_dir {
	struct io_dir *parent, *dir; /* the directory is dir */
	struct io_file *lock;        /* held while it is used */
	char *name;                  /* in parent */
	char *path;
};

/* Beneath the directory `where`. What others left there whose processes are gone is removed. The
 * engine must outlive it. */
int spill_dir_make(struct io_engine *io, const char *where, struct spill_dir *ret);
/* With all that is in it; nothing of it is open. Of one that was never made: nothing. */
void spill_dir_remove(struct spill_dir *d);

#endif
