/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tiling.c - arithmetic of tasks and tiles. No I/O.
 *
 * Invariants: the tiles of all tasks cover each element of the array once.
 */
#include "tools/scan/tiling.h"

#include "core/base/err.h"
#include "core/zarr/chunk.h"

/* Group whole chunks along the last axes, as many as fit a tile. */
static void group_chunks(struct tiling *t, const struct zarr *z)
{
	uint64_t bytes = z->leaf->bytes;
	bool full = true;

	for (unsigned i = t->rank; i > 0; i--) {
		uint64_t fit = full ? MAX((uint64_t)1, TILE_BYTES / MAX(bytes, (uint64_t)1)) : 1;
		uint64_t n = MIN(fit, z->leaf_grid[i - 1]);

		full &= n == z->leaf_grid[i - 1];
		t->task[i - 1] = t->tile[i - 1] = n * z->leaf_chunk[i - 1];
		bytes *= n;
	}
}

/* Split one chunk into slabs, in the order of its bytes. */
static void tiling_cut_chunk(struct tiling *t, const struct zarr *z)
{
	uint64_t bytes = dtype_info(z->meta.dtype)->size;
	bool full = true;

	for (unsigned i = t->rank; i > 0; i--) {
		unsigned axis = t->axis[i - 1];
		uint64_t extent = MIN(z->leaf_chunk[axis], t->shape[axis]);
		uint64_t n = full ? MAX((uint64_t)1, MIN(extent, TILE_BYTES / bytes)) : 1;

		full &= n == extent;
		t->tile[axis] = n;
		t->task[axis] = z->leaf_chunk[axis];
		bytes *= n;
	}
}

int tiling_init(struct tiling *t, const struct zarr *z)
{
	*t = (struct tiling){ .rank = z->meta.rank, .n_tasks = 1 };
	for (unsigned i = 0; i < t->rank; i++) {
		t->shape[i] = z->meta.shape[i];
		t->axis[i] = z->leaf->axis[i];
	}
	if (z->meta.n_elements == 0) {
		t->n_tasks = 0;
		return 0;
	}
	if (z->leaf->bytes <= TILE_BYTES)
		group_chunks(t, z);
	else
		tiling_cut_chunk(t, z);
	/* Uncompressed bytes can be read from any position. */
	if (z->leaf_raw && z->leaf->bytes > TILE_BYTES)
		memcpy(t->task, t->tile, sizeof(t->task));
	for (unsigned i = 0; i < t->rank; i++) {
		t->tasks[i] = div_up(t->shape[i], t->task[i]);
		if (!mul_fits(t->n_tasks, t->tasks[i], &t->n_tasks) || t->n_tasks > INT64_MAX)
			return fail(-EFBIG, "an array of more than 2^63 chunks");
	}
	return 0;
}

/* Get the box of a task, clipped at the array's edge. */
static void task_box(const struct tiling *t, uint64_t task, uint64_t *ret_start, uint64_t *ret_end)
{
	for (unsigned i = t->rank; i > 0; i--) {
		uint64_t at = task % t->tasks[i - 1];

		task /= t->tasks[i - 1];
		ret_start[i - 1] = at * t->task[i - 1];
		ret_end[i - 1] = MIN(t->shape[i - 1], ret_start[i - 1] + t->task[i - 1]);
	}
}

static void clip(const struct tiling *t, const uint64_t *end, struct tile *tile)
{
	tile->n = 1;
	for (unsigned i = 0; i < t->rank; i++) {
		tile->count[i] = MIN(t->tile[i], end[i] - tile->start[i]);
		tile->n *= tile->count[i];
	}
}

void tiling_first(const struct tiling *t, uint64_t task, struct tile *ret)
{
	uint64_t end[LIMIT_RANK];

	task_box(t, task, ret->start, end);
	clip(t, end, ret);
}

bool tiling_next(const struct tiling *t, uint64_t task, struct tile *tile)
{
	uint64_t start[LIMIT_RANK], end[LIMIT_RANK];

	task_box(t, task, start, end);
	for (unsigned i = t->rank; i > 0; i--) {
		unsigned axis = t->axis[i - 1];

		tile->start[axis] += tile->count[axis];
		if (tile->start[axis] < end[axis]) {
			clip(t, end, tile);
			return true;
		}
		tile->start[axis] = start[axis];
	}
	return false;
}

int tile_view(const struct zarr *z, const struct tile *tile, struct zarr_view *ret)
{
	int r = 0;

	zarr_view_whole(&z->meta, ret);
	for (unsigned i = 0; i < z->meta.rank && r >= 0; i++)
		r = zarr_view_slice(ret, i, tile->start[i], 1, tile->count[i], false);
	return r < 0 ? r : zarr_view_finish(ret);
}
