/* SPDX-License-Identifier: Apache-2.0 */
/*
 * step_copy.h - copy a finished draft to a SOURCE in which nothing can be renamed (bucket_mount.h).
 *
 * The directory of the step has the draft's lock file from the beginning, and commit_success.txt is
 * written last; without the marker it is not listed as a step (step.h), and gc removes what a dead
 * writer has left of it. Each file is written once from beginning to end, and closed.
 */
#ifndef PYTREEFS_STEP_COPY_H
#define PYTREEFS_STEP_COPY_H

#include "core/io/io.h"

struct step_copy {
	struct io_dir *from, *source;
	const char *final;       /* the name of the step in source */
	unsigned dir_mode;       /* of new directories, before the umask */
	int (*check)(void *arg); /* called before each file; an error ends the copy */
	void *arg;
};

/*
 * -EEXIST: there is a step; -EBUSY: another writer makes it. After an error nothing is left of it.
 */
int step_copy_run(const struct step_copy *c);
/*
 * Remove the directory of a step or draft, its lock file last: as long as anything of it is there,
 * it is not listed as a step if it has that file, and not the marker. Takes lock, that file.
 */
int step_copy_remove(struct io_dir *source, const char *name, struct io_file *lock);

#endif
