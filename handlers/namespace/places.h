/* SPDX-License-Identifier: Apache-2.0 */
/*
 * places.h - whether the directories of a mount may lie where they do.
 *
 * The daemon opens SOURCE before it mounts, and never comes through the mount itself; a path that
 * goes through it would have the daemon wait for its own answer.
 */
#ifndef PYTREEFS_PLACES_H
#define PYTREEFS_PLACES_H

#include "handlers/options/options.h"

/*
 * -EINVAL: the mount point is inside SOURCE, log= or the directory of spill files is inside the
 * mount point, or log= would be called like a step of SOURCE. source and mountpoint are absolute
 * and without links.
 */
int places_check(const char *source, const char *mountpoint, const struct options *o);

#endif
