/* SPDX-License-Identifier: Apache-2.0 */
/*
 * t_slab_views.c - casts and boxes of arrays that are read in slabs.
 */
#include "tests/unit/lib/slab_make.h"

/* A random view that needs most of each row. */
static void wide_view(struct made *m, struct zarr_view *v)
{
	static const enum dtype to[] = { DTYPE_FLOAT32, DTYPE_FLOAT64, DTYPE_BFLOAT16, DTYPE_INT8 };
	struct bands b;

	bands_of(m->z, &b);
	zarr_view_whole(&m->meta, v);
	for (unsigned i = 0; i < v->rank; i++) {
		uint64_t n = v->shape[i], most = i > b.axis ? n / 6 : n - 1;
		uint64_t start = made_random(m, most + 1),
			 end = n - made_random(m, most - start + 1);
		uint64_t step = i < b.axis ? 1 + made_random(m, 2) : 1;

		if (made_random(m, 2))
			assert_int_equal(zarr_view_slice(v, i, start, step,
							 (end - start - 1) / step + 1, false),
					 0);
	}
	v->dtype = to[made_random(m, ARRAY_LEN(to))];
	assert_int_equal(zarr_view_finish(v), 0);
}

static void views_have_their_elements(void **state)
{
	for (size_t i = 0; i < ARRAY_LEN(wides); i++) {
		struct made_opts o = { .seed = 90 + i, .missing = 15, .threads = i % 3 };
		unsigned in_slabs = 0;
		struct zarr_view v;
		struct made m;

		make(&m, &wides[i], &o);
		for (int k = 0; k < 40; k++) {
			random_view(&m, &v);
			check_view(&m, &v, wides[i].doc);
			wide_view(&m, &v);
			in_slabs += slab_is_for(m.z, &v);
			check_view(&m, &v, wides[i].doc);
		}
		assert_true(in_slabs > 5);
		made_release(&m);
	}
}

/* Whether rows [from, from + n) and columns [left, left + width), every step-th, are in slabs. */
static void box_has_slabs(struct made *m, const uint64_t box[4], uint64_t row_step, uint64_t step,
			  enum dtype to, bool want)
{
	struct zarr_view v;

	zarr_view_whole(&m->meta, &v);
	assert_int_equal(zarr_view_slice(&v, 0, box[0], row_step, box[1] / row_step, false), 0);
	assert_int_equal(zarr_view_slice(&v, 1, box[2], step, box[3] / step, false), 0);
	assert_int_equal(zarr_view_cast(&v, to), 0);
	assert_int_equal(slab_is_for(m->z, &v), want);
	check_view(m, &v, "box");
}

static void views_of_most_of_a_row_have_slabs(void **state)
{
	const uint64_t all[4] = { 0, 64, 0, 256 }, rows[4] = { 10, 30, 0, 256 };
	const uint64_t most[4] = { 5, 40, 3, 240 }, few[4] = { 5, 40, 0, 112 };
	struct made_opts o = { .seed = 95 };
	struct zarr_view v;
	struct made m;

	make(&m, &wides[0], &o);
	box_has_slabs(&m, all, 1, 1, DTYPE_FLOAT32, true);
	box_has_slabs(&m, all, 1, 1, DTYPE_FLOAT64, true);
	box_has_slabs(&m, all, 1, 1, DTYPE_INT8, true);
	box_has_slabs(&m, rows, 1, 1, DTYPE_FLOAT32, true);
	box_has_slabs(&m, most, 1, 1, DTYPE_FLOAT16, true);
	box_has_slabs(&m, few, 1, 1, DTYPE_FLOAT32, false);
	box_has_slabs(&m, all, 2, 1, DTYPE_FLOAT32, false);
	box_has_slabs(&m, all, 1, 2, DTYPE_FLOAT32, false);
	/* A column of zeros. */
	zarr_view_whole(&m.meta, &v);
	assert_int_equal(zarr_view_reshape(&v, 2, (uint64_t[]){ 64, 257 }), 0);
	assert_int_equal(zarr_view_finish(&v), 0);
	assert_false(slab_is_for(m.z, &v));
	check_view(&m, &v, "padded");
	made_release(&m);
	/* 13 of 16 chunks fit into three quarters of the cache, all of them do not. */
	o.cache = 19000;
	made_array(&m, wides[0].doc, &o);
	box_has_slabs(&m, all, 1, 1, DTYPE_FLOAT32, true);
	box_has_slabs(&m, (uint64_t[]){ 0, 64, 0, 208 }, 1, 1, DTYPE_FLOAT32, false);
	made_release(&m);
}

/* A reader of a cast decodes no more than one of the array, and both use the same slabs. */
static void casts_and_the_array_use_the_same_slabs(void **state)
{
	struct made_opts o = { .seed = 97 };
	struct zarr_view v;
	uint8_t got[8192];
	struct bands b;
	struct made m;

	make(&m, &wides[1], &o);
	bands_of(m.z, &b);
	for (uint64_t row = 0; row < 16; row++) {
		zarr_view_whole(&m.meta, &v);
		assert_int_equal(zarr_view_cast(&v, DTYPE_FLOAT64), 0);
		assert_int_equal(zarr_read_into(m.z, &v, row * 2 * b.row, 2 * b.row, got), 0);
		check(&m, row * b.row, b.row);
		zarr_view_whole(&m.meta, &v);
		assert_int_equal(zarr_view_slice(&v, 0, 2, 1, 59, false), 0);
		assert_int_equal(zarr_view_cast(&v, DTYPE_BFLOAT16), 0);
		if (row >= 2)
			assert_int_equal(
				zarr_read_into(m.z, &v, (row - 2) * b.row / 2, b.row / 2, got), 0);
	}
	/* The first 16 rows are 4 slabs of one band. */
	assert_int_equal(m.env.chunks_decoded, 4 * b.chunks);
	made_release(&m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(views_have_their_elements),
		cmocka_unit_test(views_of_most_of_a_row_have_slabs),
		cmocka_unit_test(casts_and_the_array_use_the_same_slabs),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
