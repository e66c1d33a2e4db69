/* SPDX-License-Identifier: Apache-2.0 */
/*
 * grid.c - ranges -> boxes -> parts. Only arithmetic.
 *
 * Invariants: the boxes of a range tile it in order, and the parts of a box tile the box; every
 * position of a part is in its chunk.
 */
#include "core/zarr/meta/grid.h"

#include "core/base/mem.h"

void grid_box(const struct grid *g, uint64_t first, uint64_t n, struct grid_box *ret)
{
	uint64_t index[LIMIT_RANK], rest = first, inner = 1, rows;
	unsigned axis = 0;

	ret->at = first;
	for (unsigned i = g->rank; i > 0; i--) {
		index[i - 1] = rest % g->axis[i - 1].count;
		rest /= g->axis[i - 1].count;
		ret->lo[i - 1] = index[i - 1];
		ret->hi[i - 1] = index[i - 1] + 1;
	}
	/* Take inner axes whole while the range begins at their start and has room for them. */
	for (axis = g->rank; axis > 1; axis--) {
		uint64_t more = inner * g->axis[axis - 1].count;

		if (index[axis - 1] != 0 || more > n)
			break;
		inner = more;
		ret->hi[axis - 1] = g->axis[axis - 1].count;
	}
	if (axis == 0) {
		ret->n = 1;
		return;
	}
	rows = MIN(n / inner, g->axis[axis - 1].count - index[axis - 1]);
	ret->hi[axis - 1] = index[axis - 1] + rows;
	ret->n = rows * inner;
}

static void place_all(const struct grid *g, const struct grid_box *box, struct grid_part *part,
		      unsigned from_axis)
{
	for (unsigned i = from_axis; i < g->rank; i++) {
		part->lo[i] = box->lo[i];
		part->hi[i] = 0;
	}
	part->padding = false;
	for (unsigned i = 0; i < g->rank; i++) {
		const struct grid_axis *a = &g->axis[i];
		uint64_t pos = a->start + a->step * part->lo[i], stop;

		if (pos >= a->extent) {
			part->hi[i] = box->hi[i];
			part->padding = true;
			continue;
		}
		part->chunk[i] = pos / a->chunk;
		part->from[i] = pos % a->chunk;
		/* Positions up to the end of the chunk, and of the stored elements. */
		stop = MIN(a->chunk - part->from[i], a->extent - pos);
		part->hi[i] = MIN(box->hi[i], part->lo[i] + div_up(stop, a->step));
	}
}

void grid_part_first(const struct grid *g, const struct grid_box *box, struct grid_part *ret)
{
	place_all(g, box, ret, 0);
}

bool grid_part_next(const struct grid *g, const struct grid_box *box, struct grid_part *part)
{
	for (unsigned i = g->rank; i > 0; i--) {
		if (part->hi[i - 1] == box->hi[i - 1])
			continue;
		part->lo[i - 1] = part->hi[i - 1];
		place_all(g, box, part, i);
		return true;
	}
	return false;
}

uint64_t grid_part_elements(const struct grid *g, const struct grid_part *part)
{
	uint64_t n = 1;

	for (unsigned i = 0; i < g->rank; i++)
		n *= part->hi[i] - part->lo[i];
	return n;
}
