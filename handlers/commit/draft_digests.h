/* SPDX-License-Identifier: Apache-2.0 */
/*
 * draft_digests.h - `.sha256sums` of the items of a draft (manifest=on).
 */
#ifndef PYTREEFS_DRAFT_DIGESTS_H
#define PYTREEFS_DRAFT_DIGESTS_H

#include "handlers/commit/draft_items.h"

/*
 * Of items that are sealed and ask for it, or have leaves that were copied, as they are stored,
 * from an item that has one: digests of all their leaves. Those of copied leaves are taken over;
 * others are computed from what is stored. c->items are those of `item`.
 */
int draft_digests(struct draft *d, struct sealing_item *item, size_t n, struct commit *c);
/* Whether an item gets one: of a plan of this rank, and of one that is made of all ranks'. */
bool draft_digests_wanted(const struct plan *p);

#endif
