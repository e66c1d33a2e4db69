/* SPDX-License-Identifier: Apache-2.0 */
/*
 * detect_impl.h - directories of arrays (detect_arrays.c) and advice (detect_advice.c), for
 * detect.c only. The functions of type int return 1 or 0, or an error.
 */
#ifndef PYTREEFS_DETECT_IMPL_H
#define PYTREEFS_DETECT_IMPL_H

#include "core/step/children.h"
#include "core/step/detect.h"

/*
 * Whether a file is the metadata of an array: 1 or 0. That of a zarr group is not; a file that
 * cannot be parsed counts as an array's.
 */
int detect_is_array(struct io_dir *dir, const char *path);
/* Whether a child is a directory that is complete. */
bool detect_is_directory(const struct child *ch);
/* Whether a child directory is an array, as in the layout with a directory for each leaf. */
int detect_has_arrays(const struct children *c);
/* Whether a directory says of itself that it is a zarr group. */
bool detect_is_group(const struct children *c);
/*
 * Whether a directory with the metadata of a zarr group is a hierarchy of arrays: 1 or 0. Such a
 * file may also lie in a step, beside its items, or in a root. The first child that is one or the
 * other tells.
 */
int detect_is_hierarchy(const struct children *c);
/*
 * Whether there are arrays in directories below, at whatever depth, and nothing else: 1 or 0. So
 * does jax's array serialization store a tree.
 */
int detect_holds_arrays(const struct children *c);
/* The error of a directory at `path` with a file of flax that is not a checkpoint. */
int detect_fail_file(const struct children *c, const char *path, const char *file);
/* Whether a name ends in a number, as those of steps. */
bool detect_has_number(const char *name);
/*
 * Get the path of a child directory that is a root or a step of its own, allocated: an item is
 * neither. NULL: there is none among the first ones.
 */
#define DETECT_OWN_MAX 16 /* child directories that are looked into */
int detect_find_own(const struct children *c, char **ret, enum shape *ret_shape);
/* The error for a directory that is not a checkpoint, which was given as path: -EINVAL. */
int detect_fail(const struct children *c, const char *path);

#endif
