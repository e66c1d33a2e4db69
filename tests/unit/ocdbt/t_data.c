/* SPDX-License-Identifier: Apache-2.0 */
/*
 * t_data.c - data files being written: collecting, streams, threads, and the state after failures.
 */
#include "core/kv/kv_sum.h"
#include "tests/unit/lib/ocdbt_test.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>

/* The writer locates the value, whether it is synced or not. */
static void expect_located(struct ocdbt_data *data, const struct ocdbt_ref *ref, struct span want)
{
	auto_kv_loc loc = { 0 };
	auto_free uint8_t *got = malloc(want.n + 1);

	assert_int_equal(ocdbt_data_locate(data, ref, &loc), 0);
	assert_int_equal(loc.len, want.n);
	if (loc.where == KV_INLINE) {
		assert_true(span_eq(buf_span(&loc.bytes), want));
		return;
	}
	assert_int_equal(io_read_exact(loc.file, got, want.n, loc.off), 0);
	assert_true(span_eq(span_of(got, want.n), want));
}

static unsigned count_files(struct test_dir *t, const char *rel)
{
	char path[160];
	unsigned n = 0;
	DIR *d;

	snprintf(path, sizeof(path), "%s/%s", t->path, rel);
	d = opendir(path);
	for (struct dirent *e; d && (e = readdir(d));)
		n += e->d_name[0] != '.';
	if (d)
		closedir(d);
	return n;
}

static void values_of_all_sizes_are_stored(void **state)
{
	static const size_t sizes[] = { 1, 1024,         5, 1048576,  1048577,
					3, 20 * MiB + 5, 7, 70 * MiB, 2 };
	struct ocdbt_ref ref[ARRAY_LEN(sizes)];
	auto_of(ocdbt_data) struct ocdbt_data *data = NULL;
	struct ocdbt_data_stats stats;
	auto_buf b = { 0 };
	uint64_t total = 0;
	struct test_dir t;

	test_dir_open(&t, "auto");
	assert_int_equal(ocdbt_data_new(t.dir, NULL, &data), 0);
	for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
		pattern(&b, sizes[i], (unsigned)i);
		assert_int_equal(ocdbt_data_put(data, buf_span(&b), &ref[i]), 0);
		/* One thread uses one file, without gaps. */
		assert_int_equal(ref[i].off, total);
		expect_located(data, &ref[i], buf_span(&b));
		total += sizes[i];
	}
	assert_int_equal(ocdbt_data_sync(data), 0);
	for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
		pattern(&b, sizes[i], (unsigned)i);
		expect_stored(&t, &ref[i], buf_span(&b));
		expect_located(data, &ref[i], buf_span(&b));
	}
	ocdbt_data_stats(data, &stats);
	assert_int_equal(stats.values, ARRAY_LEN(sizes));
	assert_int_equal(stats.bytes, total);
	assert_int_equal(stats.files, 1);
	ocdbt_data_free(take(data));
	test_dir_close(&t);
}

/*
 * The end of the last value and of its checksum, and the padding so far: at most 1 % of the file,
 * whatever the order of the sizes.
 */
struct raw_file {
	uint64_t end, padding;
	unsigned at_page, at_line;
};

static void expect_raw(struct raw_file *f, const struct ocdbt_ref *ref, size_t n)
{
	f->padding += ref->off - f->end;
	f->end = ref->off + n + KV_SUM_BYTES;
	assert_true(f->padding * 100 <= f->end);
	assert_int_equal(ref->off % 8, 0);
	f->at_page += ref->off % 4096 == 0;
	f->at_line += ref->off % 64 == 0;
}

