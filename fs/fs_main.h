/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fs_main.h - the only entry to the FUSE layer for other folders.
 */
#ifndef PYTREEFS_FS_MAIN_H
#define PYTREEFS_FS_MAIN_H

#include "handlers/options/options.h"

struct ns;
struct peers;

struct fs_mount {
	const char *source, *mountpoint;
	const struct options *options;
	bool foreground;
	/* ranks of a job, which mount together or not at all; NULL: one process */
	struct peers *peers;
	/* in a job: error because of which this rank cannot mount, with its note; 0: none */
	int refused;
	/* options for the kernel and libfuse: "allow_other,ro"; "" for none */
	const char *fuse_options;
	/* called when SOURCE is open, to say what is not shown of it; NULL: not called */
	void (*opened)(const struct ns *ns);
};

/*
 * The place of the last such word, from 1 on, among comma-separated options, those for the kernel
 * and libfuse; 0: there is none. Of "ro" and "rw" the last one counts.
 */
size_t fs_option_place(const char *options, const char *word);
/*
 * Mount and serve until the mount is removed, or a signal ends it. In the background, the call
 * returns in the parent when the mount is ready, or with the error that prevents it.
 * Returns 1 for an error that was reported.
 */
int fs_main(const struct fs_mount *m);
/*
 * The mount starts this program again under other names, for small tasks. Returns 1 when `name` is
 * one of them, after it has run.
 */
int fs_run_helper(const char *name, int *ret_status);

#endif
