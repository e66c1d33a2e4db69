/* SPDX-License-Identifier: Apache-2.0 */
/*
 * t_dir_cache.c - the known state of a store's directories: listings, look-ups, threads that wait,
 * and ranges of objects that were fetched before they are read.
 */
#include "core/remote/source/dir_cache.h"
#include "tests/unit/lib/unit.h"

static struct object_list *list_of(const char *path, unsigned epoch, const char *const *names,
				   size_t n)
{
	struct object_list *l;

	assert_int_equal(object_list_new(path, epoch, &l), 0);
	for (size_t i = 0; i < n; i++) {
		struct io_object o = { .size = i, .mtime.tv_sec = (time_t)i, .tag = "t" };
		size_t len = strlen(names[i]);

		o.is_dir = len && names[i][len - 1] == '/';
		assert_int_equal(object_list_add(l, span_of(names[i], len - o.is_dir), &o), 0);
	}
	object_list_finish(l);
	return l;
}

static void add_list(struct dir_cache *c, const char *path, const char *const *names, size_t n)
{
	struct object_list *l = list_of(path, dir_cache_epoch(c), names, n);

	dir_cache_add_listing(c, l);
	object_list_free(l);
}

static void test_names(void **state)
{
	static const char *const names[] = { "b", "a", "b/", "..", ".", "" };
	struct object_list *l = list_of("x", 0, names, ARRAY_LEN(names));
	struct io_object o;

	/* Names that no file system has are left out; a directory hides an object of its name. */
	assert_int_equal(l->n, 2);
	assert_true(object_list_find(l, "a", &o) && !o.is_dir && o.size == 1);
	assert_string_equal(o.tag, "t");
	assert_true(object_list_find(l, "b", &o) && o.is_dir);
	assert_false(object_list_find(l, "..", &o));
	o = object_list_dir(l);
	assert_true(o.is_dir && o.mtime.tv_sec == 2);
	object_list_free(l);
}

/* In a partial listing, a name that was asked for and not found does not exist. */
static void test_what_a_part_lacks(void **state)
{
	static const char *const names[] = { "a" };
	static const char *const asked[] = { "a", "b", NULL };
	struct object_list *l = list_of("x", 0, names, ARRAY_LEN(names));

	assert_true(object_list_lacks(l, "b") && object_list_lacks(l, "c"));
	l->is_truncated = true;
	assert_false(object_list_lacks(l, "b") || object_list_lacks(l, "c"));
	l->asked = asked;
	assert_true(object_list_lacks(l, "b"));
	assert_false(object_list_lacks(l, "c"));
	object_list_free(l);
}

static void test_the_last_listings(void **state)
{
	static const char *const names[] = { "a" };
	struct dir_cache c;
	struct object_list *l;
	struct io_object o;
	char path[16];

	dir_cache_init(&c, 60000);
	for (int i = 0; i < 600; i++) {
		snprintf(path, sizeof(path), "d%d", i);
		add_list(&c, path, names, 1);
	}
	assert_null(dir_cache_listing(&c, "d0"));
	assert_int_equal(dir_cache_find(&c, "d599/a", &o), 1);
	assert_int_equal(dir_cache_find(&c, "d599/b", &o), 0);
	assert_int_equal(dir_cache_find(&c, "d0/a", &o), -1);
	l = dir_cache_listing(&c, "d599");
	assert_non_null(l);
	/* A listing that is in use remains valid after it was dropped. */
	l->expires = 0;
	assert_null(dir_cache_listing(&c, "d599"));
	add_list(&c, "other", names, 1);
	assert_string_equal(l->path, "d599");
	object_list_free(l);
	assert_int_equal(dir_cache_find(&c, "other/a", &o), 1);
	dir_cache_forget(&c, NULL);
	assert_int_equal(dir_cache_find(&c, "other/a", &o), -1);
	dir_cache_release(&c);
}

