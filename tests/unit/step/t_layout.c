/* SPDX-License-Identifier: Apache-2.0 */
/*
 * t_layout.c - chunk shapes and replica slices. Compared with Orbax's own functions on many more
 * arrays in tests/interop.
 */
#include "tests/unit/lib/unit.h"

#include <string.h>

#include "core/base/mem.h"
#include "core/step/layout.h"

struct example {
	unsigned rank;
	uint64_t shape[4], write[4], item;
	int64_t chunk_bytes; /* -1: none */
	int64_t file_size;   /* -1: no OCDBT */
	unsigned n_axes, axes[4];
	uint64_t want[4];
	int error;
};

static void check(size_t i, const struct example *e)
{
	uint64_t got[LIMIT_RANK] = { 77 };
	const struct layout l = {
		.rank = e->rank,
		.shape = e->shape,
		.write_shape = e->write,
		.item_size = e->item,
		.has_chunk_bytes = e->chunk_bytes >= 0,
		.chunk_bytes = (uint64_t)e->chunk_bytes,
		.ocdbt = e->file_size >= 0,
		.file_size = (uint64_t)e->file_size,
		.n_axes = e->n_axes,
		.axes = e->axes,
	};
	int r = layout_chunk_shape(&l, got);

	if (r != e->error)
		fail_msg("case %zu: %d %s", i, r, err_text(r));
	if (r < 0)
		assert_int_equal(got[0], 77);
	for (unsigned k = 0; r == 0 && k < e->rank; k++)
		if (got[k] != e->want[k])
			fail_msg("case %zu: axis %u is %llu", i, k, (unsigned long long)got[k]);
}

static void chunk_shapes(void **state)
{
	/* clang-format off */
	static const struct example cases[] = {
		/* Nothing requires a cut. */
		{ 2, { 64, 64 }, { 64, 64 }, 4, -1, 1 << 30, 0, { 0 }, { 64, 64 } },
		{ 2, { 64, 64 }, { 64, 64 }, 4, -1, -1, 0, { 0 }, { 64, 64 } },
		{ 0, { 0 }, { 0 }, 4, -1, 1 << 30, 0, { 0 }, { 0 } },
		{ 2, { 0, 5 }, { 0, 5 }, 4, -1, 1, 0, { 0 }, { 1, 5 } },
		/* The longest axis first, the first of equal ones. */
		{ 2, { 64, 64 }, { 64, 64 }, 4, 8192, 0, 0, { 0 }, { 32, 64 } },
		{ 2, { 64, 64 }, { 64, 64 }, 4, 8191, 0, 0, { 0 }, { 32, 32 } },
		{ 2, { 16, 64 }, { 16, 64 }, 4, 2048, -1, 0, { 0 }, { 16, 32 } },
		/* An axis that the sharding cut is cut further, before longer ones. */
		{ 2, { 64, 64 }, { 8, 64 }, 4, 1024, 0, 0, { 0 }, { 4, 64 } },
		{ 2, { 64, 64 }, { 8, 64 }, 4, 4, 0, 0, { 0 }, { 1, 1 } },
		/* An axis shrinks to its divisors, not to halves. */
		{ 1, { 30 }, { 30 }, 1, 14, 0, 0, { 0 }, { 10 } },
		{ 1, { 17 }, { 17 }, 1, 16, 0, 0, { 0 }, { 1 } },
		{ 1, { 49 }, { 49 }, 1, 48, 0, 0, { 0 }, { 7 } },
		{ 1, { 36 }, { 36 }, 1, 6, 0, 0, { 0 }, { 6 } },
		{ 1, { 36 }, { 36 }, 1, 5, 0, 0, { 0 }, { 4 } },
		/* The file size bounds chunks only with OCDBT. */
		{ 1, { 1024 }, { 1024 }, 4, -1, 1000, 0, { 0 }, { 128 } },
		{ 1, { 1024 }, { 1024 }, 4, -1, 4096, 0, { 0 }, { 1024 } },
		{ 1, { 1024 }, { 1024 }, 4, 2048, 1000, 0, { 0 }, { 128 } },
		{ 1, { 1024 }, { 1024 }, 4, 2048, -1, 0, { 0 }, { 512 } },
		/* shard_axes are cut completely, with and without a limit. */
		{ 2, { 12, 6 }, { 12, 6 }, 4, -1, 0, 1, { 1 }, { 12, 1 } },
		{ 2, { 12, 6 }, { 12, 6 }, 4, 16, 0, 1, { 1 }, { 4, 1 } },
		{ 2, { 12, 6 }, { 12, 6 }, 4, -1, 0, 2, { 1, 1 }, { 12, 1 } },
		/* Invalid parameters. */
		{ 1, { 8 }, { 8 }, 4, 3, 0, 0, { 0 }, { 0 }, -EINVAL },
		{ 1, { 8 }, { 8 }, 4, -1, 3, 0, { 0 }, { 0 }, -EINVAL },
		{ 1, { 8 }, { 8 }, 4, -1, 0, 1, { 1 }, { 0 }, -EINVAL },
		{ 1, { (uint64_t)1 << 60 }, { (uint64_t)1 << 60 }, 4, -1, 1 << 30, 0, { 0 }, { 0 },
		  -EFBIG },
		/* The elements cannot be counted, but nothing has to be cut. */
		{ 3, { (uint64_t)1 << 40, (uint64_t)1 << 40, 0 }, { (uint64_t)1 << 40,
		  (uint64_t)1 << 40, 0 }, 4, -1,
		  1 << 30, 0, { 0 }, { (uint64_t)1 << 40, (uint64_t)1 << 40, 1 } },
		{ 2, { (uint64_t)1 << 40, (uint64_t)1 << 40 }, { (uint64_t)1 << 40,
		  (uint64_t)1 << 40 }, 4, -1,
		  1 << 30, 0, { 0 }, { 0 }, -EFBIG },
	};
	/* clang-format on */

	for (size_t i = 0; i < ARRAY_LEN(cases); i++)
		check(i, &cases[i]);
}

