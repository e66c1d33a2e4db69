/* SPDX-License-Identifier: Apache-2.0 */
/*
 * t_zarr_read.c - any range of any view of any layout, compared element by element with plain
 * memory.
 */
#include "tests/unit/lib/points.h"
#include "tests/unit/lib/zarr_views.h"

static void check_range(struct made *m, const struct zarr_view *v, const uint8_t *want,
			uint64_t off, size_t n, const char *what)
{
	auto_free uint8_t *got = malloc(n + 16);
	size_t before = made_random(m, 2) ? 5 : 0;
	uint64_t sum = 0;
	struct segments g;
	int r;

	assert_non_null(got);
	segments_init(&g, m->env.cache);
	if (before)
		assert_int_equal(segments_add_copy(&g, "01234", before), 0);
	r = zarr_read(m->z, v, off, n, &g);
	if (r < 0)
		fail_msg("%s: [%llu, +%zu): %s", what, (unsigned long long)off, n, err_text(r));
	for (size_t i = 0; i < g.n; i++)
		sum += g.seg[i].n;
	assert_int_equal(sum, n + before);
	assert_int_equal(g.bytes, n + before);
	assert_true(g.n <= 600);
	assert_int_equal(segments_copy(&g, got), 0);
	segments_release(&g);
	assert_memory_equal(got, "01234", before);
	if (n && memcmp(got + before, want + off, n))
		fail_msg("%s: wrong bytes in [%llu, +%zu)", what, (unsigned long long)off, n);
}

/* Holes read as zeros, holes and data alternate, and both reach the end. */
static void check_seek(struct made *m, const struct zarr_view *v, const uint8_t *want)
{
	uint64_t at = made_random(m, v->bytes), data, hole;

	for (unsigned turns = 0; at < v->bytes; turns++) {
		assert_int_equal(zarr_seek(m->z, v, at, SEEK_DATA, &data), 0);
		assert_true(data >= at && data <= v->bytes);
		for (uint64_t i = at; i < data; i++)
			assert_int_equal(want[i], 0);
		if (data == v->bytes)
			return;
		assert_int_equal(zarr_seek(m->z, v, data, SEEK_HOLE, &hole), 0);
		assert_true(hole > data && hole <= v->bytes);
		at = hole;
		assert_true(turns <= v->bytes);
	}
}

static void check_view(struct made *m, const char *what)
{
	struct zarr_view v;
	uint8_t *want;

	random_view(m, &v);
	want = view_bytes(m, &v);
	check_range(m, &v, want, 0, v.bytes, what);
	for (int i = 0; i < 6; i++) {
		uint64_t off = made_random(m, v.bytes + 1);
		size_t n = made_random(m, MIN(v.bytes - off, (uint64_t)300) + 1);

		check_range(m, &v, want, off, n, what);
		zarr_prefetch(m->z, &v, off, n, NULL);
	}
	if (v.bytes)
		check_seek(m, &v, want);
	free(want);
}

static void views_of(const struct made_opts *o, unsigned views)
{
	for (size_t i = 0; i < ARRAY_LEN(docs); i++) {
		struct made m;

		made_array(&m, docs[i], o);
		for (unsigned k = 0; k < views; k++)
			check_view(&m, docs[i]);
		made_release(&m);
	}
}

static void any_range_of_any_view_of_any_layout(void **state)
{
	views_of(&(struct made_opts){ .missing = 20, .seed = 1 }, 60);
}

static void chunks_that_are_ranges_of_a_file(void **state)
{
	views_of(&(struct made_opts){ .missing = 20, .seed = 2, .in_file = true }, 60);
	views_of(&(struct made_opts){ .missing = 0, .seed = 3, .in_file = true, .io = "auto" }, 30);
}

static void with_threads_that_decode_ahead(void **state)
{
	views_of(&(struct made_opts){ .missing = 10, .seed = 4, .threads = 3 }, 40);
}

/* Nothing stays in the cache, and even one chunk exceeds the budget. */
static void with_next_to_no_memory(void **state)
{
	views_of(&(struct made_opts){ .missing = 10, .seed = 5, .cache = 1, .budget = 150 }, 30);
	views_of(
		&(struct made_opts){
			.missing = 10, .seed = 6, .cache = 3000, .budget = 400, .threads = 2 },
		30);
}

/* ---- many chunks, few bytes ---- */

static void a_row_of_many_chunks_is_copied(void **state)
{
	/* One element of each of 300 chunks: by reference, all of them would stay pinned. */
	struct made_opts o = { .seed = 7 };
	struct zarr_view v;
	struct segments g;
	struct made m;

	made_array(&m, docs[4], &o);
	zarr_view_whole(&m.meta, &v);
	segments_init(&g, m.env.cache);
	assert_int_equal(zarr_read(m.z, &v, 0, 300 * 4, &g), 0);
	assert_int_equal(g.n, 1);
	assert_null(g.seg[0].pin);
	segments_release(&g);
	made_release(&m);
}