static void raw_values_can_be_mapped(void **state)
{
	static const struct {
		size_t size[3];
		bool in_pages, in_lines;
	} cases[] = { { { 8 * MiB + 4, 4096, 1 * MiB }, true, true },
		      { { 64 * KiB, 64 * KiB, 64 * KiB }, false, true },
		      { { 1025, 1031, 1025 }, false, false } };
	const unsigned n = 40;

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct ocdbt_data_opts opts = { .sums = true };
		auto_of(ocdbt_data) struct ocdbt_data *data = NULL;
		struct raw_file f = { 0 };
		struct ocdbt_stream *s;
		struct ocdbt_ref ref;
		unsigned large = 0;
		auto_buf b = { 0 };
		struct test_dir t;

		test_dir_open(&t, "sync");
		assert_int_equal(ocdbt_data_new(t.dir, &opts, &data), 0);
		for (unsigned k = 0; k < n; k++) {
			pattern(&b, cases[i].size[k % 3], k);
			large += b.n >= OCDBT_PAGE_FROM;
			/* A value that is dropped takes its padding along. */
			assert_int_equal(ocdbt_stream_open(data, b.n, &s), 0);
			assert_int_equal(ocdbt_stream_add(s, buf_span(&b)), 0);
			ocdbt_stream_abort(s);
			if (k % 2) {
				assert_int_equal(ocdbt_data_put_raw(data, buf_span(&b), &ref), 0);
			} else {
				assert_int_equal(ocdbt_stream_open(data, b.n, &s), 0);
				assert_int_equal(ocdbt_stream_add(s, buf_span(&b)), 0);
				assert_int_equal(ocdbt_stream_close(s, false, &ref), 0);
			}
			expect_raw(&f, &ref, b.n);
			expect_located(data, &ref, buf_span(&b));
		}
		assert_int_equal(large && f.at_page >= large, cases[i].in_pages);
		assert_int_equal(f.at_line == n, cases[i].in_lines);
		ocdbt_data_free(take(data));
		test_dir_close(&t);
	}
}

static void an_empty_value_has_no_place(void **state)
{
	auto_of(ocdbt_data) struct ocdbt_data *data = NULL;
	struct ocdbt_ref ref = { .off = 7 };
	struct ocdbt_stream *s;
	struct test_dir t;

	test_dir_open(&t, "sync");
	assert_int_equal(ocdbt_data_new(t.dir, NULL, &data), 0);
	assert_int_equal(ocdbt_data_put(data, NONE, &ref), 0);
	assert_true(ref.rel.n == 0 && ref.off == 0 && ref.len == 0);
	expect_located(data, &ref, NONE);
	assert_int_equal(count_files(&t, "d"), 0);
	assert_int_equal(ocdbt_stream_open(data, 0, &s), 0);
	assert_int_equal(ocdbt_stream_close(s, false, &ref), 0);
	assert_true(ref.rel.n == 0 && ref.len == 0);
	ocdbt_data_free(take(data));
	test_dir_close(&t);
}

static void small_values_are_collected(void **state)
{
	auto_of(ocdbt_data) struct ocdbt_data *data = NULL;
	struct ocdbt_ref ref;
	auto_buf b = { 0 };
	struct test_dir t;

	test_dir_open(&t, "sync");
	assert_int_equal(ocdbt_data_new(t.dir, NULL, &data), 0);
	pattern(&b, 2000, 1);
	for (int i = 0; i < 5000; i++)
		assert_int_equal(ocdbt_data_put(data, buf_span(&b), &ref), 0);
	assert_int_equal(ocdbt_data_sync(data), 0);
	/* 10 MB in pieces of at most a mebibyte. */
	assert_in_range(atomic_load(&io_engine_stats(t.io)->writes), 10, 11);
	ocdbt_data_free(take(data));
	test_dir_close(&t);
}

/* Also when the next value has caused a part of the buffer to be written. */
static void values_are_found_while_others_follow(void **state)
{
	enum { N = 40 };
	auto_of(ocdbt_data) struct ocdbt_data *data = NULL;
	static struct ocdbt_ref ref[N];
	auto_buf b = { 0 };
	struct test_dir t;

	test_dir_open(&t, "sync");
	assert_int_equal(ocdbt_data_new(t.dir, NULL, &data), 0);
	pattern(&b, 2 * MiB, 3);
	for (int i = 0; i < N; i++) {
		size_t n = i % 7 == 6 ? b.n : 700000 - (size_t)i * 16001;

		assert_int_equal(ocdbt_data_put(data, span_of(b.p + i, n - (size_t)i), &ref[i]), 0);
		for (int j = 0; j <= i; j++)
			expect_located(data, &ref[j], span_of(b.p + j, ref[j].len));
	}
	ocdbt_data_free(take(data));
	test_dir_close(&t);
}

