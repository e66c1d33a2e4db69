/* SPDX-License-Identifier: Apache-2.0 */
/*
 * t_refusal.c - which errors are remembered, for which object, and for how long.
 *
 * No test waits: refusal_age() lets time pass.
 */
#include "tests/unit/lib/unit.h"

#include "core/base/cache.h"
#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/meter.h"
#include "core/base/refusal.h"

#define MARK 7
#define HOUR_NS (3600 * SECOND_NS) /* longer than any test takes */
#define SLACK_NS (3 * SECOND_NS)

static uint64_t owner; /* of the objects of the running test */

static int setup(void **state)
{
	owner = cache_owner();
	return 0;
}

static struct refusal_key key(const char *name)
{
	return refusal_key(owner, span_str(name), 0);
}

static int ask(uint64_t mark)
{
	return refusal_ask(key("object"), mark);
}

/* Report an error of an operation that took an hour. */
static int keep(uint64_t mark, int r)
{
	return refusal_keep(key("object"), mark, clock_ns() - HOUR_NS,
			    fail(r, "the %s of it", "reason"));
}

static void the_error_comes_back_with_its_note(void **state)
{
	assert_false(refusal_is_likely(key("object")));
	assert_int_equal(ask(MARK), 0);
	assert_int_equal(keep(MARK, -EUCLEAN), -EUCLEAN);
	assert_string_equal(err_text(-EUCLEAN), "the reason of it");
	err_clear();
	assert_true(refusal_is_likely(key("object")));
	assert_int_equal(ask(MARK), -EUCLEAN);
	assert_string_equal(err_text(-EUCLEAN), "the reason of it");
	assert_int_equal(ask(MARK + 1), 0);
	refusal_age(REFUSAL_NS);
	assert_int_equal(ask(MARK), 0);
}

static void errors_not_worth_it_are_not_remembered(void **state)
{
	/* A retry may succeed: -EIO and the like. */
	static const int passing[] = { -EIO, -EMFILE, -EAGAIN, -ENOSPC, -ETIMEDOUT };

	for (size_t i = 0; i < ARRAY_LEN(passing); i++)
		assert_int_equal(keep(MARK, passing[i]), passing[i]);
	assert_int_equal(keep(MARK, 0), 0);
	/* It began an hour from now, so it took less than any limit. */
	assert_int_equal(refusal_keep(key("object"), MARK, clock_ns() + HOUR_NS, -EUCLEAN),
			 -EUCLEAN);
	assert_false(refusal_is_likely(key("object")));
	/* With began 0 the time does not matter. */
	assert_int_equal(refusal_keep(key("object"), MARK, 0, -EUCLEAN), -EUCLEAN);
	assert_int_equal(ask(MARK), -EUCLEAN);
	/* An error that is not remembered does not replace the one that is. */
	assert_int_equal(keep(MARK, -EIO), -EIO);
	assert_int_equal(ask(MARK), -EUCLEAN);
}

/* Let the remembered error become too old, which takes that long. */
static void outlive(uint64_t mark, int r, int64_t hold)
{
	refusal_age(hold - SLACK_NS);
	assert_int_equal(ask(mark), r);
	refusal_age(SLACK_NS);
	assert_int_equal(ask(mark), 0);
}

static void too_much_memory_is_remembered_twice_as_long_each_time(void **state)
{
	int64_t hold = REFUSAL_NS;

	for (int i = 0; i < 10; i++) {
		assert_int_equal(keep(MARK, -EFBIG), -EFBIG);
		outlive(MARK, -EFBIG, hold);
		hold = MIN(2 * hold, (int64_t)REFUSAL_MOST_NS);
	}
	assert_int_equal(hold, REFUSAL_MOST_NS);
	/* Other bytes or another error start with the first duration again. */
	assert_int_equal(keep(MARK + 1, -EFBIG), -EFBIG);
	outlive(MARK + 1, -EFBIG, REFUSAL_NS);
	assert_int_equal(keep(MARK, -EFBIG), -EFBIG);
	assert_int_equal(keep(MARK, -EFBIG), -EFBIG);
	outlive(MARK, -EFBIG, 2 * REFUSAL_NS);
	assert_int_equal(keep(MARK, -EUCLEAN), -EUCLEAN);
	outlive(MARK, -EUCLEAN, REFUSAL_NS);
}

