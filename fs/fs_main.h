/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fs_main.h - the one entry to the FUSE layer from outside.
 */
#ifndef PYTREEFS_FS_MAIN_H
#define PYTREEFS_FS_MAIN_H

#include "handlers/options/options.h"

struct peers;

struct fs_mount {
	const char *source, *mountpoint;
	const struct options *options;
	bool foreground;
	struct peers *peers; /* of a job: all mount, or none; NULL: one process */
	int refused;         /* of a job: why this rank cannot mount, with its note; 0: it can */
	const char *fuse_options; /* for the kernel and libfuse: "allow_other,ro"; "" */
};

/*
 * Mount and serve until unmounted or told to stop by a signal. In the background the call returns
 * in the parent when the mount is ready, or with the reason why it cannot be.
 */
int fs_main(const struct fs_mount *m);
/* The mount starts this program again under other names, for small tasks: 1 when name is one of
 * them. */
int fs_run_helper(const char *name, int *ret_status);

#endif
