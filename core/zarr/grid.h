/* SPDX-License-Identifier: Apache-2.0 */
/*
 * grid.h - the arithmetic between a range of elements and the chunks under it. No I/O.
 *
 * A view selects, on each axis, `count` positions of the array from `start` on,
 * `step` apart; its elements are counted in C order. A range of elements is cut
 * into boxes of the view, and a box into parts, one per chunk that it touches.
 */
#ifndef PYTREEFS_GRID_H
#define PYTREEFS_GRID_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/limits.h"

struct grid_axis {
	uint64_t start, step, count; /* step >= 1; start + step * (count - 1) < 2^63 */
	uint64_t extent;             /* positions at or beyond it are not stored: padding */
	uint64_t chunk;              /* >= 1 */
};

struct grid {
	unsigned rank;
	struct grid_axis axis[LIMIT_RANK];
};

/* Elements [lo, hi) of the view on each axis; `at` is the number of its first element, n how many. */
struct grid_box {
	uint64_t lo[LIMIT_RANK], hi[LIMIT_RANK];
	uint64_t at, n;
};

/* The part of a box that one chunk holds. */
struct grid_part {
	uint64_t chunk[LIMIT_RANK];              /* its place in the grid */
	uint64_t lo[LIMIT_RANK], hi[LIMIT_RANK]; /* in elements of the view */
	uint64_t from[LIMIT_RANK];               /* position inside the chunk of lo */
	bool padding; /* nothing is stored here: zeros; chunk and from are not set */
};

/*
 * The next box of elements [first, first + n): the largest that begins at first. Call again with
 * what is left; there are at most 2 * rank - 1 (one for rank 0). n > 0.
 */
void grid_box(const struct grid *g, uint64_t first, uint64_t n, struct grid_box *ret);

/* The first part of a box, and the next after a part: false when there is none. C order of chunks. */
void grid_part_first(const struct grid *g, const struct grid_box *box, struct grid_part *ret);
bool grid_part_next(const struct grid *g, const struct grid_box *box, struct grid_part *part);

/* Elements of a part, and the number of its first one inside the box's own C order. */
uint64_t grid_part_elements(const struct grid *g, const struct grid_part *part);
uint64_t grid_part_at(const struct grid *g, const struct grid_box *box,
		      const struct grid_part *part);
/* row: a position on the first `axes` axes, from the part's lo on; becomes the next one in C order.
 * False, and zeros again, after the last. */
bool grid_part_next_row(const struct grid_part *part, unsigned axes, uint64_t *row);

#endif
