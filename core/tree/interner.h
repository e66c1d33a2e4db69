/* SPDX-License-Identifier: Apache-2.0 */
/*
 * interner.h - texts that come again and again, each kept once; private to core/tree.
 */
#ifndef PYTREEFS_INTERNER_H
#define PYTREEFS_INTERNER_H

#include "core/base/arena.h"

struct text_slot;

/* A zeroed one is empty. The texts live in an arena, the table on the heap. */
struct interner {
	struct text_slot *slots;
	size_t n_slots, used;
	uint64_t charged; /* to the meter, when the arena is metered */
};

/* The one copy of text in the arena, which is always the same for one set; a NUL follows it. */
int interner_add(struct interner *set, struct arena *arena, struct span text, struct span *ret);
void interner_release(struct interner *set);
#define auto_interner __attribute__((cleanup(interner_release))) struct interner

#endif
