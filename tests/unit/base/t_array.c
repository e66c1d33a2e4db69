/* SPDX-License-Identifier: Apache-2.0 */
/*
 * t_array.c - arrays that grow.
 */
#include "tests/unit/lib/unit.h"

#include "core/base/array.h"
#include "core/base/cache.h"
#include "core/base/err.h"
#include "core/base/mem.h"
#include "core/base/meter.h"

static void elements_survive_growth(void **state)
{
	auto_free uint32_t *a = NULL;
	size_t cap = 0;

	for (uint32_t n = 0; n < 1000; n++) {
		size_t had = cap;

		assert_true(array_reserve(a, cap, n + 1));
		assert_true(cap > n);
		/*
		 * It grows by doubling, so that a thousand elements are not moved a thousand times.
		 */
		assert_true(cap == had || cap >= 2 * had);
		a[n] = n * 7;
	}
	for (uint32_t n = 0; n < 1000; n++)
		assert_int_equal(a[n], n * 7);
}

static void failure_changes_nothing(void **state)
{
	auto_free uint64_t *a = NULL;
	uint64_t *was;
	size_t cap = 0;

	assert_true(array_reserve(a, cap, 100));
	assert_int_equal(cap, 100);
	was = a;
	assert_false(array_reserve(a, cap, SIZE_MAX / sizeof(*a) + 1));
	assert_ptr_equal(a, was);
	assert_int_equal(cap, 100);
}

static uint64_t charged(void)
{
	struct meter_stats s;

	meter_stats(&s);
	return s.used;
}

static void the_capacity_is_charged(void **state)
{
	auto_free uint64_t *a = NULL;
	struct cache *cache;
	size_t cap = 0;

	assert_int_equal(cache_new(MiB, &cache), 0);
	for (size_t n = 0; n < 1000; n++) {
		assert_int_equal(array_reserve_charged(a, cap, n + 1, 10), 0);
		assert_true(cap > n);
		assert_int_equal(charged(), 10 * cap);
		a[n] = n;
	}
	/* A refusal changes nothing. */
	assert_int_equal(array_reserve_charged(a, cap, 100 * MiB, 10), -EFBIG);
	assert_non_null(strstr(err_text(-EFBIG), "metadata needs"));
	assert_int_equal(charged(), 10 * cap);
	assert_int_equal(a[999], 999);
	meter_release(10 * cap);
	cache_free(cache);
	/* Nor does a failure to allocate, where nothing limits the memory. */
	assert_int_equal(array_reserve_charged(a, cap, SIZE_MAX / sizeof(*a) + 1, 1), -ENOMEM);
	assert_int_equal(charged(), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(elements_survive_growth),
		cmocka_unit_test(failure_changes_nothing),
		cmocka_unit_test(the_capacity_is_charged),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