static void short_memory_is_remembered_until_more_is_free(void **state)
{
	struct cache *cache;

	assert_int_equal(cache_new(16 * MiB, &cache), 0);
	assert_int_equal(meter_charge(32 * MiB), 0);
	assert_int_equal(keep(MARK, -ENOMEM), -ENOMEM);
	assert_int_equal(ask(MARK), -ENOMEM);
	/* A little more memory does not justify a retry. */
	meter_release(METER_RESERVED - 1);
	assert_int_equal(ask(MARK), -ENOMEM);
	meter_release(1);
	assert_int_equal(ask(MARK), 0);
	/* Other errors do not depend on free memory. */
	assert_int_equal(keep(MARK, -EFBIG), -EFBIG);
	meter_release(32 * MiB - METER_RESERVED);
	assert_int_equal(ask(MARK), -EFBIG);
	cache_free(cache);
	/* Nor do errors for want of memory, where nothing limits it. */
	assert_int_equal(keep(MARK, -ENOMEM), -ENOMEM);
	assert_int_equal(ask(MARK), -ENOMEM);
}

static void each_key_has_its_own(void **state)
{
	const struct refusal_key a = key("a"), ab = key("ab");

	assert_int_equal(refusal_ask(a, MARK), 0);
	assert_int_equal(refusal_keep(a, MARK, 0, -EIO), -EIO);
	assert_false(refusal_is_likely(a));
	assert_int_equal(refusal_keep(a, MARK, 0, fail(-EUCLEAN, "of a")), -EUCLEAN);
	assert_int_equal(refusal_keep(ab, MARK, 0, fail(-EFBIG, "of ab")), -EFBIG);
	assert_true(refusal_is_likely(a));
	assert_int_equal(refusal_ask(a, MARK), -EUCLEAN);
	assert_string_equal(err_text(-EUCLEAN), "of a");
	assert_int_equal(refusal_ask(ab, MARK), -EFBIG);
	assert_string_equal(err_text(-EFBIG), "of ab");
	assert_int_equal(refusal_ask(ab, MARK + 1), 0);
	assert_int_equal(refusal_ask(key("b"), MARK), 0);
	assert_int_equal(refusal_ask(refusal_key(cache_owner(), span_str("a"), 0), MARK), 0);
	assert_int_equal(refusal_ask(refusal_key(owner, span_str("a"), 1), MARK), 0);
}

static void a_new_key_replaces_the_oldest(void **state)
{
	for (uint64_t i = 0; i <= REFUSALS_MAX; i++)
		for (uint64_t mark = 1; mark <= 5; mark++)
			refusal_keep(refusal_key(owner, span_str("x"), i), mark, 0, -EUCLEAN);
	assert_int_equal(refusal_ask(refusal_key(owner, span_str("x"), 0), 5), 0);
	for (uint64_t i = 1; i <= REFUSALS_MAX; i++) {
		const struct refusal_key k = refusal_key(owner, span_str("x"), i);

		assert_int_equal(refusal_ask(k, 5), -EUCLEAN);
		assert_int_equal(refusal_ask(k, 4), 0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(the_error_comes_back_with_its_note, setup),
		cmocka_unit_test_setup(errors_not_worth_it_are_not_remembered, setup),
		cmocka_unit_test_setup(too_much_memory_is_remembered_twice_as_long_each_time,
				       setup),
		cmocka_unit_test_setup(short_memory_is_remembered_until_more_is_free, setup),
		cmocka_unit_test_setup(each_key_has_its_own, setup),
		cmocka_unit_test_setup(a_new_key_replaces_the_oldest, setup),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
