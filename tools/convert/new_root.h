/* SPDX-License-Identifier: Apache-2.0 */
/*
 * new_root.h - directories that a command creates for what it writes: the root of a first step.
 */
#ifndef PYTREEFS_NEW_ROOT_H
#define PYTREEFS_NEW_ROOT_H

#include "tools/cli/cmd.h"

struct new_root {
	struct io_engine *io;
	struct io_dir *above; /* directory in which they were made; NULL: the root existed */
	char *names;          /* from there, "run/checkpoints/" */
	size_t others;        /* of the names: what another process made meanwhile, "run" */
};

/* Create the directory and those above it durably, unless they exist. */
int new_root_make(struct cmd_args *a, const char *path, struct new_root *ret);
/* Remove what was created after a failure, unless it has a step. */
void new_root_remove(struct new_root *n);
void new_root_release(struct new_root *n);
#define auto_new_root __attribute__((cleanup(new_root_release))) struct new_root

#endif
