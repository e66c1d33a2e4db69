/* SPDX-License-Identifier: Apache-2.0 */
/*
 * confine.h - restricts the process of a mount once the mount is ready.
 */
#ifndef PYTREEFS_FS_CONFINE_H
#define PYTREEFS_FS_CONFINE_H

#include "fs/fs.h"
#include "fs/fs_main.h"

/*
 * Give up all rights that serving does not need. Call before any thread starts. on_refused: as in
 * core/sandbox/sandbox.h.
 */
int confine(const struct fs_mount *m, struct fs *fs, void (*on_refused)(void));

#endif
