/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sandbox_layers.h - the layers that need more than a line; used by sandbox.c alone.
 */
#ifndef PYTREEFS_CORE_SANDBOX_LAYERS_H
#define PYTREEFS_CORE_SANDBOX_LAYERS_H

#include "core/sandbox/sandbox.h"

/* capabilities.c: drop all but those that reading, and writing, need. */
int capabilities_drop(const struct sandbox_rules *rules);
/* The names of those that are left, as elements of a JSON array. */
int capabilities_print(struct buf *ret);

/* landlock.c: the ABI version that is in force, or a negative error code without a note. */
int landlock_enter(const struct sandbox_rules *rules);

/* system_calls.c: 0, or a negative error code without a note; -ENOPKG: the build has no libseccomp,
 * -EOPNOTSUPP: the kernel, or this processor, no filters. */
int system_calls_filter(const struct sandbox_rules *rules);

#endif
