/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tiling.h - an array cut into tasks that any thread can take, and tasks into tiles of modest size.
 *
 * A task is a box of whole chunks, so that no chunk is decoded twice; or one chunk that is too
 * large to hold, whose tiles then come in the order in which it is decoded. The cut depends on the
 * array alone: what is summed up task by task comes out the same on every machine.
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
	uint64_t tasks[LIMIT_RANK]; /* per axis */
	uint8_t axis[LIMIT_RANK];   /* of the array, the slowest in a chunk first */
	uint64_t n_tasks;
};

/* A box of elements, of at most TILE_BYTES. */
struct tile {
	uint64_t start[LIMIT_RANK], count[LIMIT_RANK];
	uint64_t n; /* elements */
};

/* -EFBIG: more than 2^63 tasks. */
int tiling_init(struct tiling *t, const struct zarr *z);
/* The first tile of a task, and the next after one: false when it does not exist. */
void tiling_first(const struct tiling *t, uint64_t task, struct tile *ret);
bool tiling_next(const struct tiling *t, uint64_t task, struct tile *tile);
/* The view of the array that a tile is. */
int tile_view(const struct zarr *z, const struct tile *tile, struct zarr_view *ret);

#endif
