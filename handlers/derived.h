/*
 * derived.h - the functions that make one array of others: what they take, and what comes out.
 *
 * A plan is made from shapes alone; running it computes the elements piece by piece, in C order.
 */
#ifndef PYTREEFS_DERIVED_H
#define PYTREEFS_DERIVED_H

#include "handlers/transform.h"

#define PIECE_BYTES (4 * MiB)		/* of elements in hand at once */

struct derived_plan {
	enum value_fn fn;
	struct zarr *const *input;	/* borrowed */
	unsigned n_inputs;
	struct zarr_view view[1];	/* of the first input: cast, slice, reshape, scale */
	unsigned axis;			/* concat, stack */
	unsigned order[LIMIT_RANK];	/* transpose */
	struct span factor;		/* scale */
	/* What comes out. */
	enum dtype dtype;
	unsigned rank;
	uint64_t shape[LIMIT_RANK];
	uint64_t bytes;
};

/* Takes the elements in order. */
typedef int derived_sink(void *arg, const void *p, size_t n);

/* -EINVAL: the function does not take such arrays. */
int derived_plan(const struct derived *d, struct zarr *const *input, struct derived_plan *ret);
int derived_run(const struct derived_plan *plan, derived_sink *sink, void *arg);

#endif
