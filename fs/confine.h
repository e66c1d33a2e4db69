/* SPDX-License-Identifier: Apache-2.0 */
/*
 * confine.h - what a mount's process keeps once the mount stands.
 */
#ifndef PYTREEFS_FS_CONFINE_H
#define PYTREEFS_FS_CONFINE_H

#include "fs/fs.h"
#include "fs/fs_main.h"

/* on_refused: as in core/sandbox/sandbox.h. Before any thread is started. */
int confine(const struct fs_mount *m, struct fs *fs, void (*on_refused)(void));

#endif
