/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tidy.h - remove data that a draft needed and its step does not: data files, ranges of these, and
 * directories that no leaf refers to.
 */
#ifndef PYTREEFS_TIDY_H
#define PYTREEFS_TIDY_H

#include "core/commit/commit.h"

/*
 * Tidy an item of a step that has been committed durably; no thread writes to the item's store any
 * more. Nothing is synced, since a crash leaves only unused data.
 */
int tidy_item(const struct commit_item *item);

#endif
