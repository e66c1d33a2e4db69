/* SPDX-License-Identifier: Apache-2.0 */
/*
 * t_grid.c - by brute force: every element of every range is visited once, at its place.
 */
#include "tests/unit/lib/unit.h"

#include <stdlib.h>

#include "core/base/mem.h"
#include "core/zarr/meta/grid.h"

/* The position on each axis of element number e of the view. */
static void unravel(const struct grid *g, uint64_t e, uint64_t *v)
{
	for (unsigned i = g->rank; i > 0; i--) {
		v[i - 1] = e % g->axis[i - 1].count;
		e /= g->axis[i - 1].count;
	}
}

static void check_part(const struct grid *g, const struct grid_box *box, const struct grid_part *p,
		       uint8_t *visited)
{
	uint64_t n = grid_part_elements(g, p);
	struct grid inner = { .rank = g->rank };

	assert_true(n > 0);
	for (unsigned i = 0; i < g->rank; i++)
		inner.axis[i].count = p->hi[i] - p->lo[i];
	for (uint64_t e = 0; e < n; e++) {
		uint64_t v[LIMIT_RANK] = { 0 }, number = 0;
		bool padding = false;

		unravel(&inner, e, v);
		for (unsigned i = 0; i < g->rank; i++) {
			const struct grid_axis *a = &g->axis[i];
			uint64_t at = p->lo[i] + v[i], pos = a->start + a->step * at;

			number = number * a->count + at;
			padding |= pos >= a->extent;
			if (!p->padding) {
				assert_int_equal(pos / a->chunk, p->chunk[i]);
				assert_int_equal(pos % a->chunk, p->from[i] + a->step * v[i]);
			}
		}
		assert_int_equal(padding, p->padding);
		assert_true(number >= box->at && number < box->at + box->n);
		visited[number]++;
	}
}

static void check_range(const struct grid *g, uint64_t total, uint64_t first, uint64_t n)
{
	auto_free uint8_t *visited = calloc(total + 1, 1);
	uint64_t at = first, left = n;
	unsigned boxes = 0;

	while (left) {
		struct grid_box box;
		struct grid_part part;

		grid_box(g, at, left, &box);
		assert_int_equal(box.at, at);
		assert_true(box.n > 0 && box.n <= left);
		grid_part_first(g, &box, &part);
		do {
			check_part(g, &box, &part, visited);
		} while (grid_part_next(g, &box, &part));
		at += box.n;
		left -= box.n;
		boxes++;
	}
	assert_true(boxes <= (g->rank ? 2 * g->rank - 1 : 1));
	for (uint64_t e = 0; e < total; e++)
		assert_int_equal(visited[e], e >= first && e < first + n);
}

static void ranges_are_tiled_exactly(void **state)
{
	srand(7);
	for (int round = 0; round < 3000; round++) {
		struct grid g = { .rank = (unsigned)rand() % 5 };
		uint64_t total, first, n;

		for (unsigned i = 0; i < g.rank; i++) {
			struct grid_axis *a = &g.axis[i];

			a->count = 1 + (uint64_t)rand() % 5;
			a->step = rand() % 3 ? 1 : 1 + (uint64_t)rand() % 4;
			a->start = (uint64_t)rand() % 4;
			a->chunk = 1 + (uint64_t)rand() % 6;
			a->extent = rand() % 3 ? a->start + a->step * a->count :
						 (uint64_t)rand() % 12;
		}
		total = 1;
		for (unsigned i = 0; i < g.rank; i++)
			total *= g.axis[i].count;
		first = (uint64_t)rand() % total;
		n = 1 + (uint64_t)rand() % (total - first);
		check_range(&g, total, first, n);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ranges_are_tiled_exactly),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