/* Compares all steps of an axis with the divisors found by trial. */
static void every_divisor_is_found(void **state)
{
	for (uint64_t n = 1; n < 2000; n++) {
		uint64_t want = n;

		for (uint64_t limit = n; limit > 0; limit--) {
			const struct layout l = { .rank = 1,
						  .shape = &n,
						  .write_shape = &n,
						  .item_size = 1,
						  .has_chunk_bytes = true,
						  .chunk_bytes = limit };
			uint64_t got[LIMIT_RANK];

			/* The largest divisor that is not above the limit. */
			while (want > limit || n % want)
				want--;
			assert_int_equal(layout_chunk_shape(&l, got), 0);
			assert_int_equal(got[0], want);
		}
	}
}

static void long_axes_are_cut_quickly(void **state)
{
	/* The largest prime below 2^48, and a product of two primes of 24 bits. */
	static const uint64_t prime = 281474976710597, two = (uint64_t)16777213 * 16777199;
	struct layout l = {
		.rank = 1, .item_size = 1, .has_chunk_bytes = true, .chunk_bytes = 1 << 25
	};
	uint64_t got[LIMIT_RANK];

	l.shape = l.write_shape = &prime;
	assert_int_equal(layout_chunk_shape(&l, got), 0);
	assert_int_equal(got[0], 1);
	l.shape = l.write_shape = &two;
	assert_int_equal(layout_chunk_shape(&l, got), 0);
	assert_int_equal(got[0], 16777213);
}

static void replica_slices(void **state)
{
	/* clang-format off */
	static const struct {
		unsigned rank;
		uint64_t block[3], replicas, max, item, min;
		bool sliced;
		unsigned axis;
		uint64_t count, want[3];
	} cases[] = {
		{ 2, { 4, 8 }, 2, 0, 4, 0, true, 0, 2, { 2, 8 } },
		{ 2, { 8, 8 }, 8, 0, 4, 0, true, 0, 8, { 1, 8 } },
		{ 2, { 3, 8 }, 4, 0, 4, 0, true, 1, 4, { 3, 2 } },
		{ 2, { 3, 5 }, 2, 0, 4, 0, false, 0, 1, { 3, 5 } },
		{ 2, { 4, 8 }, 1, 0, 4, 0, false, 0, 1, { 4, 8 } },
		{ 2, { 12, 8 }, 8, 3, 4, 0, true, 0, 3, { 4, 8 } },
		{ 2, { 4, 8 }, 8, 1, 4, 0, false, 0, 1, { 4, 8 } },
		{ 2, { 0, 8 }, 2, 0, 4, 0, false, 0, 1, { 0, 8 } },
		{ 0, { 0 }, 8, 0, 4, 0, false, 0, 1, { 0 } },
		{ 1, { 8 }, 2, 0, 4, 16, true, 0, 2, { 4 } },
		{ 1, { 8 }, 2, 0, 4, 17, false, 0, 1, { 8 } },
		{ 2, { (uint64_t)1 << 40, (uint64_t)1 << 40 }, 2, 0, 4, 1 << 30, true, 0, 2,
		  { (uint64_t)1 << 39, (uint64_t)1 << 40 } },
	};
	/* clang-format on */

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct layout_replicas r;

		layout_replicas(cases[i].block, cases[i].rank, cases[i].replicas, cases[i].max,
				cases[i].item, cases[i].min, &r);
		assert_int_equal(r.sliced, cases[i].sliced);
		assert_int_equal(r.axis, cases[i].axis);
		assert_int_equal(r.count, cases[i].count);
		assert_memory_equal(r.write_shape, cases[i].want, cases[i].rank * sizeof(uint64_t));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(chunk_shapes),
		cmocka_unit_test(every_divisor_is_found),
		cmocka_unit_test(long_axes_are_cut_quickly),
		cmocka_unit_test(replica_slices),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