static void chunks_of_one_byte_are_charged_their_memory(void **state)
{
	struct made_opts o = { .seed = 8, .cache = 20000 };
	struct cache_stats stats;
	struct made m;
	uint8_t got[1000];
	struct zarr_view v;

	made_array(&m, docs[3], &o);
	zarr_view_whole(&m.meta, &v);
	assert_int_equal(zarr_read_into(m.z, &v, 0, 1000, got), 0);
	assert_memory_equal(got, m.want, 1000);
	cache_stats(m.env.cache, &stats);
	assert_true(stats.bytes <= 20000 && stats.entries < 300 && stats.pinned_bytes == 0);
	assert_true(stats.peak_bytes <= 20000 + 32 * 200);
	made_release(&m);
}

static void a_read_keeps_neighbouring_ranges_of_a_file_apart(void **state)
{
	/*
	 * The second read begins inside an element, so it removes bytes of its own segments, not of
	 * the first read's.
	 */
	struct made_opts o = { .seed = 9, .in_file = true };
	uint8_t got[36000];
	struct zarr_view v;
	struct segments g;
	struct made m;

	made_array(&m, docs[5], &o);
	zarr_view_whole(&m.meta, &v);
	segments_init(&g, m.env.cache);
	assert_int_equal(zarr_read(m.z, &v, 0, 20000, &g), 0);
	assert_int_equal(zarr_read(m.z, &v, 20001, 3999, &g), 0);
	assert_int_equal(g.seg[0].kind, SEGMENT_FILE);
	assert_int_equal(segments_copy(&g, got), 0);
	assert_memory_equal(got, m.want, 20000);
	assert_memory_equal(got + 20000, m.want + 20001, 3999);
	segments_release(&g);
	made_release(&m);
}

/* ---- refusals and damage ---- */

static void huge_arrays_are_not_searched_for_holes(void **state)
{
	struct made_opts o = { .seed = 10 };
	struct zarr_view v;
	struct made m;
	uint64_t at;

	memset(&m, 0, sizeof(m));
	m.opts = &o;
	made_env(&m, &o);
	assert_int_equal(
		kv_put(m.kv, span_str("a/.zarray"),
		       span_str(V2(
			       "\"shape\":[1073741824,1048576,4096],\"chunks\":[1,1,1],\"dtype\":\"|u1\","
			       "\"fill_value\":0,\"order\":\"C\",\"compressor\":null"))),
		0);
	made_open(&m);
	zarr_view_whole(&m.z->meta, &v);
	assert_int_equal(zarr_seek(m.z, &v, 12345, SEEK_DATA, &at), 0);
	assert_int_equal(at, 12345);
	assert_int_equal(zarr_seek(m.z, &v, 12345, SEEK_HOLE, &at), 0);
	assert_true(at == v.bytes);
	/* Padding of any extent is one hole. */
	assert_int_equal(zarr_view_slice(&v, 0, 5, 1, 1, true), 0);
	assert_int_equal(zarr_view_slice(&v, 1, 5, 1, 1, true), 0);
	assert_int_equal(zarr_view_finish(&v), 0);
	assert_int_equal(zarr_seek(m.z, &v, 100, SEEK_HOLE, &at), 0);
	assert_int_equal(at, 100);
	assert_int_equal(zarr_seek(m.z, &v, 100, SEEK_DATA, &at), 0);
	assert_int_equal(at, v.bytes);
	made_release(&m);
}

static void huge_chunks_are_refused(void **state)
{
	/* clang-format off */
	static const struct {
		const char *doc;
		int code;
	} cases[] = {
		/* More pieces than cache keys can number. */
		{ V2("\"shape\":[4],\"chunks\":[4611686018427387904],\"dtype\":\"|u1\",\"fill_value\":0,\"order\":\"C\","
		     "\"compressor\":null"), -EFBIG },
		{ V2("\"shape\":[4611686018427387904,4611686018427387904],\"chunks\":[1,1],\"dtype\":\"|u1\","
		     "\"fill_value\":0,\"order\":\"C\",\"compressor\":null"), -EUCLEAN },
	};
	/* clang-format on */
	struct made_opts o = { .seed = 11 };

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct made m;
		int r;

		memset(&m, 0, sizeof(m));
		m.opts = &o;
		made_env(&m, &o);
		assert_int_equal(kv_put(m.kv, span_str("a/.zarray"), span_str(cases[i].doc)), 0);
		r = zarr_open(&m.env, m.kv, span_str("a/"), 1, 1, &m.z);
		if (r >= 0 || (r != -EFBIG && r != -EUCLEAN))
			fail_msg("%s: %d", cases[i].doc, r);
		made_release(&m);
	}
}

