/* SPDX-License-Identifier: Apache-2.0 */
/*
 * t_tiling.c - tasks and tiles cover an array once, whatever its shape, chunks and order.
 */
#include "tests/unit/lib/unit.h"

#include <stdlib.h>

#include "core/base/limits.h"
#include "tools/scan/tiling.h"

struct shape_case {
	unsigned rank;
	uint64_t shape[4], chunk[4];
	enum dtype dtype;
	bool fortran, raw;
};

static void make_array(const struct shape_case *c, struct zarr *z, struct zarr_level *level)
{
	memset(z, 0, sizeof(*z));
	memset(level, 0, sizeof(*level));
	z->meta.rank = c->rank;
	z->meta.dtype = c->dtype;
	z->meta.n_elements = 1;
	level->bytes = dtype_info(c->dtype)->size;
	for (unsigned i = 0; i < c->rank; i++) {
		z->meta.shape[i] = c->shape[i];
		z->meta.n_elements *= c->shape[i];
		z->leaf_chunk[i] = c->chunk[i];
		z->leaf_grid[i] = div_up(c->shape[i], c->chunk[i]);
		level->axis[i] = (uint8_t)(c->fortran ? c->rank - 1 - i : i);
		level->bytes *= c->chunk[i];
	}
	z->leaf = level;
	z->leaf_raw = c->raw;
}

/* Count each element of the tile. */
static void mark(const struct shape_case *c, const struct tile *tile, uint8_t *visited)
{
	uint64_t at[4] = { 0 };

	for (uint64_t k = 0; k < tile->n; k++) {
		uint64_t n = 0;

		for (unsigned i = 0; i < c->rank; i++) {
			assert_true(tile->start[i] + at[i] < c->shape[i]);
			n = n * c->shape[i] + tile->start[i] + at[i];
		}
		visited[n]++;
		for (unsigned i = c->rank; i > 0; i--) {
			if (++at[i - 1] < tile->count[i - 1])
				break;
			at[i - 1] = 0;
		}
	}
}

static void check_case(const struct shape_case *c)
{
	struct zarr_level level;
	struct tiling t;
	struct zarr *z = malloc(sizeof(*z));
	uint8_t *visited;

	make_array(c, z, &level);
	visited = calloc(z->meta.n_elements + 1, 1);
	assert_int_equal(tiling_init(&t, z), 0);
	for (uint64_t task = 0; task < t.n_tasks; task++) {
		struct tile tile;

		tiling_first(&t, task, &tile);
		do {
			assert_true(tile.n * dtype_info(c->dtype)->size <= TILE_BYTES);
			mark(c, &tile, visited);
		} while (tiling_next(&t, task, &tile));
	}
	for (uint64_t i = 0; i < z->meta.n_elements; i++)
		assert_int_equal(visited[i], 1);
	free(visited);
	free(z);
}

static void every_element_is_in_one_tile(void **state)
{
	static const struct shape_case cases[] = {
		{ 0, { 0 }, { 0 }, DTYPE_FLOAT32, false, false },
		{ 1, { 1 }, { 1 }, DTYPE_INT8, false, false },
		{ 1, { 1000 }, { 7 }, DTYPE_INT8, false, false },
		{ 2, { 37, 53 }, { 1, 1 }, DTYPE_FLOAT64, false, false },
		{ 2, { 37, 53 }, { 5, 9 }, DTYPE_FLOAT64, true, false },
		{ 2, { 3, 0 }, { 1, 1 }, DTYPE_FLOAT64, false, false },
		/* Chunks larger than a tile, in both orders, clipped at the edge. */
		{ 2, { 2100, 1100 }, { 2048, 1024 }, DTYPE_FLOAT32, false, false },
		{ 2, { 2100, 1100 }, { 2048, 1024 }, DTYPE_FLOAT32, true, false },
		{ 2, { 2100, 1100 }, { 2048, 1024 }, DTYPE_FLOAT32, false, true },
		{ 3, { 3, 2000, 701 }, { 3, 2000, 701 }, DTYPE_FLOAT16, false, false },
		{ 3, { 3, 2000, 701 }, { 2, 2000, 701 }, DTYPE_FLOAT16, true, false },
		{ 1, { 9000001 }, { 9000001 }, DTYPE_BOOL, false, false },
		{ 4, { 5, 6, 7, 8 }, { 2, 4, 3, 8 }, DTYPE_COMPLEX128, false, false },
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++)
		check_case(&cases[i]);
}

static void a_task_is_made_of_whole_chunks(void **state)
{
	static const struct shape_case c = { 2,     { 100, 100 }, { 30, 40 }, DTYPE_FLOAT32,
					     false, false };
	struct zarr_level level;
	struct tiling t;
	struct zarr *z = malloc(sizeof(*z));

	make_array(&c, z, &level);
	assert_int_equal(tiling_init(&t, z), 0);
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(t.task[i] % c.chunk[i], 0);
	assert_int_equal(t.n_tasks, 1);
	free(z);
}

static void one_chunk_is_cut_in_the_order_of_its_bytes(void **state)
{
	static const struct shape_case c = { 2,    { 4096, 4096 }, { 4096, 4096 }, DTYPE_FLOAT32,
					     true, false };
	struct zarr_level level;
	struct tile tile;
	struct tiling t;
	struct zarr *z = malloc(sizeof(*z));

	make_array(&c, z, &level);
	assert_int_equal(tiling_init(&t, z), 0);
	assert_int_equal(t.n_tasks, 1);
	/* Stored by columns: a tile has all rows of some columns. */
	tiling_first(&t, 0, &tile);
	assert_int_equal(tile.count[0], 4096);
	assert_int_equal(tile.count[1], 256);
	assert_true(tiling_next(&t, 0, &tile));
	assert_int_equal(tile.start[0], 0);
	assert_int_equal(tile.start[1], 256);
	free(z);
}

static void absurd_arrays_are_refused(void **state)
{
	struct zarr_level level;
	struct tiling t;
	struct zarr *z = malloc(sizeof(*z));
	struct shape_case c = { 2,
				{ (uint64_t)1 << 50, (uint64_t)1 << 50 },
				{ 1 << 20, 1 << 20 },
				DTYPE_INT8,
				false,
				false };

	make_array(&c, z, &level);
	z->meta.n_elements = INT64_MAX;
	c.chunk[0] = 1;
	z->leaf_chunk[0] = z->leaf_chunk[1] = 1;
	z->leaf_grid[0] = z->leaf_grid[1] = (uint64_t)1 << 50;
	level.bytes = (uint64_t)1 << 22;
	assert_int_equal(tiling_init(&t, z), -EFBIG);
	free(z);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_element_is_in_one_tile),
		cmocka_unit_test(a_task_is_made_of_whole_chunks),
		cmocka_unit_test(one_chunk_is_cut_in_the_order_of_its_bytes),
		cmocka_unit_test(absurd_arrays_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
