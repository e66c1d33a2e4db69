/* SPDX-License-Identifier: Apache-2.0 */
/*
 * t_slab_damage.c - damaged chunks of arrays that are read in slabs.
 */
#include "tests/unit/lib/slab_make.h"

static void damage(struct made *m, const char *key)
{
	assert_int_equal(kv_put(m->kv, span_str(key), span_str("nonsense")), 0);
}

static void check_fails(struct made *m, uint64_t off, size_t n, const char *key)
{
	auto_free uint8_t *got = malloc(n);
	struct zarr_view v;

	zarr_view_whole(&m->meta, &v);
	assert_int_equal(zarr_read_into(m->z, &v, off, n, got), -EUCLEAN);
	if (!strstr(err_text(-EUCLEAN), key))
		fail_msg("the note does not name '%s': %s", key, err_text(-EUCLEAN));
}

static void a_damaged_chunk_is_named_and_its_neighbours_are_read(void **state)
{
	for (unsigned threads = 0; threads < 3; threads++) {
		struct made_opts o = { .seed = 120, .threads = threads };
		struct made m;
		uint64_t row;

		/* Columns 80 to 95 of rows 16 to 31 are lost. */
		make(&m, &wides[0], &o);
		row = row_bytes(&m);
		damage(&m, "a/1.5");
		for (int round = 0; round < 2; round++) {
			check(&m, 0, 16 * row);
			check(&m, 32 * row, 32 * row);
			for (uint64_t i = 16; i < 32; i++) {
				/* More than a quarter of a row, before the chunk and after it. */
				check(&m, i * row, 80 * 4);
				check(&m, i * row + 96 * 4, 160 * 4);
				check_fails(&m, i * row, row, "'a/1.5'");
				check_fails(&m, i * row, 80 * 4 + 1, "'a/1.5'");
				check_fails(&m, i * row + 96 * 4 - 1, 160 * 4, "'a/1.5'");
			}
		}
		made_release(&m);
	}
}

/* The band is decoded once for each of its slabs; damaged chunks do not make it be decoded again. */
static void good_chunks_beside_damaged_ones_are_decoded_once(void **state)
{
	for (unsigned lost = 1; lost <= 16; lost += 5) {
		struct made_opts o = { .seed = 125, .threads = lost % 3 };
		uint64_t row, before, after;
		struct made m;

		make(&m, &wides[0], &o);
		row = row_bytes(&m);
		/* The last ones, so that the first half of a row is good unless all are lost. */
		for (unsigned i = 16 - lost; i < 16; i++) {
			char key[16];

			snprintf(key, sizeof(key), "a/1.%u", i);
			damage(&m, key);
		}
		for (uint64_t slab = 16; slab < 32; slab += 4) {
			before = m.env.chunks_decoded;
			check_fails(&m, slab * row, row, lost == 16 ? "'a/1.0'" : "'a/1.");
			after = m.env.chunks_decoded;
			/* Those that were opened together with a damaged chunk, and again alone. */
			assert_true(after - before <= 2 * (16 - lost));
			for (uint64_t i = slab; i < slab + 4; i++) {
				if (lost < 10)
					check(&m, i * row, 90 * 4);
				else
					check_fails(&m, i * row, row / 2, "'a/1.");
				check_fails(&m, i * row, row, "'a/1.");
				check_fails(&m, i * row + 3, row - 3, "'a/1.");
			}
			/* Without slabs, each request decodes the good ones anew. */
			assert_int_equal(m.env.chunks_decoded, after);
		}
		made_release(&m);
	}
}

static void a_chunk_that_must_be_stored_is_damage(void **state)
{
	struct made_opts o = { .seed = 126, .missing = 30 };
	struct zarr_view v;
	uint8_t got[1024];
	struct made m;
	int r;

	make(&m, &wides[0], &o);
	m.z->missing_is_error = true;
	zarr_view_whole(&m.meta, &v);
	for (int i = 0; i < 3; i++) {
		r = zarr_read_into(m.z, &v, 0, 1024, got);
		assert_int_equal(r, -EUCLEAN);
		assert_non_null(strstr(err_text(r), "is not stored"));
	}
	made_release(&m);
}

