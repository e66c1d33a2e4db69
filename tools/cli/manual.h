/* SPDX-License-Identifier: Apache-2.0 */
/*
 * manual.h - the manual pages as troff source.
 */
#ifndef PYTREEFS_MANUAL_H
#define PYTREEFS_MANUAL_H

#include "tools/cli/cmd.h"

/* page: "pytreefs" (section 1) or "mount.pytreefs" (8). Returns -1 for another one. */
int manual_print(FILE *out, const char *page);

#endif
