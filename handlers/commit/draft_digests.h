/* SPDX-License-Identifier: Apache-2.0 */
/* draft_digests.h - `.sha256sums` of the items of a draft (manifest=on). */
#ifndef PYTREEFS_DRAFT_DIGESTS_H
#define PYTREEFS_DRAFT_DIGESTS_H

#include "handlers/commit/draft_items.h"

/*
 * Make `.sha256sums` for sealed items that ask for it, or that contain leaves copied, as they are
 * stored, from an item that has the file. It has the digests of all leaves: copied leaves keep
 * theirs, the others are read back and hashed. c->items are the items of `item`.
 */
int draft_digests(struct draft *d, struct sealing_item *item, size_t n, struct commit *c);
/*
 * Whether an item gets the file. The plan may be of this rank, or merged from those of all ranks.
 */
bool draft_digests_wanted(const struct plan *p);

#endif
