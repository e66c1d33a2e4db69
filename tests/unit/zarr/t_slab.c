/* SPDX-License-Identifier: Apache-2.0 */
/*
 * t_slab.c - arrays whose bands of chunks do not fit into the cache: where their slabs are, which
 * ones a request decodes, and threads that want them.
 */
#include "tests/unit/lib/slab_make.h"

#include <pthread.h>
#include <unistd.h>

/* ---- where slabs are ---- */

static void slabs_cover_the_array_once(void **state)
{
	for (size_t i = 0; i < ARRAY_LEN(wides); i++) {
		struct made_opts o = { .seed = i, .missing = 100 };
		uint64_t at = 0, last_key = 0, most = 0;
		struct slab s, same;
		struct made m;

		make(&m, &wides[i], &o);
		for (unsigned n = 0; at < m.meta.bytes; n++, at = s.end) {
			struct bands b;
			struct band_range band;

			assert_true(slab_of(m.z, at, &s));
			assert_int_equal(s.begin, at);
			assert_true(s.end > at && s.end - at <= wides[i].cache / 4);
			assert_true(n == 0 || s.key.id > last_key);
			last_key = s.key.id;
			assert_true(slab_of(m.z, s.end - 1, &same));
			assert_int_equal(same.begin, s.begin);
			assert_int_equal(same.key.id, s.key.id);
			/* Whole rows of one band. */
			bands_of(m.z, &b);
			band = band_at(&b, at);
			assert_true(band.begin <= s.begin && s.end <= band.end);
			assert_int_equal((s.end - s.begin) % b.row, 0);
			assert_int_equal(s.key.id / wides[i].per_band, band.number);
			most = MAX(most, (s.end - s.begin) / b.row);
		}
		assert_int_equal(at, m.meta.bytes);
		assert_int_equal(most, wides[i].rows);
		made_release(&m);
	}
}

static void has_slabs(const char *doc, uint64_t cache, bool want)
{
	struct made_opts o = { .seed = 1, .missing = 100, .cache = cache };
	struct zarr_view v;
	struct made m;

	made_array(&m, doc, &o);
	zarr_view_whole(&m.meta, &v);
	if (slab_is_for(m.z, &v) != want)
		fail_msg("%s with %llu: %d", doc, (unsigned long long)cache, !want);
	made_release(&m);
}

static void only_bands_beyond_the_cache_have_slabs(void **state)
{
	/* A band of 16 KiB: three quarters of the cache hold it, or not. */
	has_slabs(wides[0].doc, 16384 / 3 * 4 + 8, false);
	has_slabs(wides[0].doc, 16384 / 3 * 4 - 8, true);
	/* Less than two rows in a quarter of the cache. */
	has_slabs(wides[0].doc, 8 * 1024, true);
	has_slabs(wides[0].doc, 8 * 1024 - 1, false);
	/* One chunk in a band; one axis; no axis. */
	has_slabs(WIDE("[64,256]", "[16,256]"), 4096, false);
	has_slabs(WIDE("[100000]", "[1000]"), 2048, false);
	has_slabs(WIDE("[100000]", "[1]"), 2048, false);
	has_slabs(WIDE("[]", "[]"), 2048, false);
	has_slabs(WIDE("[0,256]", "[16,16]"), 8192, false);
	/* Rows of 2 MiB, and one element more. */
	has_slabs(WIDE("[64,524288]", "[16,1024]"), 20 * MiB, true);
	has_slabs(WIDE("[64,524289]", "[16,1024]"), 20 * MiB, false);
	/* Bytes of chunks that the kernel reads from the file. */
	has_slabs(V2("\"shape\":[64,256],\"chunks\":[16,16],\"dtype\":\"<f4\",\"fill_value\":0,"
		     "\"order\":\"C\",\"compressor\":null"),
		  16384, false);
}

/* ---- which slabs a request decodes ---- */

/* The chunks of the second slab may have evicted the first one. */
static void check_cached(struct made *m, uint64_t off, uint64_t n)
{
	struct slab s;
	uint64_t most;

	assert_true(slab_of(m->z, 0, &s));
	most = 2 * s.end;
	for (uint64_t at = 0; at < m->meta.bytes; at = s.end) {
		bool there, touched;

		assert_true(slab_of(m->z, at, &s));
		touched = n >= row_bytes(m) / 4 && div_up(off + n, 4) - off / 4 <= most / 4 &&
			  s.begin < off + n && off < s.end;
		there = cache_has(m->env.cache, &s.key, CACHE_READY);
		if (touched ? !there && s.end >= off + n : there)
			fail_msg("slab of [%llu, %llu) after [%llu, +%llu): %d",
				 (unsigned long long)s.begin, (unsigned long long)s.end,
				 (unsigned long long)off, (unsigned long long)n, there);
	}
}

