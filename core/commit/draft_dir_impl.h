/* SPDX-License-Identifier: Apache-2.0 */
/*
 * draft_dir_impl.h - shared by draft_dir.c and draft_dir_shared.c, and included only there.
 */
#ifndef PYTREEFS_DRAFT_DIR_IMPL_H
#define PYTREEFS_DRAFT_DIR_IMPL_H

#include "core/commit/draft_dir.h"

int draft_dir_new(struct io_dir *parent, const char *name, const char *final, unsigned mode,
		  bool shared, struct draft_dir **ret);
/* Whether a shared draft has the name of a later attempt than d->name. */
bool draft_dir_is_given_up(const struct draft_dir *d);

#endif
