/* SPDX-License-Identifier: Apache-2.0 */
/*
 * t_data_watch.c - the calls that a watcher of data files gets.
 */
#include "tests/unit/lib/ocdbt_test.h"

struct seen {
	uint64_t end;
	unsigned files, grew, cuts, closed;
};

static void grew(void *arg, void **mine, const char *path, struct io_file *file, uint64_t end)
{
	struct seen *s = arg;

	s->files += !*mine;
	*mine = s;
	s->grew++;
	assert_memory_equal(path, "d/", 2);
	assert_string_equal(path, file->name);
	assert_true(end >= s->end || s->files > 1);
	s->end = end;
}

static void cut(void *arg, void *mine, uint64_t end)
{
	struct seen *s = arg;

	assert_ptr_equal(mine, s);
	assert_true(end < s->end);
	s->cuts++;
	s->end = end;
}

static void closed(void *arg, void *mine)
{
	assert_ptr_equal(mine, arg);
	((struct seen *)arg)->closed++;
}

static void a_watcher_sees_what_is_written_and_dropped(void **state)
{
	struct seen seen = { 0 };
	const struct ocdbt_data_opts opts = {
		.target_size = 6 * MiB,
		.watcher = { .grew = grew, .cut = cut, .closed = closed, .arg = &seen }
	};
	auto_of(ocdbt_data) struct ocdbt_data *data = NULL;
	struct ocdbt_stream *s;
	struct ocdbt_ref ref;
	auto_buf b = { 0 };
	struct test_dir t;

	test_dir_open(&t, "auto");
	assert_int_equal(ocdbt_data_new(t.dir, &opts, &data), 0);
	/* Small values are collected in memory, and are not in the file yet. */
	pattern(&b, 1000, 1);
	assert_int_equal(ocdbt_data_put(data, buf_span(&b), &ref), 0);
	assert_int_equal(seen.grew, 0);
	pattern(&b, 3 * MiB, 2);
	assert_int_equal(ocdbt_data_put(data, buf_span(&b), &ref), 0);
	assert_int_equal(seen.end, 3 * MiB + 1000);
	assert_int_equal(ocdbt_stream_open(data, 0, &s), 0);
	assert_int_equal(ocdbt_stream_add(s, buf_span(&b)), 0);
	assert_int_equal(seen.end, 6 * MiB + 1000);
	ocdbt_stream_abort(s);
	assert_int_equal(seen.cuts, 1);
	assert_int_equal(seen.end, 3 * MiB + 1000);
	assert_int_equal(ocdbt_data_put(data, buf_span(&b), &ref), 0);
	/* The next value finds the file full. */
	assert_int_equal(ocdbt_data_put(data, span_of(b.p, 10), &ref), 0);
	assert_int_equal(seen.closed, 1);
	assert_int_equal(ocdbt_data_sync(data), 0);
	assert_int_equal(seen.end, 10);
	assert_int_equal(seen.files, 2);
	ocdbt_data_free(take(data));
	test_dir_close(&t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_watcher_sees_what_is_written_and_dropped),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
