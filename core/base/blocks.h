/* SPDX-License-Identifier: Apache-2.0 */
/*
 * blocks.h - large blocks of memory that come and go all the time.
 *
 * Chunks and pieces of a megabyte are decoded into fresh memory thousands of
 * times a second; from malloc() each would be mapped, zeroed by the kernel and
 * unmapped again. A few freed blocks are retained for the next caller that
 * needs about the same size. Small blocks come from the heap. Any thread may
 * call.
 */
#ifndef PYTREEFS_BLOCKS_H
#define PYTREEFS_BLOCKS_H

#include <stddef.h>

/* n > 0; contents undefined. NULL when memory is short. */
void *block_alloc(size_t n);
/* n as it was asked for. Accepts NULL. */
void block_free(void *p, size_t n);
/* What a block of n bytes costs in memory: for charges to the cache and the budget. */
size_t block_size(size_t n);
/* Give the idle blocks back to the system. */
void block_trim(void);

#endif
