/* SPDX-License-Identifier: Apache-2.0 */
/*
 * guess.h - work for a reader that may come: decoding that stops when the guess was wrong.
 *
 * A caller that expects a reader creates a guess, passes it to zarr_prefetch() and keeps a
 * reference. Chunks that are decoded for it are marked as ahead (cache_put_ahead()), only idle
 * threads decode them, and none are decoded where memory is short. When a reader comes to a chunk,
 * it is no longer part of the guess.
 */
#ifndef PYTREEFS_GUESS_H
#define PYTREEFS_GUESS_H

#include <stdatomic.h>

#include "core/base/mem.h"

struct zarr_guess {
	atomic_uint more_refs; /* references beyond the first */
	atomic_bool over;
};

static inline struct zarr_guess *zarr_guess_ref(struct zarr_guess *g)
{
	if (g)
		atomic_fetch_add_explicit(&g->more_refs, 1, memory_order_relaxed);
	return g;
}

/* Accepts NULL. */
static inline void zarr_guess_unref(struct zarr_guess *g)
{
	if (g && atomic_fetch_sub_explicit(&g->more_refs, 1, memory_order_acq_rel) == 0)
		free(g);
}

static inline void zarr_guess_end(struct zarr_guess *g)
{
	atomic_store_explicit(&g->over, true, memory_order_relaxed);
}

/* Accepts NULL, which is not a guess. */
static inline bool zarr_guess_is_over(const struct zarr_guess *g)
{
	return g && atomic_load_explicit(&g->over, memory_order_relaxed);
}

#endif
