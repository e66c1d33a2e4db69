/* SPDX-License-Identifier: Apache-2.0 */
/*
 * placement.h - chunks and shardings of a checkpoint that is prepared for a mesh of devices.
 *
 * Each array gets the sharding that rules give its key on the mesh, or the one that another
 * checkpoint records of it. Its chunks are the parts that devices hold, so that each device reads
 * whole chunks and nothing else. No device has to be there: the sharding names no ids, and JAX
 * takes its devices in their order.
 */
#ifndef PYTREEFS_PLACEMENT_H
#define PYTREEFS_PLACEMENT_H

#include "core/dtype/dtype.h"
#include "tools/cli/cmd.h"

struct import_list;
struct placement;

/*
 * Read --mesh and --spec, or open the checkpoint of --chunks-like. *ret is NULL if none is given.
 * The RULES of --spec are a JSON object from expressions (over whole keys, as in transforms=) to
 * partition specs, or a list of such pairs; the first that matches counts.
 */
int placement_new(struct cmd_args *a, struct placement **ret);
/* Accepts NULL. */
void placement_free(struct placement *p);
DEFINE_AUTO(placement, struct placement, placement_free);

struct placed_array {
	const char *path; /* in the list */
	struct array_type array;
	bool is_numpy, is_jax; /* as it is recorded; neither: it is not */
};

/*
 * Mark an array of the list with its chunks and its sharding. An array of numpy becomes one of jax
 * only if it is cut, and so does one of 64 bits that is not recorded as one of jax. -EINVAL: no
 * rule matches it, the other checkpoint does not have it, its shape cannot be cut in that many
 * equal parts, or jax would restore it in 32 bits.
 */
int placement_mark(struct placement *p, struct import_list *f, const struct placed_array *a);
/* Warn of rules that gave no array its sharding. */
void placement_warn_unused(const struct placement *p);

#endif
