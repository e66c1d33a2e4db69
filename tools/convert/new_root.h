/* SPDX-License-Identifier: Apache-2.0 */
/*
 * new_root.h - a directory that a command creates for what it writes: the root of a first step.
 */
#ifndef PYTREEFS_NEW_ROOT_H
#define PYTREEFS_NEW_ROOT_H

#include "tools/cli/cmd.h"

struct new_root {
	struct io_engine *io;
	struct io_dir *above; /* directory in which the root was made; NULL: the root existed */
	char *name;
};

/* Create the directory durably, unless it exists. What it is in must exist. */
int new_root_make(struct cmd_args *a, const char *path, struct new_root *ret);
/* Remove it after a failure, unless it has a step. */
void new_root_remove(struct new_root *n);
void new_root_release(struct new_root *n);
#define auto_new_root __attribute__((cleanup(new_root_release))) struct new_root

#endif
