/* SPDX-License-Identifier: Apache-2.0 */
/*
 * blocks.h - large blocks of memory that are allocated and freed all the time.
 *
 * Chunks and pieces of a megabyte are decoded into fresh memory thousands of
 * times a second. With malloc(), each would be mapped, zeroed by the kernel and
 * unmapped again. A few freed blocks are retained for the next caller that
 * needs about the same size. Small blocks come from the heap. Any thread may
 * call.
 */
#ifndef PYTREEFS_BLOCKS_H
#define PYTREEFS_BLOCKS_H

#include <stddef.h>

/* n > 0; the contents are undefined. Returns NULL when memory is short. */
void *block_alloc(size_t n);
/* n is the size that was asked for. Accepts NULL. */
void block_free(void *p, size_t n);
/* The memory that a block of n bytes takes, for charges to the cache and the budget. */
size_t block_size(size_t n);
/* Return the idle blocks to the system. */
void block_trim(void);

#endif
