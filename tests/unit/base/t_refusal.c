/* SPDX-License-Identifier: Apache-2.0 */
/*
 * t_refusal.c - which errors are remembered, for which object, and for how long.
 *
 * No test waits: times that would have passed are written into the record.
 */
#include "tests/unit/lib/unit.h"

#include "core/base/cache.h"
#include "core/base/clock.h"
#include "core/base/meter.h"
#include "core/base/refusal.h"

#define MARK 7
#define HOUR_NS (3600 * SECOND_NS) /* longer than any test takes */

/* Report an error of an operation that took an hour. */
static int keep(struct refusal *f, int r)
{
	return refusal_keep(f, MARK, clock_ns() - HOUR_NS, fail(r, "the %s of it", "reason"));
}

static void the_error_comes_back_with_its_note(void **state)
{
	struct refusal f = { 0 };

	assert_int_equal(refusal_ask(&f, MARK), 0);
	assert_int_equal(keep(&f, -EUCLEAN), -EUCLEAN);
	assert_string_equal(err_text(-EUCLEAN), "the reason of it");
	err_clear();
	assert_int_equal(refusal_ask(&f, MARK), -EUCLEAN);
	assert_string_equal(err_text(-EUCLEAN), "the reason of it");
	assert_int_equal(refusal_ask(&f, MARK + 1), 0);
	f.until = clock_ns();
	assert_int_equal(refusal_ask(&f, MARK), 0);
}

static void errors_not_worth_it_are_not_remembered(void **state)
{
	/* A retry may succeed: -EIO and the like. */
	static const int passing[] = { -EIO, -EMFILE, -EAGAIN, -ENOSPC, -ETIMEDOUT };
	struct refusal f = { 0 };

	for (size_t i = 0; i < ARRAY_LEN(passing); i++)
		assert_int_equal(keep(&f, passing[i]), passing[i]);
	assert_int_equal(keep(&f, 0), 0);
	/* It began an hour from now, so it took less than any limit. */
	assert_int_equal(refusal_keep(&f, MARK, clock_ns() + HOUR_NS, -EUCLEAN), -EUCLEAN);
	assert_int_equal(f.hold, 0);
	/* With began 0 the time does not matter. */
	assert_int_equal(refusal_keep(&f, MARK, 0, -EUCLEAN), -EUCLEAN);
	assert_int_equal(refusal_ask(&f, MARK), -EUCLEAN);
	/* An error that is not remembered does not replace the one that is. */
	assert_int_equal(keep(&f, -EIO), -EIO);
	assert_int_equal(refusal_ask(&f, MARK), -EUCLEAN);
}

static void too_much_memory_is_remembered_twice_as_long_each_time(void **state)
{
	struct refusal f = { 0 };
	int64_t hold = REFUSAL_NS;

	for (int i = 0; i < 10; i++) {
		int64_t now = clock_ns();

		assert_int_equal(keep(&f, -EFBIG), -EFBIG);
		assert_int_equal(f.hold, hold);
		assert_true(f.until >= now + hold && f.until <= clock_ns() + hold);
		hold = MIN(2 * hold, (int64_t)REFUSAL_MOST_NS);
		f.until = clock_ns();
	}
	assert_int_equal(f.hold, REFUSAL_MOST_NS);
	/* Other bytes or another error start with the first duration again. */
	assert_int_equal(refusal_keep(&f, MARK + 1, 0, -EFBIG), -EFBIG);
	assert_int_equal(f.hold, REFUSAL_NS);
	keep(&f, -EFBIG);
	keep(&f, -EFBIG);
	assert_int_equal(f.hold, 2 * REFUSAL_NS);
	keep(&f, -EUCLEAN);
	assert_int_equal(f.hold, REFUSAL_NS);
}

static void short_memory_is_remembered_until_more_is_free(void **state)
{
	struct refusal f = { 0 };
	struct cache *cache;

	assert_int_equal(cache_new(16 * MiB, &cache), 0);
	cache_give_way(cache);
	assert_int_equal(meter_charge(32 * MiB), 0);
	assert_int_equal(keep(&f, -ENOMEM), -ENOMEM);
	assert_int_equal(refusal_ask(&f, MARK), -ENOMEM);
	/* A little more memory does not justify a retry. */
	meter_release(METER_RESERVED - 1);
	assert_int_equal(refusal_ask(&f, MARK), -ENOMEM);
	meter_release(1);
	assert_int_equal(refusal_ask(&f, MARK), 0);
	/* Other errors do not depend on free memory. */
	assert_int_equal(keep(&f, -EFBIG), -EFBIG);
	meter_release(32 * MiB - METER_RESERVED);
	assert_int_equal(refusal_ask(&f, MARK), -EFBIG);
	cache_free(cache);
}

/* ---- errors of many objects ---- */

static void each_key_has_its_own(void **state)
{
	struct refusals t;

	refusals_init(&t, 3);
	assert_false(refusals_any(&t));
	assert_int_equal(refusals_ask(&t, span_str("a"), MARK), 0);
	assert_int_equal(refusals_keep(&t, span_str("a"), MARK, 0, -EIO), -EIO);
	assert_false(refusals_any(&t));
	assert_int_equal(refusals_keep(&t, span_str("a"), MARK, 0, fail(-EUCLEAN, "of a")),
			 -EUCLEAN);
	assert_int_equal(refusals_keep(&t, span_str("ab"), MARK, 0, fail(-EFBIG, "of ab")), -EFBIG);
	assert_true(refusals_any(&t));
	assert_int_equal(refusals_ask(&t, span_str("a"), MARK), -EUCLEAN);
	assert_string_equal(err_text(-EUCLEAN), "of a");
	assert_int_equal(refusals_ask(&t, span_str("ab"), MARK), -EFBIG);
	assert_string_equal(err_text(-EFBIG), "of ab");
	assert_int_equal(refusals_ask(&t, span_str("ab"), MARK + 1), 0);
	assert_int_equal(refusals_ask(&t, span_str("b"), MARK), 0);
	assert_int_equal(refusals_ask(&t, span_str(""), MARK), 0);
	refusals_release(&t);
}

static void a_new_key_replaces_the_oldest(void **state)
{
	static const char *const keys[] = { "a", "b", "c", "d" };
	struct refusals t;

	refusals_init(&t, 3);
	for (size_t i = 0; i < ARRAY_LEN(keys); i++)
		for (uint64_t mark = 1; mark <= 5; mark++)
			refusals_keep(&t, span_str(keys[i]), mark, 0, -EUCLEAN);
	assert_int_equal(refusals_ask(&t, span_str("a"), 5), 0);
	for (size_t i = 1; i < ARRAY_LEN(keys); i++) {
		assert_int_equal(refusals_ask(&t, span_str(keys[i]), 5), -EUCLEAN);
		assert_int_equal(refusals_ask(&t, span_str(keys[i]), 4), 0);
	}
	refusals_release(&t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_error_comes_back_with_its_note),
		cmocka_unit_test(errors_not_worth_it_are_not_remembered),
		cmocka_unit_test(too_much_memory_is_remembered_twice_as_long_each_time),
		cmocka_unit_test(short_memory_is_remembered_until_more_is_free),
		cmocka_unit_test(each_key_has_its_own),
		cmocka_unit_test(a_new_key_replaces_the_oldest),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