static void full_files_are_closed(void **state)
{
	struct ocdbt_data_opts opts = { .prefix = "values/x/", .target_size = 1000 };
	auto_of(ocdbt_data) struct ocdbt_data *data = NULL;
	struct ocdbt_ref ref[10];
	auto_buf b = { 0 };
	struct test_dir t;

	test_dir_open(&t, "sync");
	assert_int_equal(ocdbt_data_new(t.dir, &opts, &data), 0);
	assert_int_equal(ocdbt_data_path_len(data), 9 + 32);
	for (int i = 0; i < 10; i++) {
		pattern(&b, 400, (unsigned)i);
		assert_int_equal(ocdbt_data_put(data, buf_span(&b), &ref[i]), 0);
		assert_int_equal(ref[i].rel.n, 9 + 32);
		/* Three values fill a file; a value is never split. */
		assert_int_equal(ref[i].off, (unsigned)(i % 3) * 400u);
	}
	assert_int_equal(ocdbt_data_sync(data), 0);
	assert_int_equal(count_files(&t, "values/x"), 4);
	for (int i = 0; i < 10; i++) {
		pattern(&b, 400, (unsigned)i);
		expect_stored(&t, &ref[i], buf_span(&b));
	}
	ocdbt_data_free(take(data));
	test_dir_close(&t);
}

static void streamed_values_are_contiguous(void **state)
{
	auto_of(ocdbt_data) struct ocdbt_data *data = NULL;
	struct ocdbt_stream *one, *two;
	struct ocdbt_ref a, b, small;
	auto_buf all = { 0 };
	struct test_dir t;

	test_dir_open(&t, "auto");
	assert_int_equal(ocdbt_data_new(t.dir, NULL, &data), 0);
	pattern(&all, 5 * MiB + 100, 3);
	assert_int_equal(ocdbt_stream_open(data, 0, &one), 0);
	assert_int_equal(ocdbt_stream_open(data, 0, &two), 0);
	/* Alternating, in pieces of odd sizes, with another value between them. */
	for (size_t at = 0, step = 1; at < all.n; at += step, step = step * 3 % 700000 + 1) {
		struct span piece = span_of(all.p + at, MIN(step, all.n - at));

		assert_int_equal(ocdbt_stream_add(one, piece), 0);
		assert_int_equal(ocdbt_stream_add(two, piece), 0);
	}
	assert_int_equal(ocdbt_data_put(data, S("between"), &small), 0);
	assert_int_equal(ocdbt_data_sync(data), -EBUSY);
	assert_int_equal(ocdbt_data_discard(data), -EBUSY);
	assert_int_equal(ocdbt_stream_close(one, false, &a), 0);
	assert_int_equal(ocdbt_stream_close(two, false, &b), 0);
	expect_located(data, &a, buf_span(&all));
	assert_int_equal(ocdbt_data_sync(data), 0);
	expect_stored(&t, &a, buf_span(&all));
	expect_stored(&t, &b, buf_span(&all));
	expect_stored(&t, &small, S("between"));
	assert_int_equal(count_files(&t, "d"), 3);
	ocdbt_data_free(take(data));
	test_dir_close(&t);
}

