/* SPDX-License-Identifier: Apache-2.0 */
/*
 * foreign_file.h - files of arrays that are not part of a checkpoint.
 */
#ifndef PYTREEFS_FOREIGN_FILE_H
#define PYTREEFS_FOREIGN_FILE_H

#include "core/io/io.h"

struct err_note;

/* Whether a file has the name of one that holds arrays: ".npy", ".npz", ".pt", ".msgpack", ... */
bool foreign_is_of_arrays(const char *path);
/* Whether there is such a file in a directory, at whatever depth; also if it has too many. */
bool foreign_in_directory(struct io_dir *dir, const char *rel);
/*
 * Get the path of a file of arrays that is not one of the safetensors files of a directory: those
 * at its top and, deeper, those of its index. Allocated; NULL: there is none.
 */
char *foreign_beside_shards(struct io_dir *dir);
/*
 * -ENOENT or -EINVAL: why a path that is not in a checkpoint cannot be read. why: of the deepest
 * directory on the path that is not a checkpoint, or empty, or NULL.
 */
int foreign_fail(const char *path, const struct err_note *why);

#endif