/* Read all of an array with a fault: the code, and the chunk named in the note. */
static void check_broken(const char *doc, const char *key, struct span value, int code)
{
	struct made_opts o = { .seed = 12 };
	auto_free uint8_t *got = NULL;
	struct zarr_view v;
	struct made m;
	int r;

	made_array(&m, doc, &o);
	assert_int_equal(kv_put(m.kv, span_str(key), value), 0);
	zarr_view_whole(&m.meta, &v);
	got = malloc(v.bytes);
	r = zarr_read_into(m.z, &v, 0, v.bytes, got);
	if (r != code)
		fail_msg("%s: %s: %d: %s", doc, key, r, err_text(r));
	if (!strstr(err_text(r), key) && !strstr(err_text(r), "is stored in"))
		fail_msg("the note does not name %s: %s", key, err_text(r));
	made_release(&m);
}

static void a_broken_chunk_is_named(void **state)
{
	static const uint8_t junk[200000];

	check_broken(docs[0], "a/0.0.0", span_str("nonsense"), -EUCLEAN);
	check_broken(docs[0], "a/1.1.0", span_of(NULL, 0), -EUCLEAN);
	check_broken(docs[0], "a/1.1.0", span_of(junk, sizeof(junk)), -EUCLEAN);
	check_broken(docs[2], "a/1.0", span_of(junk, 23), -EUCLEAN);
	check_broken(docs[2], "a/1.0", span_of(junk, 25), -EUCLEAN);
	check_broken(docs[10], "a/c/0/1/0", span_of(junk, 40), -EBADMSG);
	check_broken(docs[12], "a/c/1/1", span_of(junk, 100), -EUCLEAN);
	check_broken(docs[12], "a/c/0/0", span_of(junk, 132 + 4), -EBADMSG);
	check_broken(docs[12], "a/c/0/0", span_of(NULL, 0), -EUCLEAN);
	/* Entries outside the shard; no checksum covers this index. */
	check_broken(docs[13], "a/c/0/0", span_of("\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\xff", 16),
		     -EUCLEAN);
}

/* A chunk of no bytes after an offset inside a shard in a file. */
static void an_inner_chunk_without_bytes_is_an_error(void **state)
{
	struct made_opts o = { .seed = 13, .in_file = true };
	auto_buf shard = { 0 };
	uint64_t index[64];
	uint8_t got[180];
	struct zarr_view v;
	struct made m;

	made_array(&m, docs[12], &o);
	for (unsigned i = 0; i < 8; i++) {
		index[2 * i] = 9;
		index[2 * i + 1] = 0;
	}
	assert_int_equal(buf_add(&shard, "0123456789", 10), 0);
	assert_int_equal(shard_index_encode(m.meta.level.shard, index, &shard), 0);
	made_put(&m, span_str("a/c/0/0"), buf_span(&shard));
	zarr_view_whole(&m.meta, &v);
	assert_int_equal(zarr_read_into(m.z, &v, 0, 180, got), -EUCLEAN);
	made_release(&m);
}

static void a_missing_chunk_is_an_error_when_the_checkpoint_says_so(void **state)
{
	struct made_opts o = { .seed = 14, .missing = 50 };
	auto_free uint8_t *got = NULL;
	struct zarr_view v;
	struct made m;
	int r;

	made_array(&m, docs[0], &o);
	m.z->missing_is_error = true;
	zarr_view_whole(&m.meta, &v);
	got = malloc(v.bytes);
	r = zarr_read_into(m.z, &v, 0, v.bytes, got);
	assert_int_equal(r, -EUCLEAN);
	assert_non_null(strstr(err_text(r), "is not stored"));
	made_release(&m);
}

/* ---- temporary errors ---- */

static void a_failed_read_keeps_nothing(void **state)
{
	/* The nth read fails: the next attempt returns the right bytes. */
	for (size_t d = 0; d < ARRAY_LEN(docs); d++)
		for (unsigned n = 1;; n = points_after("TEST_EVERY_FAULT", n)) {
			char io[64];
			struct made_opts o = {
				.seed = 15, .in_file = true, .io = io, .missing = 10
			};
			auto_free uint8_t *got = NULL;
			struct zarr_view v;
			struct made m;
			int r;

			snprintf(io, sizeof(io), "fault(read:eio:%u):sync", n);
			made_array(&m, docs[d], &o);
			zarr_view_whole(&m.meta, &v);
			got = malloc(v.bytes + 1);
			r = zarr_read_into(m.z, &v, 0, v.bytes, got);
			if (r < 0) {
				assert_int_equal(r, -EIO);
				assert_int_equal(zarr_read_into(m.z, &v, 0, v.bytes, got), 0);
			}
			assert_memory_equal(got, m.want, v.bytes);
			made_release(&m);
			if (r >= 0)
				break;
			assert_true(n < 2000);
		}
}