static void aborted_streams_leave_no_hole(void **state)
{
	auto_of(ocdbt_data) struct ocdbt_data *data = NULL;
	static const size_t sizes[] = { 10, 1000000, 3000000 };
	struct ocdbt_ref before, after;
	struct ocdbt_stream *s;
	auto_buf b = { 0 };
	struct test_dir t;

	test_dir_open(&t, "sync");
	for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
		char path[64];
		struct stat st;

		assert_int_equal(ocdbt_data_new(t.dir, NULL, &data), 0);
		assert_int_equal(ocdbt_data_put(data, S("before"), &before), 0);
		assert_int_equal(ocdbt_stream_open(data, 0, &s), 0);
		pattern(&b, sizes[i], 9);
		for (size_t at = 0; at < b.n; at += 700000)
			assert_int_equal(
				ocdbt_stream_add(s,
						 span_of(b.p + at, MIN(b.n - at, (size_t)700000))),
				0);
		ocdbt_stream_abort(s);
		assert_int_equal(ocdbt_data_put(data, S("after"), &after), 0);
		assert_int_equal(after.off, 6);
		assert_int_equal(ocdbt_data_sync(data), 0);
		expect_stored(&t, &before, S("before"));
		expect_stored(&t, &after, S("after"));
		snprintf(path, sizeof(path), "%.*s", SPAN_ARG(after.rel));
		assert_int_equal(io_stat(t.dir, path, &st), 0);
		assert_int_equal(st.st_size, 11);
		ocdbt_data_free(take(data));
	}
	test_dir_close(&t);
}

/* Every write fails once; the call is repeated, and the result is the same as without failures. */
static void values_can_be_added_again_after_a_full_disk(void **state)
{
	static const char *const rules[] = {
		"fault(write:enospc:1):sync", "fault(write:enospc:2):sync",
		"fault(write:enospc:3):sync", "fault(create:enospc:1):sync",
		"fault(mkdir:enospc:1):sync", "fault(write:short:always):sync"
	};

	for (size_t i = 0; i < ARRAY_LEN(rules); i++) {
		static const size_t sizes[] = { 600000, 600000, 2000000, 10, 600000 };
		auto_of(ocdbt_data) struct ocdbt_data *data = NULL;
		struct ocdbt_ref ref[ARRAY_LEN(sizes)];
		auto_buf b = { 0 };
		unsigned failures = 0;
		struct test_dir t;
		int r;

		test_dir_open(&t, rules[i]);
		assert_int_equal(ocdbt_data_new(t.dir, NULL, &data), 0);
		for (size_t k = 0; k < ARRAY_LEN(sizes); k++) {
			pattern(&b, sizes[k], (unsigned)k);
			while ((r = ocdbt_data_put(data, buf_span(&b), &ref[k])) == -ENOSPC)
				assert_true(failures++ < 3);
			assert_int_equal(r, 0);
		}
		while ((r = ocdbt_data_sync(data)) == -ENOSPC)
			assert_true(failures++ < 3);
		assert_int_equal(r, 0);
		assert_int_equal(failures, strstr(rules[i], "enospc") ? 1 : 0);
		for (size_t k = 0; k < ARRAY_LEN(sizes); k++) {
			pattern(&b, sizes[k], (unsigned)k);
			expect_stored(&t, &ref[k], buf_span(&b));
		}
		ocdbt_data_free(take(data));
		test_dir_close(&t);
	}
}

static void a_stream_continues_after_a_full_disk(void **state)
{
	auto_of(ocdbt_data) struct ocdbt_data *data = NULL;
	struct ocdbt_stream *s;
	struct ocdbt_ref ref;
	auto_buf b = { 0 };
	unsigned failures = 0;
	struct test_dir t;

	test_dir_open(&t, "fault(write:enospc:50%):sync");
	assert_int_equal(ocdbt_data_new(t.dir, NULL, &data), 0);
	pattern(&b, 9 * MiB, 4);
	assert_int_equal(ocdbt_stream_open(data, 0, &s), 0);
	for (size_t at = 0; at < b.n; at += 300 * KiB)
		while (ocdbt_stream_add(s, span_of(b.p + at, MIN(b.n - at, 300 * KiB))) < 0)
			failures++;
	while (ocdbt_stream_close(s, false, &ref) < 0)
		failures++;
	while (ocdbt_data_sync(data) < 0)
		failures++;
	assert_true(failures > 0);
	expect_stored(&t, &ref, buf_span(&b));
	ocdbt_data_free(take(data));
	test_dir_close(&t);
}