static void a_request_decodes_its_slabs_and_no_others(void **state)
{
	for (size_t i = 0; i < ARRAY_LEN(wides); i++) {
		struct made_opts o = { .seed = 20 + i,
				       .missing = i % 2 ? 25 : 0,
				       .threads = i % 3 };
		struct slab s;
		struct made m;

		make(&m, &wides[i], &o);
		for (int k = 0; k < 60; k++) {
			/* At most the rest of one slab and the next one. */
			uint64_t off = made_random(&m, m.meta.bytes), n;

			assert_true(slab_of(m.z, off, &s));
			if (s.end < m.meta.bytes)
				assert_true(slab_of(m.z, s.end, &s));
			n = 1 + made_random(&m, s.end - off);
			cache_drop(m.env.cache, m.z->owner);
			check(&m, off, n);
			check_cached(&m, off, n);
		}
		made_release(&m);
	}
}

static void a_request_over_a_border_has_bytes_of_both_slabs(void **state)
{
	for (size_t i = 0; i < ARRAY_LEN(wides); i++) {
		struct made_opts o = { .seed = 40 + i, .missing = 10 };
		struct made m;
		struct slab s;

		make(&m, &wides[i], &o);
		for (uint64_t at = 0; at < m.meta.bytes; at = s.end) {
			uint64_t row = row_bytes(&m), from, to;

			assert_true(slab_of(m.z, at, &s));
			from = MAX(s.end, row) - row + 1;
			to = MIN(s.end + row / 2 + 3, m.meta.bytes);
			check(&m, from, to - from);
			if (to > s.end)
				check(&m, s.end - 1, MIN(row + 2, m.meta.bytes - (s.end - 1)));
		}
		check(&m, 0, m.meta.bytes);
		made_release(&m);
	}
}

static void nothing_is_stored_but_the_fill_value_is_read(void **state)
{
	for (size_t i = 0; i < ARRAY_LEN(wides); i++) {
		struct made_opts o = { .seed = 60 + i, .missing = 100 };
		struct made m;

		make(&m, &wides[i], &o);
		check(&m, 0, m.meta.bytes);
		assert_int_equal(m.env.chunks_decoded, 0);
		assert_true(m.env.chunks_missing > 0);
		made_release(&m);
	}
}

/* A reader in order, who reads a row in several requests. */
static void a_reader_in_order_decodes_a_band_once_for_each_slab(void **state)
{
	for (size_t i = 0; i < ARRAY_LEN(wides); i++) {
		struct made_opts o = { .seed = 80 + i };
		struct cache_stats st;
		uint64_t slabs = 0;
		struct zarr_view v;
		struct bands b;
		struct made m;
		struct slab s;

		make(&m, &wides[i], &o);
		zarr_view_whole(&m.meta, &v);
		bands_of(m.z, &b);
		for (uint64_t at = 0; at < m.meta.bytes; at = s.end, slabs++)
			assert_true(slab_of(m.z, at, &s));
		for (uint64_t at = 0, n; at < m.meta.bytes; at += n) {
			n = b.row / 4 + 1;
			/* A rest of less than a quarter of a row would not be read in slabs. */
			if (m.meta.bytes - at < 2 * n)
				n = m.meta.bytes - at;
			check(&m, at, n);
			zarr_drop_behind(m.z, &v, at, at + n);
		}
		assert_true(m.env.chunks_decoded <= slabs * b.chunks);
		/* Slabs make way for others. Those that were read are first. */
		cache_stats(m.env.cache, &st);
		assert_true(st.bytes <= st.limit && st.evictions > 0);
		assert_true(slab_of(m.z, 0, &s));
		if (slabs > 8)
			assert_false(cache_has(m.env.cache, &s.key, CACHE_READY));
		check(&m, 0, b.row);
		made_release(&m);
	}
}

/* ---- threads ---- */

struct reader {
	struct made *m;
	uint64_t off, n;
	int r;
	bool same;
};

static void *read_range(void *arg)
{
	struct reader *rd = arg;
	uint8_t *got = malloc(rd->n);
	struct zarr_view v;

	zarr_view_whole(&rd->m->meta, &v);
	rd->r = zarr_read_into(rd->m->z, &v, rd->off, rd->n, got);
	rd->same = rd->r >= 0 && !memcmp(got, rd->m->want + rd->off, rd->n);
	free(got);
	return NULL;
}

