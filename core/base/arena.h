/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arena.h - bump allocator: one parsed object lives in one arena.
 *
 * An allocation returns NULL when memory is short; one call frees everything.
 * An arena is not thread-safe. When the meter refuses a block, the next
 * fail(-ENOMEM) of the thread reports the refusal (err_refused()).
 */
#ifndef PYTREEFS_ARENA_H
#define PYTREEFS_ARENA_H

#include "core/base/buf.h"

struct arena_block;

struct arena {
	struct arena_block *top;
	size_t used, cap; /* of the top block */
	size_t total; /* bytes taken from the heap; a cache that holds the object charges them */
	/* Charge blocks to the meter (meter.h). Set before the first allocation. */
	bool metered;
	size_t charged;
	/* size of the first block, for an arena that usually needs few bytes; 0: 1 KiB */
	size_t first;
};

/* n bytes, aligned for any type and not cleared. */
void *arena_alloc(struct arena *a, size_t n);
/* Cleared memory for count items. Returns NULL also when the product overflows. */
void *arena_calloc(struct arena *a, size_t count, size_t size);
/* A copy of the bytes, followed by a NUL that is not counted. */
uint8_t *arena_dup(struct arena *a, struct span s);
char *arena_str(struct arena *a, const char *s);
/*
 * Copy text into the arena and set ret to the copy; -ENOMEM with a note. ret may point to the
 * variable that text came from.
 */
int arena_keep(struct arena *a, struct span text, struct span *ret);
void arena_release(struct arena *a);
/* Release the charge but not the memory: someone else accounts for these bytes from now on. */
void arena_unmeter(struct arena *a);

#define auto_arena __attribute__((cleanup(arena_release))) struct arena

#endif
