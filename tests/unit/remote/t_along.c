/* SPDX-License-Identifier: Apache-2.0 */
/*
 * t_along.c - ranges of objects that were fetched before they are read.
 */
#include "core/remote/source/url_store_impl.h"
#include "tests/unit/lib/unit.h"

static void add(struct store *s, const char *path, const char *tag, uint64_t size, uint64_t off,
		const char *bytes)
{
	struct io_object o = { .size = size };

	strcpy(o.tag, tag);
	along_put(&s->along, path, &o, off, strlen(bytes), (uint8_t *)strdup(bytes));
}

/* The bytes of a range that are kept, as text. */
static const char *get(struct store *s, const char *path, const char *tag, uint64_t size,
		       uint64_t off, size_t n)
{
	static char text[64];
	struct io_file file = { .key = (char *)(uintptr_t)path,
				.tag = (char *)(uintptr_t)tag,
				.size = size };

	memset(text, 0, sizeof(text));
	assert_in_range(along_read(s, &file, off, n, text), 0, n);
	return text;
}

static void setup(struct store *s)
{
	object_lists_init(&s->listings, 60000);
	along_init(&s->along, 60000);
}

static void teardown(struct store *s)
{
	object_lists_release(&s->listings);
	along_release(&s->along);
}

static void test_ranges(void **state)
{
	struct store s = { 0 };

	setup(&s);
	add(&s, "d/x", "t", 100, 20, "0123456789");
	/* Other objects, and ranges before or after the kept one. */
	assert_string_equal(get(&s, "d/y", "t", 100, 20, 5), "");
	assert_string_equal(get(&s, "d/x", "u", 100, 20, 5), "");
	assert_string_equal(get(&s, "d/x", "t", 101, 20, 5), "");
	assert_string_equal(get(&s, "d/x", "t", 100, 19, 5), "");
	assert_string_equal(get(&s, "d/x", "t", 100, 30, 5), "");
	/* A part of it; of a longer range as much as is kept, which is read once only. */
	assert_string_equal(get(&s, "d/x", "t", 100, 22, 3), "234");
	assert_string_equal(get(&s, "d/x", "t", 100, 25, 30), "56789");
	assert_string_equal(get(&s, "d/x", "t", 100, 22, 3), "");
	/* A small document that is kept as a whole can be read again. */
	add(&s, "d/z", "t", 3, 0, "abc");
	assert_string_equal(get(&s, "d/z", "t", 3, 0, 3), "abc");
	assert_string_equal(get(&s, "d/z", "t", 3, 0, 3), "abc");
	teardown(&s);
}

static void test_a_root_that_is_deeper(void **state)
{
	struct store s = { 0 };

	setup(&s);
	add(&s, "run/7/a", "t", 1, 0, "a");
	add(&s, "run/70/b", "t", 1, 0, "b");
	add(&s, "run/7/d/c", "t", 1, 0, "c");
	along_descend(&s.along, "");
	along_descend(&s.along, "run/7");
	assert_string_equal(get(&s, "a", "t", 1, 0, 1), "a");
	assert_string_equal(get(&s, "d/c", "t", 1, 0, 1), "c");
	assert_int_equal(s.along.bytes, 2);
	teardown(&s);
}

/* If a directory can be listed, only its first objects are looked up by ranges. */
static void test_look_ups_by_ranges(void **state)
{
	struct store s = { 0 };

	setup(&s);
	for (int i = 0; i < 5; i++)
		assert_int_equal(along_by_range(&s.along, "d/x", true), i < 3);
	assert_true(along_by_range(&s.along, "d/x", false));
	assert_true(along_by_range(&s.along, "x", true));
	assert_true(along_by_range(&s.along, "d/x", true));
	teardown(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_ranges),
		cmocka_unit_test(test_a_root_that_is_deeper),
		cmocka_unit_test(test_look_ups_by_ranges),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