static void read_together(struct reader *rd, size_t n)
{
	pthread_t thread[16];

	assert_true(n <= ARRAY_LEN(thread));
	for (size_t i = 0; i < n; i++)
		assert_int_equal(pthread_create(&thread[i], NULL, read_range, &rd[i]), 0);
	for (size_t i = 0; i < n; i++) {
		pthread_join(thread[i], NULL);
		assert_int_equal(rd[i].r, 0);
		assert_true(rd[i].same);
	}
}

static void threads_that_want_one_slab_decode_it_once(void **state)
{
	for (int round = 0; round < 30; round++) {
		struct made_opts o = { .seed = 100, .threads = 2 };
		struct reader rd[4];
		struct bands b;
		struct made m;

		make(&m, &wides[1], &o);
		bands_of(m.z, &b);
		for (size_t i = 0; i < ARRAY_LEN(rd); i++)
			rd[i] = (struct reader){ .m = &m, .off = i * 300, .n = b.row };
		read_together(rd, ARRAY_LEN(rd));
		assert_int_equal(m.env.chunks_decoded, b.chunks);
		made_release(&m);
	}
}

/*
 * Readers of the same slab, of others and of single chunks, while another operation has nearly all
 * of the read budget: all wait for it, and go on when it ends.
 */
static void no_thread_waits_for_ever_for_the_budget(void **state)
{
	for (int round = 0; round < 30; round++) {
		struct made_opts o = { .seed = 110,
				       .threads = (unsigned)round % 3,
				       .budget = 2600 };
		struct reader rd[9];
		pthread_t thread[ARRAY_LEN(rd)];
		struct made m;
		uint64_t row;

		make(&m, &wides[1], &o);
		row = row_bytes(&m);
		for (size_t i = 0; i < ARRAY_LEN(rd); i++)
			rd[i] = (struct reader){
				.m = &m,
				.off = i < 3 ? 0 :
				       i < 6 ? 4 * row * (i + 1) :
					       row * 9 * (i - 5),
				.n = i < 6 ? 3 * row : 40,
			};
		assert_int_equal(budget_take(&m.budget, 2000), 0);
		for (size_t i = 0; i < ARRAY_LEN(rd); i++)
			assert_int_equal(pthread_create(&thread[i], NULL, read_range, &rd[i]), 0);
		usleep(round % 4 * 1000);
		budget_give(&m.budget, 2000);
		for (size_t i = 0; i < ARRAY_LEN(rd); i++) {
			pthread_join(thread[i], NULL);
			assert_int_equal(rd[i].r, 0);
			assert_true(rd[i].same);
		}
		assert_int_equal(m.budget.used, 0);
		made_release(&m);
	}
}

/* The cache counts a slab, and has evicted others for it, before the first chunk is decoded. */
static void a_slab_counts_in_the_cache_from_the_beginning(void **state)
{
	struct made_opts o = { .seed = 115, .threads = 1, .budget = 2600 };
	struct reader rd;
	struct cache_stats st;
	pthread_t thread;
	uint64_t decoded;
	struct slab s;
	struct made m;

	make(&m, &wides[1], &o);
	for (uint64_t at = 0; at < m.meta.bytes / 2; at = s.end) {
		assert_true(slab_of(m.z, at, &s));
		check(&m, s.begin, s.end - s.begin);
	}
	rd = (struct reader){ .m = &m, .off = m.meta.bytes / 4 * 3, .n = row_bytes(&m) };
	assert_true(slab_of(m.z, rd.off, &s));
	decoded = m.env.chunks_decoded;
	assert_int_equal(budget_take(&m.budget, 2600), 0);
	cache_drop(m.env.cache, m.z->owner);
	assert_int_equal(pthread_create(&thread, NULL, read_range, &rd), 0);
	do {
		usleep(1000);
		cache_stats(m.env.cache, &st);
	} while (st.bytes < s.end - s.begin);
	assert_int_equal(m.env.chunks_decoded, decoded);
	budget_give(&m.budget, 2600);
	pthread_join(thread, NULL);
	assert_int_equal(rd.r, 0);
	assert_true(rd.same);
	made_release(&m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(slabs_cover_the_array_once),
		cmocka_unit_test(only_bands_beyond_the_cache_have_slabs),
		cmocka_unit_test(a_request_decodes_its_slabs_and_no_others),
		cmocka_unit_test(a_request_over_a_border_has_bytes_of_both_slabs),
		cmocka_unit_test(nothing_is_stored_but_the_fill_value_is_read),
		cmocka_unit_test(a_reader_in_order_decodes_a_band_once_for_each_slab),
		cmocka_unit_test(threads_that_want_one_slab_decode_it_once),
		cmocka_unit_test(no_thread_waits_for_ever_for_the_budget),
		cmocka_unit_test(a_slab_counts_in_the_cache_from_the_beginning),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
