/* SPDX-License-Identifier: Apache-2.0 */
/*
 * grid.h - the arithmetic between a range of elements and the chunks that it touches. No I/O.
 *
 * A view selects on each axis `count` positions of the array, from `start` on and `step` apart; its
 * elements are counted in C order. A range of elements is divided into boxes of the view, and a box
 * into parts, one for each chunk that it touches.
 */
#ifndef PYTREEFS_GRID_H
#define PYTREEFS_GRID_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/limits.h"

struct grid_axis {
	uint64_t start, step, count; /* step >= 1; start + step * (count - 1) < 2^63 */
	uint64_t extent;             /* positions from here on are not stored: padding */
	uint64_t chunk;              /* >= 1 */
};

struct grid {
	unsigned rank;
	struct grid_axis axis[LIMIT_RANK];
};

/*
 * Elements [lo, hi) of the view on each axis. `at` is the number of the first element, n the number
 * of elements.
 */
struct grid_box {
	uint64_t lo[LIMIT_RANK], hi[LIMIT_RANK];
	uint64_t at, n;
};

/* The part of a box that is in one chunk. */
struct grid_part {
	uint64_t chunk[LIMIT_RANK];              /* place of the chunk in the grid */
	uint64_t lo[LIMIT_RANK], hi[LIMIT_RANK]; /* in elements of the view */
	uint64_t from[LIMIT_RANK];               /* position of lo in the chunk */
	bool padding; /* nothing is stored here: zeros; chunk and from are not set */
};

/*
 * The next box of elements [first, first + n), n > 0: the largest that begins at first. Call again
 * for the rest; a range has at most 2 * rank - 1 boxes (one for rank 0).
 */
void grid_box(const struct grid *g, uint64_t first, uint64_t n, struct grid_box *ret);

/*
 * The first part of a box, and the one after a part; false when there is no further one. Chunks
 * come in C order.
 */
void grid_part_first(const struct grid *g, const struct grid_box *box, struct grid_part *ret);
bool grid_part_next(const struct grid *g, const struct grid_box *box, struct grid_part *part);

/* The number of elements of a part. */
uint64_t grid_part_elements(const struct grid *g, const struct grid_part *part);

#endif
