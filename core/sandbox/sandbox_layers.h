/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sandbox_layers.h - the larger layers, for sandbox.c only.
 */
#ifndef PYTREEFS_CORE_SANDBOX_LAYERS_H
#define PYTREEFS_CORE_SANDBOX_LAYERS_H

#include "core/sandbox/sandbox.h"

/* capabilities.c: drop all capabilities except those for reading and writing files. */
int capabilities_drop(const struct sandbox_rules *rules);
/* Append the names of the remaining ones, as elements of a JSON array. */
int capabilities_print(struct buf *ret);

/* landlock.c: returns the active ABI version, or a negative error code without a note. */
int landlock_enter(const struct sandbox_rules *rules);

/*
 * system_calls.c: returns 0, or a negative error code without a note; -ENOPKG: built without
 * libseccomp; -EOPNOTSUPP: the kernel, or this processor, has no filters.
 */
int system_calls_filter(const struct sandbox_rules *rules);

#endif
