/* SPDX-License-Identifier: Apache-2.0 */
/*
 * path.h - paths below a directory.
 */
#ifndef PYTREEFS_PATH_H
#define PYTREEFS_PATH_H

#include "core/base/buf.h"

/* path + "/" + name, or name alone when path is "."; the caller frees it. -ENOMEM. Any thread. */
int path_join(const char *path, struct span name, char **ret);

/* Whether a source is a URL, of a known scheme or not, and not a path. */
bool path_is_url(const char *source);

#endif