/* ---- threads ---- */

struct reader {
	struct made *m;
	uint64_t seed;
	unsigned errors;
};

static void *read_about(void *arg)
{
	struct reader *rd = arg;
	struct made dice = { .random = rd->seed };
	uint8_t got[64];
	struct zarr_view v;

	zarr_view_whole(&rd->m->meta, &v);
	for (int i = 0; i < 200; i++) {
		uint64_t off = made_random(&dice, v.bytes);
		size_t n = made_random(&dice, MIN(v.bytes - off, (uint64_t)sizeof(got)) + 1);
		int r = zarr_read_into(rd->m->z, &v, off, n, got);

		if (r < 0)
			rd->errors++;
		else if (n && memcmp(got, rd->m->want + off, n))
			rd->errors += 1000000;
	}
	return NULL;
}

static void many_readers_of_one_array(void **state)
{
	for (size_t d = 0; d < ARRAY_LEN(docs); d++) {
		struct made_opts o = { .seed = 16,
				       .in_file = true,
				       .missing = 10,
				       .threads = 2,
				       .cache = 3000,
				       .budget = 1000 };
		struct reader rd[6];
		pthread_t thread[6];
		struct made m;

		made_array(&m, docs[d], &o);
		for (unsigned i = 0; i < ARRAY_LEN(rd) && m.meta.bytes; i++) {
			rd[i] = (struct reader){ .m = &m, .seed = i + 1 };
			assert_int_equal(pthread_create(&thread[i], NULL, read_about, &rd[i]), 0);
		}
		for (unsigned i = 0; i < ARRAY_LEN(rd) && m.meta.bytes; i++) {
			pthread_join(thread[i], NULL);
			assert_int_equal(rd[i].errors, 0);
		}
		made_release(&m);
	}
}

static void *read_first_chunk(void *arg)
{
	struct reader *rd = arg;
	struct zarr_view v;
	uint8_t got[2];

	zarr_view_whole(&rd->m->meta, &v);
	for (int i = 0; i < 300; i++)
		rd->errors += zarr_read_into(rd->m->z, &v, 0, 2, got) < 0 ||
			      memcmp(got, rd->m->want, 2);
	return NULL;
}

static void a_broken_neighbour_does_not_fail_a_reader(void **state)
{
	/*
	 * One thread reads everything and fails; others read only a good chunk, which that thread
	 * may have begun.
	 */
	struct made_opts o = { .seed = 17, .cache = 1, .threads = 2 };
	struct reader rd[3];
	pthread_t thread[3];
	struct zarr_view v;
	uint8_t got[180];
	struct made m;

	made_array(&m, docs[12], &o);
	assert_int_equal(kv_put(m.kv, span_str("a/c/1/2"), span_str("short")), 0);
	zarr_view_whole(&m.meta, &v);
	for (unsigned i = 0; i < ARRAY_LEN(rd); i++) {
		rd[i] = (struct reader){ .m = &m };
		assert_int_equal(pthread_create(&thread[i], NULL, read_first_chunk, &rd[i]), 0);
	}
	for (int i = 0; i < 300; i++)
		assert_int_equal(zarr_read_into(m.z, &v, 0, 180, got), -EUCLEAN);
	for (unsigned i = 0; i < ARRAY_LEN(rd); i++) {
		pthread_join(thread[i], NULL);
		assert_int_equal(rd[i].errors, 0);
	}
	made_release(&m);
}

int main(void)
{
	/* clang-format off */
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(any_range_of_any_view_of_any_layout),
		cmocka_unit_test(chunks_that_are_ranges_of_a_file),
		cmocka_unit_test(with_threads_that_decode_ahead),
		cmocka_unit_test(with_next_to_no_memory),
		cmocka_unit_test(a_row_of_many_chunks_is_copied),
		cmocka_unit_test(chunks_of_one_byte_are_charged_their_memory),
		cmocka_unit_test(a_read_keeps_neighbouring_ranges_of_a_file_apart),
		cmocka_unit_test(huge_arrays_are_not_searched_for_holes),
		cmocka_unit_test(huge_chunks_are_refused),
		cmocka_unit_test(a_broken_chunk_is_named),
		cmocka_unit_test(an_inner_chunk_without_bytes_is_an_error),
		cmocka_unit_test(a_missing_chunk_is_an_error_when_the_checkpoint_says_so),
		cmocka_unit_test(a_failed_read_keeps_nothing),
		cmocka_unit_test(many_readers_of_one_array),
		cmocka_unit_test(a_broken_neighbour_does_not_fail_a_reader),
	};
	/* clang-format on */

	return cmocka_run_group_tests(tests, NULL, NULL);
}
