/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lfs.h - recognize the pointers that Git LFS leaves in place of files that it has not fetched:
 * texts of three lines, less than a kilobyte.
 *
 * Only what fails to decode a file asks: a pointer in a directory that nobody decodes is a file
 * like any other.
 */
#ifndef PYTREEFS_LFS_H
#define PYTREEFS_LFS_H

#include "core/base/buf.h"

#define LFS_POINTER_MAX 1024
#define LFS_START_BYTES 41 /* as many bytes of a file as tell */

/* 0; or -EUCLEAN, which names the file, when the file that begins so is a pointer. */
int lfs_check(const char *name, struct span start);

#endif