/* An answer to an earlier question may lack what this process wrote meanwhile. */
static void test_answers_that_come_late(void **state)
{
	static const char *const names[] = { "1000" };
	struct io_object o = { .size = 3 };
	struct dir_lookup lookup;
	struct object_list *l;
	struct dir_cache c;

	dir_cache_init(&c, 60000);
	l = list_of("root", dir_cache_epoch(&c), names, 1);
	assert_int_equal(dir_cache_lookup(&c, "root/a", &lookup, &o), 0);
	dir_cache_forget(&c, NULL);
	dir_cache_add_listing(&c, l);
	dir_cache_lookup_end(&c, "root/a", &lookup, &o);
	assert_null(dir_cache_listing(&c, "root"));
	assert_int_equal(dir_cache_find(&c, "root/2000", &o), -1);
	assert_int_equal(dir_cache_lookup(&c, "root/a", &lookup, &o), 0);
	dir_cache_lookup_end(&c, "root/a", &lookup, &o);
	assert_int_equal(dir_cache_lookup(&c, "root/a", &lookup, &o), 1);
	/* One object that was replaced says nothing of the others. */
	object_list_free(l);
	l = list_of("root", dir_cache_epoch(&c), names, 1);
	dir_cache_forget(&c, "root/a");
	dir_cache_add_listing(&c, l);
	assert_int_equal(dir_cache_find(&c, "root/2000", &o), 0);
	object_list_free(l);
	dir_cache_release(&c);
}

/* Look up a path and find an object of this size; 0: do not remember it. */
static int look(struct dir_cache *c, const char *path, uint64_t size)
{
	struct io_object o = { .size = size }, known;
	struct dir_lookup lookup;

	if (dir_cache_lookup(c, path, &lookup, &known))
		return (int)known.size;
	dir_cache_lookup_end(c, path, &lookup, size ? &o : NULL);
	return -1;
}

static void test_the_last_look_ups(void **state)
{
	struct dir_cache c;
	char path[16];

	dir_cache_init(&c, 60000);
	assert_int_equal(look(&c, "a", 0), -1);
	assert_int_equal(look(&c, "a", 3), -1);
	assert_int_equal(look(&c, "a", 0), 3);
	dir_cache_forget(&c, "a");
	dir_cache_forget(&c, "b");
	assert_int_equal(look(&c, "a", 4), -1);
	assert_int_equal(look(&c, "a", 0), 4);
	for (int i = 0; i < DIR_CACHE_OBJECTS; i++) {
		snprintf(path, sizeof(path), "d/%d", i);
		assert_int_equal(look(&c, path, 5), -1);
	}
	assert_int_equal(look(&c, "a", 0), -1);
	assert_int_equal(look(&c, "d/7", 0), 5);
	dir_cache_forget(&c, NULL);
	assert_int_equal(look(&c, "d/7", 0), -1);
	dir_cache_release(&c);
	dir_cache_init(&c, 0);
	assert_int_equal(look(&c, "a", 3), -1);
	assert_int_equal(look(&c, "a", 0), -1);
	dir_cache_release(&c);
}

static void *wait_for_it(void *arg)
{
	return (void *)(intptr_t)look(arg, "a", 9);
}

/* Other threads wait for the first one's result; if it fails, each of them asks. */
static void test_one_asks(void **state)
{
	struct io_object o = { .size = 7 };

	for (int found = 0; found < 2; found++) {
		pthread_t thread[4];
		struct dir_lookup lookup;
		struct dir_cache c;
		void *got;

		dir_cache_init(&c, 60000);
		assert_int_equal(dir_cache_lookup(&c, "a", &lookup, &o), 0);
		for (size_t i = 0; i < ARRAY_LEN(thread); i++)
			assert_int_equal(pthread_create(&thread[i], NULL, wait_for_it, &c), 0);
		/* A look-up of another path does not wait. */
		assert_int_equal(look(&c, "b", 1), -1);
		dir_cache_lookup_end(&c, "a", &lookup, found ? &o : NULL);
		for (size_t i = 0; i < ARRAY_LEN(thread); i++) {
			pthread_join(thread[i], &got);
			if (found)
				assert_int_equal((intptr_t)got, 7);
			else
				assert_true((intptr_t)got == -1 || (intptr_t)got == 9);
		}
		assert_int_equal(look(&c, "a", 0), found ? 7 : 9);
		dir_cache_release(&c);
	}
}

static void add(struct dir_cache *c, const char *path, const char *tag, uint64_t size, uint64_t off,
		const char *bytes)
{
	struct io_object o = { .size = size };

	strcpy(o.tag, tag);
	dir_cache_add_bytes(c, path, &o, off, strlen(bytes), (uint8_t *)strdup(bytes));
}