static void views_fail_where_the_damage_is(void **state)
{
	struct made_opts o = { .seed = 128 };
	struct zarr_view v;
	uint8_t got[8192];
	struct made m;
	uint64_t row;
	int r;

	make(&m, &wides[0], &o);
	row = row_bytes(&m);
	damage(&m, "a/1.15");
	for (int i = 0; i < 4; i++) {
		zarr_view_whole(&m.meta, &v);
		/* Columns 8 to 231, then up to 240: the first column of the damaged chunk. */
		assert_int_equal(zarr_view_slice(&v, 1, 8, 1, 224, false), 0);
		assert_int_equal(zarr_view_cast(&v, DTYPE_FLOAT64), 0);
		assert_true(slab_is_for(m.z, &v));
		check_view(&m, &v, "beside damage");
		zarr_view_whole(&m.meta, &v);
		assert_int_equal(zarr_view_slice(&v, 1, 8, 1, 233, false), 0);
		assert_int_equal(zarr_view_cast(&v, DTYPE_FLOAT64), 0);
		assert_true(slab_is_for(m.z, &v));
		r = zarr_read_into(m.z, &v, 20 * 233 * 8, 233 * 8, got);
		assert_int_equal(r, -EUCLEAN);
		assert_non_null(strstr(err_text(r), "'a/1.15'"));
		assert_int_equal(zarr_read_into(m.z, &v, 20 * 233 * 8, 232 * 8, got), 0);
		for (int k = 0; k < 232; k++) {
			double want;

			cast(DTYPE_FLOAT64, &want, DTYPE_FLOAT32, m.want + 20 * row + (8 + k) * 4,
			     1);
			assert_memory_equal(got + k * 8, &want, 8);
		}
		check_fails(&m, 20 * row, row, "'a/1.15'");
	}
	made_release(&m);
}

/* Repair one of two chunks of a band, and then the other one. */
static void a_repaired_chunk_is_read_again(void **state)
{
	for (unsigned threads = 0; threads < 3; threads++) {
		struct made_opts o = { .seed = 130, .threads = threads };
		auto_buf good = { 0 }, other = { 0 };
		uint64_t row, decoded;
		struct made m;

		make(&m, &wides[0], &o);
		row = row_bytes(&m);
		assert_int_equal(kv_get_all(m.kv, span_str("a/1.5"), MiB, &good), 1);
		assert_int_equal(kv_get_all(m.kv, span_str("a/1.15"), MiB, &other), 1);
		damage(&m, "a/1.5");
		damage(&m, "a/1.15");
		check_fails(&m, 20 * row, row, "'a/1.5'");
		decoded = m.env.chunks_decoded;
		assert_int_equal(kv_put(m.kv, span_str("a/1.5"), buf_span(&good)), 0);
		check_fails(&m, 20 * row, row, "'a/1.15'");
		check(&m, 20 * row, 240 * 4);
		check(&m, 21 * row + 5, 200 * 4);
		/* The repaired chunk alone, which may be decoded for each request. */
		assert_true(m.env.chunks_decoded - decoded <= 3);
		assert_int_equal(kv_put(m.kv, span_str("a/1.15"), buf_span(&other)), 0);
		check(&m, 20 * row, row);
		check(&m, 0, m.meta.bytes);
		made_release(&m);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_damaged_chunk_is_named_and_its_neighbours_are_read),
		cmocka_unit_test(good_chunks_beside_damaged_ones_are_decoded_once),
		cmocka_unit_test(a_chunk_that_must_be_stored_is_damage),
		cmocka_unit_test(views_fail_where_the_damage_is),
		cmocka_unit_test(a_repaired_chunk_is_read_again),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
