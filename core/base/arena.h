/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arena.h - bump allocator: one parsed object lives in one arena.
 *
 * Allocating returns NULL when memory is short; everything is freed by one
 * call. An arena is not thread-safe. When the meter refuses a block, the next
 * fail(-ENOMEM) of the thread says so (err_refused()).
 */
#ifndef PYTREEFS_ARENA_H
#define PYTREEFS_ARENA_H

#include "core/base/buf.h"

struct arena_block;

struct arena {
	struct arena_block *top;
	size_t used, cap; /* of the top block */
	size_t total;     /* bytes taken from the heap: the charge of what lives here */
	/* Set before the first allocation: blocks are charged to the meter (meter.h). */
	bool metered;
	size_t charged;
	size_t first; /* bytes of the first block, of an arena that mostly has few; 0: 1 KiB */
};

/* Memory for any type, not cleared. */
void *arena_alloc(struct arena *a, size_t n);
/* Cleared memory for count items; NULL also when the product overflows. */
void *arena_calloc(struct arena *a, size_t count, size_t size);
/* A copy of the bytes, followed by a NUL that is not counted. */
uint8_t *arena_dup(struct arena *a, struct span s);
char *arena_str(struct arena *a, const char *s);
/* The same as a span; -ENOMEM with a note. ret may be text's own place. */
int arena_keep(struct arena *a, struct span text, struct span *ret);
void arena_release(struct arena *a);
/* Somebody else counts its bytes from now on: what is charged is released. */
void arena_unmeter(struct arena *a);

#define auto_arena __attribute__((cleanup(arena_release))) struct arena

#endif
