/* SPDX-License-Identifier: Apache-2.0 */
/*
 * step.h - committed steps: their times, and which names of a root they are.
 */
#ifndef PYTREEFS_STEP_H
#define PYTREEFS_STEP_H

#include "core/io/io.h"

/* When it was committed: commit_timestamp_nsecs of its metadata, or the directory's own time. */
int step_mtime(struct io_dir *dir, struct timespec *ret);

/* One child of a root that is a committed step. */
struct step_entry {
	char *name;
	bool is_file; /* flax: one file */
};

struct step_list {
	struct step_entry *entry; /* ascending by number, then by name */
	size_t n, cap;
};

/*
 * The steps of a root. need_marker: only directories with commit_success.txt
 * (atomicity=commit_file). show_tmp: temporary directories too. Opens no step.
 */
int step_list(struct io_dir *root, bool need_marker, bool show_tmp, struct step_list *ret);
void step_list_release(struct step_list *l);
#define auto_step_list __attribute__((cleanup(step_list_release))) struct step_list
/* Whether one name of the root is a step by the same rules: 1 (st is its stat) or 0. */
int step_find(struct io_dir *root, struct span name, bool need_marker, bool show_tmp,
	      struct stat *st);

#endif
