/* SPDX-License-Identifier: Apache-2.0 */
/*
 * draft_dir_impl.h - shared by draft_dir.c, draft_dir_abandoned.c and draft_dir_shared.c, and
 * included only there.
 */
#ifndef PYTREEFS_DRAFT_DIR_IMPL_H
#define PYTREEFS_DRAFT_DIR_IMPL_H

#include "core/commit/draft_dir.h"

int draft_dir_new(struct io_dir *parent, const char *name, const char *final, unsigned mode,
		  bool shared, struct draft_dir **ret);
/* Whether a shared draft has the name of a later attempt than d->name. */
bool draft_dir_is_given_up(const struct draft_dir *d);
/* Whether the directory has a file that is not a draft's lock file: 1 or 0. */
int draft_dir_has_others(struct io_dir *dir, const char *rel);
/* Remove an abandoned draft of ours with that name. An empty directory may be taken in place. */
int draft_dir_make_room(struct io_dir *parent, const char *name);
/* Errors: a live writer has the draft; the directory is neither a draft of ours nor empty. */
int draft_dir_busy(const char *name);
int draft_dir_refuse(struct io_dir *parent, const char *name);

#endif
