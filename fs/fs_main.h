/*
 * fs_main.h - the one entry to the FUSE layer from outside.
 */
#ifndef PYTREEFS_FS_MAIN_H
#define PYTREEFS_FS_MAIN_H

#include "handlers/options.h"

struct peers;

struct fs_mount {
	const char *source, *mountpoint;
	const struct options *options;
	bool foreground;
	struct peers *peers;		/* of a job: all mount, or none; NULL: one process */
	const char *fuse_options;	/* for the kernel and libfuse: "allow_other,ro"; "" */
};

/*
 * Mount and serve until unmounted or told to stop by a signal. In the background the call returns in
 * the parent when the mount is ready, or with the reason why it cannot be.
 */
int fs_main(const struct fs_mount *m);

#endif
