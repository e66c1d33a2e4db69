/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tidy.h - what a draft needed and its step does not: data files, parts of them, and directories
 * that no leaf refers to.
 */
#ifndef PYTREEFS_TIDY_H
#define PYTREEFS_TIDY_H

#include "core/commit/commit.h"

/*
 * Remove it from an item of a step that is there and durable; nobody writes to the item's store any
 * more. A crash meanwhile leaves litter, no damage: this syncs nothing.
 */
int tidy_item(const struct commit_item *item);

#endif
