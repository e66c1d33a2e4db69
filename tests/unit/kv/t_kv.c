/* SPDX-License-Identifier: Apache-2.0 */
/*
 * t_kv.c - the directory store and the memory store give the same answers.
 */
#include "tests/unit/lib/unit.h"
#include "tests/unit/lib/tmp_dir.h"

#include <stdio.h>

#include "core/kv/kv.h"

static char root[TMP_DIR_MAX];

static int setup(void **state)
{
	return tmp_dir_make(root, "t_kv");
}

static int teardown(void **state)
{
	return tmp_dir_remove(root);
}

static const struct {
	const char *key, *value;
} pairs[] = {
	{ "a.b/.zarray", "{}" },
	{ "a.b/0.0", "0123456789" },
	{ "a/c/0/1", "xy" },
	{ "top", "" },
};

static struct kv *mem_store(void)
{
	struct kv *kv;

	assert_int_equal(kv_mem_new(NULL, &kv), 0);
	for (size_t i = ARRAY_LEN(pairs); i > 0; i--)
		assert_int_equal(
			kv_put(kv, span_str(pairs[i - 1].key), span_str(pairs[i - 1].value)), 0);
	return kv;
}

static struct kv *dir_store(struct io_engine *io)
{
	static const char *const dirs[] = { "a.b", "a", "a/c", "a/c/0" };
	struct io_dir *dir;
	struct kv *kv;

	assert_int_equal(io_dir_open(io, root, &dir), 0);
	for (size_t i = 0; i < ARRAY_LEN(dirs); i++)
		io_dirop(dir, IO_MKDIR, dirs[i], NULL, 0700);
	for (size_t i = 0; i < ARRAY_LEN(pairs); i++)
		assert_int_equal(io_write_file(dir, pairs[i].key, span_str(pairs[i].value)), 0);
	assert_int_equal(io_write_file(dir, "a.b/0.0.__lock", span_str("junk")), 0);
	assert_int_equal(kv_dir_open(dir, &kv), 0);
	return kv;
}

struct visited {
	unsigned n;
	uint64_t bytes;
};

static int see(void *arg, struct span key, uint64_t len)
{
	struct visited *s = arg;

	assert_false(span_ends(key, span_str("lock")));
	s->n++;
	s->bytes += len;
	return 0;
}

static void check_store(struct kv *kv)
{
	static const struct {
		const char *prefix;
		unsigned n;
		uint64_t bytes;
	} lists[] = {
		{ "", 4, 14 },      { "a", 3, 14 },     { "a.b/", 2, 12 }, { "a/", 1, 2 },
		{ "a/c/0/", 1, 2 }, { "a.b/0", 1, 10 }, { "b", 0, 0 },     { "a.b/0.0", 1, 10 },
		{ "x/y/", 0, 0 },   { "../", 0, 0 },
	};
	auto_buf part = { 0 }, none = { 0 }, all = { 0 };
	struct kv_get get[3] = {
		{ span_str("a.b/0.0"), 2, 5, &part, false },
		{ span_str("a.b/1.0"), 0, UINT64_MAX, &none, false },
		{ span_str("a.b/0.0"), 8, UINT64_MAX, &all, false },
	};

	assert_int_equal(kv_get(kv, get, 3), 0);
	assert_true(get[0].found);
	assert_false(get[1].found);
	assert_string_equal(buf_str(&part), "23456");
	assert_string_equal(buf_str(&all), "89");
	get[0].len = 9;
	assert_int_equal(kv_get(kv, get, 1), -EUCLEAN);
	assert_string_equal(err_text(-EUCLEAN),
			    "value of 'a.b/0.0' has 10 bytes, 9 at offset 2 were wanted");
	assert_int_equal(part.n, 5);
	buf_clear(&all);
	assert_int_equal(kv_get_all(kv, span_str("top"), 10, &all), 1);
	assert_int_equal(kv_get_all(kv, span_str("a.b/0.0"), 9, &all), -EFBIG);
	assert_int_equal(kv_get_all(kv, span_str("../x"), 9, &all), 0);
	assert_int_equal(kv_get_all(kv, span_str("a"), 9, &all), 0);
	assert_int_equal(kv_get_all(kv, span_str("top/x"), 9, &all), 0);
	for (size_t i = 0; i < ARRAY_LEN(lists); i++) {
		struct visited s = { 0 };

		assert_int_equal(kv_list(kv, span_str(lists[i].prefix), see, &s), 0);
		if (s.n != lists[i].n || s.bytes != lists[i].bytes)
			fail_msg("prefix '%s': %u keys, %llu bytes", lists[i].prefix, s.n,
				 (unsigned long long)s.bytes);
	}
}

static void the_memory_store_answers(void **state)
{
	struct kv *kv = mem_store();

	check_store(kv);
	assert_int_equal(kv_put(kv, span_str("top"), span_str("new")), 0);
	kv_free(kv);
}

static void the_directory_store_answers_the_same(void **state)
{
	struct io_engine *io;
	struct kv *kv;

	assert_int_equal(io_engine_open("auto", &io), 0);
	kv = dir_store(io);
	check_store(kv);
	assert_int_equal(kv_put(kv, span_str("top"), span_str("new")), -EROFS);
	kv_free(kv);
	io_engine_close(io);
}

/* Memory grows at some of these lengths. */
static void keys_of_every_length_are_listed(void **state)
{
	struct io_engine *io;
	struct io_dir *dir;
	struct kv *kv;
	char name[200] = "long-";

	assert_int_equal(io_engine_open("sync", &io), 0);
	assert_int_equal(io_dir_open(io, root, &dir), 0);
	assert_int_equal(kv_dir_open(dir, &kv), 0);
	for (size_t n = strlen(name); n < sizeof(name) - 1; n++) {
		struct visited s = { 0 };

		name[n] = 'x';
		assert_int_equal(io_write_file(dir, name, span_str("1")), 0);
		assert_int_equal(kv_list(kv, span_str("long-"), see, &s), 0);
		assert_int_equal(s.n, 1);
		assert_int_equal(io_dirop(dir, IO_UNLINK, name, NULL, 0), 0);
	}
	kv_free(kv);
	io_engine_close(io);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_memory_store_answers),
		cmocka_unit_test(the_directory_store_answers_the_same),
		cmocka_unit_test(keys_of_every_length_are_listed),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
