/* SPDX-License-Identifier: Apache-2.0 */
/*
 * root_others.h - files and directories beside the steps of a root.
 */
#ifndef PYTREEFS_ROOT_OTHERS_H
#define PYTREEFS_ROOT_OTHERS_H

#include "handlers/namespace/ns.h"

/* Log the names in a root that belong to none of its steps, whose listing this is, as far as it can
 * be listed. Fails with -ENOMEM alone. */
int root_say_others(const struct ckpt *ckpt, const struct listing *steps);

#endif
