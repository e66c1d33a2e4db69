/* SPDX-License-Identifier: Apache-2.0 */
/*
 * t_buf.c - a buffer remembers the first add that failed, until it is emptied.
 */
#include "tests/unit/lib/unit.h"

#include "core/base/buf.h"

static void a_sequence_of_adds_is_checked_at_its_end(void **state)
{
	auto_buf b = { 0 };

	buf_add_str(&b, "one");
	assert_int_equal(buf_failed(&b), 0);
	/* The sum of both sizes overflows. */
	assert_int_equal(buf_reserve(&b, SIZE_MAX), -ENOMEM);
	assert_int_equal(buf_add_str(&b, "two"), 0);
	assert_int_equal(buf_failed(&b), -ENOMEM);
	assert_string_equal(buf_str(&b), "onetwo");
}

static void an_emptied_buffer_has_not_failed(void **state)
{
	auto_buf b = { 0 };

	buf_add_str(&b, "one");
	buf_reserve(&b, SIZE_MAX);
	buf_clear(&b);
	assert_int_equal(buf_failed(&b), 0);
	buf_add_str(&b, "one");
	buf_reserve(&b, SIZE_MAX);
	buf_release(&b);
	assert_int_equal(buf_failed(&b), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_sequence_of_adds_is_checked_at_its_end),
		cmocka_unit_test(an_emptied_buffer_has_not_failed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
