/* SPDX-License-Identifier: Apache-2.0 */
/*
 * derived.h - the functions that compute one array from others.
 *
 * A plan is made from dtypes and shapes alone. Running it computes the elements piece by piece, in
 * C order. Inputs are borrowed. Any thread may run a plan.
 */
#ifndef PYTREEFS_DERIVED_H
#define PYTREEFS_DERIVED_H

#include "handlers/transform/transform.h"

#define DERIVED_PIECE_BYTES (4 * MiB) /* elements that are in memory at once */

struct derived_plan {
	enum value_fn fn;
	const char *name;                  /* of the function */
	const struct plugin_value *plugin; /* for VALUE_FN_PLUGIN */
	struct span args;                  /* the function's arguments as text, for a plugin */
	struct zarr *const *input;         /* borrowed */
	unsigned n_inputs;
	/* of the first input; not used by transpose, concat and stack */
	struct zarr_view view[1];
	unsigned axis;              /* concat, stack */
	unsigned order[LIMIT_RANK]; /* transpose */
	struct span factor;         /* scale, add */
	/* The result. */
	enum dtype dtype;
	unsigned rank;
	uint64_t shape[LIMIT_RANK];
	uint64_t bytes;
};

/* Receives the elements in order. A negative errno ends the run. */
typedef int derived_sink(void *arg, const void *p, size_t n);

/* Plan the function of d for these inputs. -EINVAL: it does not accept such arrays. */
int derived_plan(const struct derived *d, struct zarr *const *input, struct derived_plan *ret);
int derived_run(const struct derived_plan *plan, derived_sink *sink, void *arg);

/* The same for scale and add (derived_number.c). piece: a buffer of DERIVED_PIECE_BYTES. */
bool derived_is_number(struct span args);
int derived_number_plan(const struct zarr_meta *m, struct span args, struct derived_plan *p);
int derived_number_run(const struct derived_plan *p, void *piece, derived_sink *sink, void *arg);

/*
 * The same for functions of plugins (derived_plugin.c): derived_plugin_plan() sets dtype, rank and
 * shape, derived_plugin_run() computes the elements.
 */
int derived_plugin_plan(struct derived_plan *p);
int derived_plugin_run(const struct derived_plan *p, derived_sink *sink, void *arg);

#endif
