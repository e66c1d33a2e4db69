/* SPDX-License-Identifier: Apache-2.0 */
/*
 * root_others.h - files and directories beside the steps of a root.
 */
#ifndef PYTREEFS_ROOT_OTHERS_H
#define PYTREEFS_ROOT_OTHERS_H

#include "handlers/namespace/ns.h"

/*
 * Copy the metadata of a manager about all steps to the directory out, under its present or older
 * name, and log which other names in the root belong to none of its steps, whose listing this is.
 */
int root_copy_others(const struct ckpt *ckpt, const struct listing *steps, const char *out,
		     bool force);

#endif
