/* SPDX-License-Identifier: Apache-2.0 */
/*
 * t_object_list.c - listings of a store's directories: names, and the last ones that are kept.
 */
#include "core/remote/source/object_list.h"
#include "tests/unit/lib/unit.h"

static struct object_list *list_of(const char *path, const char *const *names, size_t n)
{
	struct object_list *l;

	assert_int_equal(object_list_new(path, &l), 0);
	for (size_t i = 0; i < n; i++) {
		struct io_object o = { .size = i, .mtime.tv_sec = (time_t)i, .tag = "t" };
		size_t len = strlen(names[i]);

		o.is_dir = len && names[i][len - 1] == '/';
		assert_int_equal(object_list_add(l, span_of(names[i], len - o.is_dir), &o), 0);
	}
	object_list_finish(l);
	return l;
}

static void test_names(void **state)
{
	static const char *const names[] = { "b", "a", "b/", "..", ".", "" };
	struct object_list *l = list_of("x", names, ARRAY_LEN(names));
	struct io_object o;

	/* Names that no file system has are left out; a directory hides an object of its name. */
	assert_int_equal(l->n, 2);
	assert_true(object_list_find(l, "a", &o) && !o.is_dir && o.size == 1);
	assert_string_equal(o.tag, "t");
	assert_true(object_list_find(l, "b", &o) && o.is_dir);
	assert_false(object_list_find(l, "..", &o));
	assert_int_equal(object_list_newest(l).tv_sec, 2);
	object_list_free(l);
}

/* In a partial listing, a name that was asked for and not found does not exist. */
static void test_what_a_part_lacks(void **state)
{
	static const char *const names[] = { "a" };
	static const char *const asked[] = { "a", "b", NULL };
	struct object_list *l = list_of("x", names, ARRAY_LEN(names));

	assert_true(object_list_lacks(l, "b") && object_list_lacks(l, "c"));
	l->is_partial = true;
	assert_false(object_list_lacks(l, "b") || object_list_lacks(l, "c"));
	l->asked = asked;
	assert_true(object_list_lacks(l, "b"));
	assert_false(object_list_lacks(l, "c"));
	object_list_free(l);
}

static void test_the_last_ones_are_remembered(void **state)
{
	static const char *const names[] = { "a" };
	struct object_lists c;
	struct object_list *l;
	char path[16];

	object_lists_init(&c, 60000);
	for (int i = 0; i < 600; i++) {
		snprintf(path, sizeof(path), "d%d", i);
		l = list_of(path, names, 1);
		object_lists_put(&c, l);
		object_lists_unref(&c, l);
	}
	assert_null(object_lists_get(&c, "d0"));
	l = object_lists_get(&c, "d599");
	assert_non_null(l);
	/* A listing that is in use remains valid after it was dropped. */
	l->expires = 0;
	assert_null(object_lists_get(&c, "d599"));
	object_lists_put(&c, list_of("other", names, 1));
	assert_string_equal(l->path, "d599");
	object_lists_unref(&c, l);
	l = object_lists_get(&c, "other");
	object_lists_unref(&c, l);
	object_lists_unref(&c, l);
	object_lists_release(&c);
}

/* When a directory becomes the root, listings below it get other paths. */
static void test_a_root_that_is_deeper(void **state)
{
	static const char *const names[] = { "a" };
	static const char *const paths[] = { "", "run", "run/7", "run/70", "run/7/state" };
	struct object_lists c;
	struct object_list *l;

	object_lists_init(&c, 60000);
	for (size_t i = 0; i < ARRAY_LEN(paths); i++) {
		l = list_of(paths[i], names, 1);
		object_lists_put(&c, l);
		object_lists_unref(&c, l);
	}
	object_lists_descend(&c, "run/7");
	for (size_t i = 0; i < ARRAY_LEN(paths); i++) {
		l = object_lists_get(&c, paths[i]);
		assert_true((l != NULL) == (i == 0));
		if (l)
			object_lists_unref(&c, l);
	}
	l = object_lists_get(&c, "state");
	assert_non_null(l);
	object_lists_unref(&c, l);
	object_lists_descend(&c, "");
	l = object_lists_get(&c, "state");
	assert_non_null(l);
	object_lists_unref(&c, l);
	object_lists_release(&c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_names),
		cmocka_unit_test(test_what_a_part_lacks),
		cmocka_unit_test(test_the_last_ones_are_remembered),
		cmocka_unit_test(test_a_root_that_is_deeper),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
