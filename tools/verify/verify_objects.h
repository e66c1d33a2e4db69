/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verify_objects.h - which objects of an array are stored.
 */
#ifndef PYTREEFS_VERIFY_OBJECTS_H
#define PYTREEFS_VERIFY_OBJECTS_H

#include "core/zarr/zarr.h"
#include "tools/verify/verify.h"

struct verify_objects {
	uint64_t *object; /* their numbers in the grid, ascending */
	size_t n, cap;
	uint64_t grid;   /* number of objects that the array may have */
	bool is_guessed; /* the server cannot list: some of them may not exist */
	char *strange;   /* the first key that belongs to no chunk */
	uint64_t n_strange;
};

/*
 * ret must be zeroed, and needs a release on failure, too. On a server that cannot list, the first
 * objects of the grid, at most a million.
 */
int verify_objects_list(const struct verify_tree *t, struct zarr *z, struct verify_objects *ret);
void verify_objects_release(struct verify_objects *o);

#endif