/* The bytes of a range that are known, as text. */
static const char *get(struct dir_cache *c, const char *path, const char *tag, uint64_t size,
		       uint64_t off, size_t n)
{
	static char text[64];
	struct io_file file = { .key = (char *)(uintptr_t)path,
				.tag = (char *)(uintptr_t)tag,
				.size = size };

	memset(text, 0, sizeof(text));
	assert_in_range(dir_cache_read(c, &file, off, n, text), 0, n);
	return text;
}

static void test_ranges(void **state)
{
	struct io_object o = { .size = 3, .tag = "t" };
	struct dir_cache c;

	dir_cache_init(&c, 60000);
	add(&c, "d/x", "t", 100, 20, "0123456789");
	/* Other objects, and ranges before or after the known one. */
	assert_string_equal(get(&c, "d/y", "t", 100, 20, 5), "");
	assert_string_equal(get(&c, "d/x", "u", 100, 20, 5), "");
	assert_string_equal(get(&c, "d/x", "t", 101, 20, 5), "");
	assert_string_equal(get(&c, "d/x", "t", 100, 19, 5), "");
	assert_string_equal(get(&c, "d/x", "t", 100, 30, 5), "");
	/* A part of it; of a longer range as much as is known, which is read once only. */
	assert_string_equal(get(&c, "d/x", "t", 100, 22, 3), "234");
	assert_string_equal(get(&c, "d/x", "t", 100, 25, 30), "56789");
	assert_string_equal(get(&c, "d/x", "t", 100, 22, 3), "");
	/* A small document that is known as a whole can be read again. */
	add(&c, "d/z", "t", 3, 0, "abc");
	assert_true(dir_cache_has_bytes(&c, "d/z", &o));
	assert_string_equal(get(&c, "d/z", "t", 3, 0, 3), "abc");
	assert_string_equal(get(&c, "d/z", "t", 3, 0, 3), "abc");
	dir_cache_forget(&c, "d/z");
	assert_string_equal(get(&c, "d/z", "t", 3, 0, 3), "");
	assert_false(dir_cache_has_bytes(&c, "d/z", &o));
	assert_null(c.object);
	dir_cache_release(&c);
}

/* The bytes of all objects have a limit; the oldest go. */
static void test_the_last_bytes(void **state)
{
	struct io_object o = { .size = DIR_CACHE_BYTES / 2, .tag = "t" };
	struct dir_cache c;

	dir_cache_init(&c, 60000);
	add(&c, "small", "t", 3, 0, "abc");
	for (int i = 0; i < 2; i++)
		dir_cache_add_bytes(&c, i ? "b" : "a", &o, 0, o.size, calloc(1, o.size));
	assert_string_equal(get(&c, "small", "t", 3, 0, 3), "");
	assert_true(dir_cache_has_bytes(&c, "a", &o) && dir_cache_has_bytes(&c, "b", &o));
	dir_cache_release(&c);
}

/* If a directory can be listed, only its first objects are looked up by ranges. */
static void test_look_ups_by_ranges(void **state)
{
	struct dir_cache c;

	dir_cache_init(&c, 60000);
	for (int i = 0; i < 5; i++)
		assert_int_equal(dir_cache_by_range(&c, "d/x", true), i < 3);
	assert_true(dir_cache_by_range(&c, "d/x", false));
	assert_true(dir_cache_by_range(&c, "x", true));
	assert_true(dir_cache_by_range(&c, "d/x", true));
	dir_cache_release(&c);
}

static void test_directories_one_after_the_other(void **state)
{
	struct dir_cache c;

	dir_cache_init(&c, 60000);
	assert_false(dir_cache_is_next(&c, "d/1"));
	assert_true(dir_cache_is_next(&c, "d/2"));
	assert_false(dir_cache_is_next(&c, "e/1"));
	assert_false(dir_cache_is_next(&c, "d/3"));
	dir_cache_release(&c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_names),
		cmocka_unit_test(test_what_a_part_lacks),
		cmocka_unit_test(test_the_last_listings),
		cmocka_unit_test(test_answers_that_come_late),
		cmocka_unit_test(test_the_last_look_ups),
		cmocka_unit_test(test_one_asks),
		cmocka_unit_test(test_ranges),
		cmocka_unit_test(test_the_last_bytes),
		cmocka_unit_test(test_look_ups_by_ranges),
		cmocka_unit_test(test_directories_one_after_the_other),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
