/* SPDX-License-Identifier: Apache-2.0 */
/*
 * places.h - checks the places of a mount's directories.
 *
 * The daemon opens SOURCE before it mounts, and never uses the mount itself. With a path through
 * its own mount, it would wait for its own reply.
 */
#ifndef PYTREEFS_PLACES_H
#define PYTREEFS_PLACES_H

#include "handlers/options/options.h"

/*
 * -EINVAL: the mount point is inside SOURCE, log= or the directory of spill files is inside the
 * mount point, or log= has a name of a step of SOURCE. source and mountpoint are absolute paths
 * without links.
 */
int places_check(const char *source, const char *mountpoint, const struct options *o);

#endif
