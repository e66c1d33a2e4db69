/* SPDX-License-Identifier: Apache-2.0 */
/*
 * derived.h - the functions that make one array of others: what they take, and what comes out.
 *
 * A plan is made from shapes alone; running it computes the elements piece by piece, in C order.
 */
#ifndef PYTREEFS_DERIVED_H
#define PYTREEFS_DERIVED_H

#include "handlers/transform/transform.h"

#define DERIVED_PIECE_BYTES (4 * MiB) /* of elements in hand at once */

struct derived_plan {
	enum value_fn fn;
	const char *name;                  /* of the function */
	const struct plugin_value *plugin; /* of VALUE_FN_PLUGIN */
	struct span args;                  /* of a plugin's */
	struct zarr *const *input;         /* borrowed */
	unsigned n_inputs;
	struct zarr_view view[1];   /* of the first input, by all but transpose, concat and stack */
	unsigned axis;              /* concat, stack */
	unsigned order[LIMIT_RANK]; /* transpose */
	struct span factor;         /* scale, add */
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

/* The same for scale and add (derived_number.c). piece: room for DERIVED_PIECE_BYTES. */
bool derived_is_number(struct span args);
int derived_number_plan(const struct zarr_meta *m, struct span args, struct derived_plan *p);
int derived_number_run(const struct derived_plan *p, void *piece, derived_sink *sink, void *arg);

/* The same for functions of plugins (derived_plugin.c): dtype, rank and shape; the elements. */
int derived_plugin_plan(struct derived_plan *p);
int derived_plugin_run(const struct derived_plan *p, derived_sink *sink, void *arg);

#endif
