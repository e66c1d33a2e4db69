/* SPDX-License-Identifier: Apache-2.0 */
/*
 * interner.h - texts that are repeated often, each stored once. Private to core/tree.
 */
#ifndef PYTREEFS_INTERNER_H
#define PYTREEFS_INTERNER_H

#include "core/base/arena.h"

struct text_slot;

/* A zeroed one is empty. The texts are in an arena of the caller. */
struct interner {
	struct arena table; /* memory of the slots; metered if the other arena is */
	struct text_slot *slots;
	size_t n_slots, used;
};

/*
 * Get the only copy of text, in the arena, which must always be the same one; a NUL follows the
 * text.
 */
int interner_add(struct interner *set, struct arena *arena, struct span text, struct span *ret);
void interner_release(struct interner *set);
#define auto_interner __attribute__((cleanup(interner_release))) struct interner

#endif