static void syncing_reaches_files_and_names(void **state)
{
	auto_of(ocdbt_data) struct ocdbt_data *data = NULL;
	const struct io_stats *stats;
	struct ocdbt_ref ref;
	struct test_dir t;
	uint64_t before;

	test_dir_open(&t, "sync");
	stats = io_engine_stats(t.io);
	assert_int_equal(ocdbt_data_new(t.dir, NULL, &data), 0);
	assert_int_equal(ocdbt_data_put(data, S("value"), &ref), 0);
	assert_int_equal(atomic_load(&stats->syncs), 0);
	assert_int_equal(ocdbt_data_sync(data), 0);
	/* The file, its directory, and the parent of that. */
	assert_int_equal(atomic_load(&stats->syncs), 3);
	assert_int_equal(ocdbt_data_sync(data), 0);
	assert_int_equal(atomic_load(&stats->syncs), 3);
	assert_int_equal(ocdbt_data_put(data, S("more"), &ref), 0);
	before = atomic_load(&stats->syncs);
	assert_int_equal(ocdbt_data_sync(data), 0);
	assert_int_equal(atomic_load(&stats->syncs), before + 1);
	ocdbt_data_free(take(data));
	test_dir_close(&t);
}

static void discarding_leaves_no_file(void **state)
{
	struct ocdbt_data_opts opts = { .target_size = 10 };
	auto_of(ocdbt_data) struct ocdbt_data *data = NULL;
	struct ocdbt_data_stats stats;
	struct ocdbt_ref ref;
	struct test_dir t;

	test_dir_open(&t, "sync");
	assert_int_equal(ocdbt_data_new(t.dir, &opts, &data), 0);
	for (int i = 0; i < 5; i++)
		assert_int_equal(ocdbt_data_put(data, S("longer than the target"), &ref), 0);
	assert_int_equal(count_files(&t, "d"), 5);
	assert_int_equal(ocdbt_data_discard(data), 0);
	assert_int_equal(count_files(&t, "d"), 0);
	ocdbt_data_stats(data, &stats);
	assert_int_equal(stats.bytes, 0);
	assert_int_equal(ocdbt_data_put(data, S("new"), &ref), 0);
	assert_int_equal(ocdbt_data_sync(data), 0);
	assert_int_equal(count_files(&t, "d"), 1);
	ocdbt_data_free(take(data));
	test_dir_close(&t);
}

static int fixed_name(void *arg, uint8_t ret[16])
{
	memset(ret, 0x5a, 16);
	return 0;
}

static void an_existing_file_is_not_touched(void **state)
{
	struct ocdbt_data_opts opts = { .name = fixed_name };
	static const char name[] = "d/5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a";
	auto_of(ocdbt_data) struct ocdbt_data *data = NULL;
	struct ocdbt_ref ref;
	auto_buf b = { 0 };
	struct test_dir t;

	test_dir_open(&t, "sync");
	test_write(&t, name, S("theirs"));
	assert_int_equal(ocdbt_data_new(t.dir, &opts, &data), 0);
	assert_int_equal(ocdbt_data_put(data, S("ours"), &ref), -EEXIST);
	assert_int_equal(ocdbt_data_discard(data), 0);
	assert_int_equal(io_read_file(t.dir, name, 100, &b), 0);
	assert_string_equal(buf_str(&b), "theirs");
	ocdbt_data_free(take(data));
	test_dir_close(&t);
}

static void foreign_references_are_refused(void **state)
{
	auto_of(ocdbt_data) struct ocdbt_data *data = NULL;
	struct kv_loc loc = { 0 };
	struct ocdbt_ref ref, other;
	struct test_dir t;

	test_dir_open(&t, "sync");
	assert_int_equal(ocdbt_data_new(t.dir, NULL, &data), 0);
	assert_int_equal(ocdbt_data_put(data, S("value"), &ref), 0);
	assert_int_equal(ocdbt_data_sync(data), 0);
	other = ref;
	other.len++;
	assert_int_equal(ocdbt_data_locate(data, &other, &loc), -EINVAL);
	other = ref;
	other.rel = S("d/0");
	assert_int_equal(ocdbt_data_locate(data, &other, &loc), -EINVAL);
	other = ref;
	other.base = S("p/");
	assert_int_equal(ocdbt_data_locate(data, &other, &loc), -EINVAL);
	ocdbt_data_free(take(data));
	test_dir_close(&t);
}

