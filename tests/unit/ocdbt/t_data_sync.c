/* SPDX-License-Identifier: Apache-2.0 */
/*
 * t_data_sync.c - data files after a failed sync.
 */
#include "tests/engine/io_crash.h"
#include "tests/unit/lib/ocdbt_test.h"

#include <fcntl.h>

/* A second sync alone is not enough: bytes and names are written again before it. */
static void bytes_lost_by_a_failed_sync_are_written_again(void **state)
{
	/*
	 * Two creations with a directory in between, the write, and three syncs, of which one
	 * fails.
	 */
	for (unsigned n = 1; n < 12; n++) {
		auto_of(ocdbt_data) struct ocdbt_data *data = NULL;
		struct ocdbt_ref ref;
		struct test_dir t;
		char path[64], io[64];
		int r;

		snprintf(io, sizeof(io), "fault(crash:lose@%u):sync", n);
		test_dir_open(&t, io);
		assert_int_equal(ocdbt_data_new(t.dir, NULL, &data), 0);
		assert_int_equal(ocdbt_data_put(data, S("value"), &ref), 0);
		r = ocdbt_data_sync(data);
		if (r < 0)
			r = ocdbt_data_sync(data);
		assert_int_equal(r, 0);
		/* After a power loss, everything that was reported as durable is there. */
		snprintf(path, sizeof(path), "%.*s", SPAN_ARG(ref.rel));
		ref.rel = span_str(path);
		ocdbt_data_free(take(data));
		test_dir_reopen(&t, "sync");
		expect_stored(&t, &ref, S("value"));
		test_dir_close(&t);
	}
}

/* As if the kernel had dropped the page of a value, and the disk had older bytes. */
static void drop_page(struct test_dir *t, const struct ocdbt_ref *ref)
{
	auto_of(io_file) struct io_file *file = NULL;
	auto_free char *path = span_dup_str(ref->rel);
	struct io_req req = { .op = IO_WRITE, .p = (void *)(uintptr_t) "V", .n = 1 };

	assert_int_equal(io_file_open(t->dir, path, O_RDWR, 0, &file), 0);
	req.file = file;
	assert_int_equal(io_run(t->io, &req, 1), 0);
}

/* A stream that has been written in part. */
static struct ocdbt_stream *begun_stream(struct ocdbt_data *data)
{
	struct ocdbt_stream *s;
	auto_buf b = { 0 };

	pattern(&b, 3 * MiB, 4);
	assert_int_equal(ocdbt_stream_open(data, 0, &s), 0);
	for (size_t at = 0; at < b.n; at += 300 * KiB)
		assert_int_equal(ocdbt_stream_add(s, span_of(b.p + at, MIN(b.n - at, 300 * KiB))),
				 0);
	return s;
}

static void bytes_that_cannot_be_read_back_are_an_error(void **state)
{
	auto_of(ocdbt_data) struct ocdbt_data *data = NULL;
	struct ocdbt_ref ref;
	struct test_dir t;

	test_dir_open(&t, "fault(sync:eio:1):sync");
	assert_int_equal(ocdbt_data_new(t.dir, NULL, &data), 0);
	assert_int_equal(ocdbt_data_put(data, S("value"), &ref), 0);
	assert_int_equal(ocdbt_data_sync(data), -EIO);
	drop_page(&t, &ref);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(ocdbt_data_sync(data), -EIO);
		assert_non_null(strstr(err_text(-EIO), "write it again"));
		assert_int_equal(ocdbt_data_put(data, S("more"), &ref), -EIO);
	}
	/* Discarding everything is a new beginning. */
	assert_int_equal(ocdbt_data_discard(data), 0);
	assert_int_equal(ocdbt_data_put(data, S("value"), &ref), 0);
	assert_int_equal(ocdbt_data_sync(data), 0);
	expect_stored(&t, &ref, S("value"));
	ocdbt_data_free(take(data));
	test_dir_close(&t);
}

/* A rewind cuts a part that was written; a checksum of the rest is known. */
static void a_cut_file_is_mended(void **state)
{
	auto_of(ocdbt_data) struct ocdbt_data *data = NULL;
	struct ocdbt_stream *s;
	struct ocdbt_ref ref;
	struct test_dir t;

	test_dir_open(&t, "fault(sync:eio:1):sync");
	assert_int_equal(ocdbt_data_new(t.dir, NULL, &data), 0);
	assert_int_equal(ocdbt_data_put(data, S("value"), &ref), 0);
	s = begun_stream(data);
	ocdbt_stream_abort(s);
	assert_int_equal(ocdbt_data_sync(data), -EIO);
	assert_int_equal(ocdbt_data_sync(data), 0);
	expect_stored(&t, &ref, S("value"));
	ocdbt_data_free(take(data));
	test_dir_close(&t);
}

/*
 * The page of a value was dropped before the rest of its part was given up: the bytes that are
 * there now give no valid checksum.
 */
static void a_cut_part_is_not_trusted(void **state)
{
	auto_of(ocdbt_data) struct ocdbt_data *data = NULL;
	struct ocdbt_stream *s;
	struct ocdbt_ref ref;
	struct test_dir t;

	test_dir_open(&t, "fault(sync:eio:1):sync");
	assert_int_equal(ocdbt_data_new(t.dir, NULL, &data), 0);
	assert_int_equal(ocdbt_data_put(data, S("value"), &ref), 0);
	s = begun_stream(data);
	drop_page(&t, &ref);
	ocdbt_stream_abort(s);
	assert_int_equal(ocdbt_data_sync(data), -EIO);
	assert_int_equal(ocdbt_data_sync(data), -EIO);
	assert_non_null(strstr(err_text(-EIO), "write it again"));
	ocdbt_data_free(take(data));
	test_dir_close(&t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(bytes_lost_by_a_failed_sync_are_written_again),
		cmocka_unit_test(bytes_that_cannot_be_read_back_are_an_error),
		cmocka_unit_test(a_cut_file_is_mended),
		cmocka_unit_test(a_cut_part_is_not_trusted),
	};

	io_crash_register();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
