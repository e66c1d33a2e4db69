/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tiling.h - splits an array into tasks for any thread, and tasks into tiles of limited size.
 *
 * A task is a box of whole chunks, so that no chunk is decoded twice, or one chunk that is too
 * large for memory, whose tiles then come in the order in which it is decoded. The split depends on
 * the array alone, so sums by tasks are the same on every machine.
 */
#ifndef PYTREEFS_TILING_H
#define PYTREEFS_TILING_H

#include "core/zarr/zarr.h"

#define TILE_BYTES (4 * MiB)

struct tiling {
	unsigned rank;
	uint64_t shape[LIMIT_RANK];
	uint64_t task[LIMIT_RANK];  /* extent of a task */
	uint64_t tile[LIMIT_RANK];  /* extent of a tile */
	uint64_t tasks[LIMIT_RANK]; /* number of tasks along each axis */
	uint8_t axis[LIMIT_RANK];   /* axes of the array, the slowest one in a chunk first */
	uint64_t n_tasks;
};

/* A box of at most TILE_BYTES of elements. */
struct tile {
	uint64_t start[LIMIT_RANK], count[LIMIT_RANK];
	uint64_t n; /* number of elements */
};

/* -EFBIG: more than 2^63 tasks. */
int tiling_init(struct tiling *t, const struct zarr *z);
/* Get the first tile of a task, and the next one; false after the last. */
void tiling_first(const struct tiling *t, uint64_t task, struct tile *ret);
bool tiling_next(const struct tiling *t, uint64_t task, struct tile *tile);
/* Get the view of the array for a tile. */
int tile_view(const struct zarr *z, const struct tile *tile, struct zarr_view *ret);

#endif