/* ---- threads ---- */

#define THREADS 6
#define PER_THREAD 300

struct worker {
	struct ocdbt_data *data;
	unsigned number;
	struct ocdbt_ref ref[PER_THREAD];
	int r;
};

static size_t size_of(unsigned worker, unsigned i)
{
	return (worker * 7919 + i * 104729) % (i % 50 ? 3000 : 2500000) + 1;
}

static void *work(void *arg)
{
	struct worker *w = arg;
	auto_buf b = { 0 };

	for (unsigned i = 0; i < PER_THREAD && w->r >= 0; i++) {
		struct ocdbt_stream *s;

		pattern(&b, size_of(w->number, i), w->number * 31 + i);
		if (i % 3) {
			w->r = ocdbt_data_put(w->data, buf_span(&b), &w->ref[i]);
		} else {
			w->r = ocdbt_stream_open(w->data, 0, &s);
			if (w->r >= 0)
				w->r = ocdbt_stream_add(s, span_of(b.p, b.n / 2));
			if (w->r >= 0)
				w->r = ocdbt_stream_add(s, span_from(buf_span(&b), b.n / 2));
			if (w->r >= 0)
				w->r = ocdbt_stream_close(s, false, &w->ref[i]);
		}
		/* Read back while others write. */
		if (w->r >= 0 && i % 10 == 0) {
			auto_kv_loc loc = { 0 };

			w->r = ocdbt_data_locate(w->data, &w->ref[i], &loc);
			if (w->r >= 0 && loc.where == KV_INLINE &&
			    !span_eq(buf_span(&loc.bytes), buf_span(&b)))
				w->r = -EIO;
		}
	}
	return NULL;
}

static void threads_use_files_of_their_own(void **state)
{
	struct ocdbt_data_opts opts = { .target_size = 4 * MiB };
	auto_of(ocdbt_data) struct ocdbt_data *data = NULL;
	static struct worker worker[THREADS];
	pthread_t thread[THREADS];
	auto_buf b = { 0 };
	struct test_dir t;

	test_dir_open(&t, "auto");
	assert_int_equal(ocdbt_data_new(t.dir, &opts, &data), 0);
	for (unsigned i = 0; i < THREADS; i++) {
		worker[i] = (struct worker){ .data = data, .number = i };
		assert_int_equal(pthread_create(&thread[i], NULL, work, &worker[i]), 0);
	}
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(thread[i], NULL);
	assert_int_equal(ocdbt_data_sync(data), 0);
	for (unsigned i = 0; i < THREADS; i++) {
		assert_int_equal(worker[i].r, 0);
		for (unsigned k = 0; k < PER_THREAD; k++) {
			pattern(&b, size_of(i, k), i * 31 + k);
			expect_stored(&t, &worker[i].ref[k], buf_span(&b));
		}
	}
	ocdbt_data_free(take(data));
	test_dir_close(&t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(values_of_all_sizes_are_stored),
		cmocka_unit_test(raw_values_can_be_mapped),
		cmocka_unit_test(an_empty_value_has_no_place),
		cmocka_unit_test(small_values_are_collected),
		cmocka_unit_test(values_are_found_while_others_follow),
		cmocka_unit_test(full_files_are_closed),
		cmocka_unit_test(streamed_values_are_contiguous),
		cmocka_unit_test(aborted_streams_leave_no_hole),
		cmocka_unit_test(values_can_be_added_again_after_a_full_disk),
		cmocka_unit_test(a_stream_continues_after_a_full_disk),
		cmocka_unit_test(syncing_reaches_files_and_names),
		cmocka_unit_test(discarding_leaves_no_file),
		cmocka_unit_test(an_existing_file_is_not_touched),
		cmocka_unit_test(foreign_references_are_refused),
		cmocka_unit_test(threads_use_files_of_their_own),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
