/* SPDX-License-Identifier: Apache-2.0 */
/*
 * t_kv_ocdbt.c - a database, and a union of several, as a kv: batches, threads, broken values.
 */
#include "tests/unit/lib/ocdbt_test.h"

#include <pthread.h>

#define KEYS 600

static char keys[KEYS][16];
static struct ocdbt_entry entries[KEYS];
static uint8_t values[KEYS][200];

static size_t size_of(unsigned i)
{
	return i * 37 % 180;
}

/* Values of up to 180 bytes, those of more than 50 in files; `step` leaves out keys. */
static void build_kv(struct test_dir *t, const char *rel, unsigned first, unsigned step)
{
	auto_of(io_dir) struct io_dir *dir = NULL;
	struct ocdbt_config c;
	size_t n = 0;

	for (unsigned i = first; i < KEYS; i += step) {
		snprintf(keys[i], sizeof(keys[i]), "w/%u.%u", 10 + i / 30, 10 + i % 30);
		memset(values[i], (int)i, sizeof(values[i]));
		entries[n++] = test_entry(span_str(keys[i]), span_of(values[i], size_of(i)));
	}
	io_dirop(t->dir, IO_MKDIR, rel, NULL, 0700);
	dir = test_dir_again(t, rel);
	test_config(&c, 50, 3000);
	test_build(dir, &c, entries, n);
}

static struct kv *open_kv(struct test_dir *t, struct cache *cache)
{
	struct kv *kv;
	int r = ocdbt_open(test_dir_again(t, "."), cache, NULL, &kv);

	if (r < 0)
		fail_msg("%s", err_text(r));
	return kv;
}

static struct kv *open_union(struct test_dir *t, struct cache *cache)
{
	__attribute__((cleanup(ocdbt_parts_release))) struct ocdbt_parts parts = { 0 };
	struct kv *kv;

	assert_int_equal(ocdbt_parts_find(t->dir, &parts), 0);
	assert_int_equal(ocdbt_open_union(test_dir_again(t, "."), &parts, cache, NULL, &kv), 0);
	return kv;
}

static void check_loc(const struct kv_loc *loc, unsigned i)
{
	uint8_t got[256];

	assert_int_equal(loc->len, size_of(i));
	assert_int_equal(loc->where, size_of(i) > 50 ? KV_FILE : KV_INLINE);
	if (loc->where == KV_INLINE) {
		assert_true(span_eq(buf_span(&loc->bytes), span_of(values[i], size_of(i))));
		return;
	}
	assert_int_equal(io_read_exact(loc->file, got, loc->len, loc->off), 0);
	assert_memory_equal(got, values[i], loc->len);
}

/* Every key twice and some that do not exist, in an order far from sorted. */
static void check_batch(struct kv *kv)
{
	enum { N = 2 * KEYS + 100 };
	struct span key[N];
	static struct kv_loc loc[N];

	for (unsigned i = 0; i < N; i++) {
		unsigned at = i * 7919 % N;

		key[at] = i < 2 * KEYS ? span_str(keys[i % KEYS]) :
			  i % 2        ? S("w/!") :
					 S("w/10.10x");
	}
	assert_int_equal(kv_locate(kv, key, loc, N), 0);
	for (unsigned i = 0; i < N; i++) {
		unsigned at = i * 7919 % N;

		if (i < 2 * KEYS)
			check_loc(&loc[at], i % KEYS);
		else
			assert_int_equal(loc[at].where, KV_ABSENT);
		kv_loc_release(&loc[at]);
	}
}

static int check_key(void *arg, struct span key, uint64_t len)
{
	unsigned *n = arg;

	assert_true(span_eq(key, span_str(keys[*n])));
	assert_int_equal(len, size_of(*n));
	++*n;
	return 0;
}

static int stop_at_ten(void *arg, struct span key, uint64_t len)
{
	return ++*(unsigned *)arg == 10 ? 77 : 0;
}

static int count_key(void *arg, struct span key, uint64_t len)
{
	++*(unsigned *)arg;
	return 0;
}

static void check_lists(struct kv *kv)
{
	unsigned n = 0;

	assert_int_equal(kv_list(kv, NONE, check_key, &n), 0);
	assert_int_equal(n, KEYS);
	n = 0;
	assert_int_equal(kv_list(kv, S("w/12."), count_key, &n), 0);
	assert_int_equal(n, 30);
	n = 0;
	assert_int_equal(kv_list(kv, S("x"), count_key, &n), 0);
	assert_int_equal(n, 0);
	assert_int_equal(kv_list(kv, S("w/12.1"), stop_at_ten, &n), 77);
	assert_int_equal(n, 10);
}

static void batches_and_lists_find_everything(void **state)
{
	struct test_dir t;
	struct cache *cache;
	struct kv *kv;
	auto_buf where = { 0 };

	test_dir_open(&t, "auto");
	build_kv(&t, ".", 0, 1);
	assert_int_equal(cache_new(1 * MiB, &cache), 0);
	kv = open_kv(&t, cache);
	check_batch(kv);
	check_lists(kv);
	assert_int_equal(kv_locate(kv, NULL, NULL, 0), 0);
	assert_int_equal(kv_where_text(kv, span_str(keys[1]), &where), 0);
	assert_string_equal(buf_str(&where), "inline:37");
	buf_clear(&where);
	assert_int_equal(kv_where_text(kv, S("none"), &where), 0);
	assert_string_equal(buf_str(&where), "absent");
	assert_int_equal(kv_put(kv, S("a"), S("b")), -EROFS);
	kv_free(kv);
	kv = open_kv(&t, NULL);
	check_batch(kv);
	kv_free(kv);
	cache_free(cache);
	test_dir_close(&t);
}

struct reader {
	struct kv *kv;
	unsigned seed;
	int r;
};

static void *read_values(void *arg)
{
	struct reader *x = arg;
	uint64_t seed = x->seed;

	for (int i = 0; i < 200 && x->r >= 0; i++) {
		unsigned n = test_random(&seed, KEYS), listed = 0;
		auto_buf got = { 0 };

		x->r = kv_get_all(x->kv, span_str(keys[n]), 1000, &got);
		if (x->r >= 0 && !span_eq(buf_span(&got), span_of(values[n], size_of(n))))
			x->r = -EIO;
		if (x->r >= 0 && i % 20 == 0)
			x->r = kv_list(x->kv, S("w/1"), count_key, &listed);
	}
	return NULL;
}

static void threads_read_at_once(void **state)
{
	for (int is_union = 0; is_union < 2; is_union++) {
		struct reader reader[6];
		pthread_t thread[6];
		struct test_dir t;
		struct cache *cache;
		struct kv *kv;

		test_dir_open(&t, "auto");
		build_kv(&t, "ocdbt.process_1", 1, 2);
		build_kv(&t, "ocdbt.process_0", 0, 2);
		build_kv(&t, ".", 0, 1);
		assert_int_equal(cache_new(20 * KiB, &cache), 0);
		kv = is_union ? open_union(&t, cache) : open_kv(&t, cache);
		for (unsigned i = 0; i < 6; i++) {
			reader[i] = (struct reader){ kv, i, 0 };
			assert_int_equal(pthread_create(&thread[i], NULL, read_values, &reader[i]),
					 0);
		}
		for (unsigned i = 0; i < 6; i++) {
			pthread_join(thread[i], NULL);
			assert_true(reader[i].r >= 0);
		}
		kv_free(kv);
		cache_free(cache);
		test_dir_close(&t);
	}
}

/* ---- broken values ---- */

static void values_must_lie_in_their_files(void **state)
{
	static const struct {
		const char *rel;
		uint64_t off, len;
		int code;
		const char *text;
	} cases[] = {
		{ "d/v", 0, 10, 0, "" },
		{ "d/v", 1, 10, -EUCLEAN,
		  "'k': data file 'd/v' has 10 bytes, 10 at offset 1 are referred to" },
		{ "d/gone", 0, 1, -EUCLEAN, "'k': data file 'd/gone' is absent" },
		{ "d", 0, 1, -EUCLEAN, "not a regular file" },
		{ "../up", 0, 1, -EUCLEAN, "not inside" },
		/* For a value of no bytes, the file is not opened. */
		{ "d/gone", 0, 0, 0, "" },
		{ "../up", 5, 0, 0, "" },
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct test_forge f = { 0 };
		struct ocdbt_stats stats;
		struct ocdbt_entry e = { .key = S("k"), .value.kind = OCDBT_FILE };
		struct ocdbt_ref root;
		struct kv_loc loc = { 0 };
		auto_packer p = { 0 };
		struct test_dir t;
		struct kv *kv;
		struct span key = S("k");
		int r;

		test_dir_open(&t, "sync");
		f.t = &t;
		e.value.ref = (struct ocdbt_ref){ NONE, span_str(cases[i].rel), cases[i].off,
						  cases[i].len };
		test_write(&t, "d/v", S("0123456789"));
		assert_int_equal(ocdbt_packer_add(&p, &e), 0);
		root = test_forge_node(&f, &p, 0, &stats);
		test_forge_finish(&f, &root, 0, &stats);
		kv = open_kv(&t, NULL);
		r = kv_locate(kv, &key, &loc, 1);
		assert_int_equal(r, cases[i].code);
		if (r < 0 && !strstr(err_text(r), cases[i].text))
			fail_msg("case %zu says '%s'", i, err_text(r));
		if (r == 0)
			assert_int_equal(loc.where, cases[i].len ? KV_FILE : KV_INLINE);
		kv_loc_release(&loc);
		/* Listing does not need the values. */
		{
			unsigned n = 0;

			assert_int_equal(kv_list(kv, NONE, count_key, &n), 0);
			assert_int_equal(n, 1);
		}
		kv_free(kv);
		test_dir_close(&t);
	}
}

static void versions_can_be_selected(void **state)
{
	struct ocdbt_open_opts opts = { .name = "named" };
	struct test_dir t;
	struct io_dir *dir;
	struct kv *kv;

	test_dir_open(&t, "sync");
	test_write(&t, "manifest.ocdbt", VEC(manifest_two));
	test_write(&t, "d/00112233445566778899aabbccddeeff", VEC(leaf_inline));
	for (uint64_t g = 0; g < 4; g++) {
		unsigned n = 0;
		int r;

		opts.when.generation = g;
		dir = test_dir_again(&t, ".");
		r = ocdbt_open(dir, NULL, &opts, &kv);
		if (g == 3) {
			assert_int_equal(r, -ENOENT);
			assert_non_null(strstr(err_text(r), "no version of generation 3"));
			io_dir_close(dir);
			continue;
		}
		assert_int_equal(r, 0);
		assert_string_equal(kv->name, "named");
		assert_int_equal(kv_list(kv, NONE, count_key, &n), 0);
		assert_int_equal(n, g == 1 ? 0 : 1);
		kv_free(kv);
	}
	dir = test_dir_again(&t, ".");
	opts.when = (struct ocdbt_when){ .time = 5 };
	assert_int_equal(ocdbt_open(dir, NULL, &opts, &kv), -ENOENT);
	io_dir_close(dir);
	test_dir_close(&t);
}

/* ---- unions ---- */

static void a_union_is_the_sum_of_its_parts(void **state)
{
	struct test_dir t;
	struct cache *cache;
	struct kv *kv;
	auto_buf where = { 0 };

	test_dir_open(&t, "auto");
	for (unsigned i = 0; i < 3; i++) {
		char name[32];

		snprintf(name, sizeof(name), "ocdbt.process_%u", i);
		build_kv(&t, name, i, 3);
	}
	/* A replica has some of the keys, too, with the same values. */
	build_kv(&t, "ocdbt.process_replica_0", 0, 5);
	/* Fill in the tables where the last call has left gaps. */
	for (unsigned i = 0; i < KEYS; i++) {
		snprintf(keys[i], sizeof(keys[i]), "w/%u.%u", 10 + i / 30, 10 + i % 30);
		memset(values[i], (int)i, sizeof(values[i]));
	}
	assert_int_equal(cache_new(1 * MiB, &cache), 0);
	kv = open_union(&t, cache);
	check_batch(kv);
	check_lists(kv);
	assert_int_equal(kv_where_text(kv, span_str(keys[2]), &where), 0);
	assert_non_null(strstr(buf_str(&where), "value:ocdbt.process_2/d/"));
	kv_free(kv);
	cache_free(cache);
	test_dir_close(&t);
}

static void parts_that_disagree_are_an_error(void **state)
{
	static const struct {
		const char *one, *two;
		bool ok;
	} cases[] = {
		{ "same", "same", true },
		{ "same", "other", false },
		{ "same", "sama", false },
		{ "same as a long value that is stored in a file, more than fifty bytes",
		  "same as a long value that is stored in a file, more than fifty bytes", true },
		{ "same as a long value that is stored in a file, more than fifty bytes",
		  "same as a long value that is stored in a file, more than fifty byteS", false },
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct span key = S("k");
		struct kv_loc loc;
		struct test_dir t;
		struct kv *kv;
		unsigned n = 0;
		int r;

		test_dir_open(&t, "sync");
		for (int part = 0; part < 2; part++) {
			struct ocdbt_entry e =
				test_entry(key, span_str(part ? cases[i].two : cases[i].one));
			auto_of(io_dir) struct io_dir *dir = NULL;
			struct ocdbt_config c;

			io_dirop(t.dir, IO_MKDIR, part ? "ocdbt.process_1" : "ocdbt.process_0",
				 NULL, 0700);
			dir = test_dir_again(&t, part ? "ocdbt.process_1" : "ocdbt.process_0");
			test_config(&c, 50, 1000);
			test_build(dir, &c, &e, 1);
		}
		kv = open_union(&t, NULL);
		r = kv_locate(kv, &key, &loc, 1);
		assert_int_equal(r, cases[i].ok ? 0 : -EUCLEAN);
		if (r < 0)
			assert_string_equal(
				err_text(r),
				"'k' is in 'ocdbt.process_0' and in 'ocdbt.process_1' with"
				" different values");
		kv_loc_release(&loc);
		assert_int_equal(kv_list(kv, NONE, count_key, &n), 0);
		assert_int_equal(n, 1);
		kv_free(kv);
		test_dir_close(&t);
	}
}

static void a_union_of_nothing_is_empty(void **state)
{
	struct ocdbt_parts none = { 0 };
	struct test_dir t;
	struct kv *kv;
	unsigned n = 0;
	struct span key = S("k");
	struct kv_loc loc;

	test_dir_open(&t, "sync");
	assert_int_equal(ocdbt_open_union(test_dir_again(&t, "."), &none, NULL, NULL, &kv), 0);
	assert_int_equal(kv_list(kv, NONE, count_key, &n), 0);
	assert_int_equal(n, 0);
	assert_int_equal(kv_locate(kv, &key, &loc, 1), 0);
	assert_int_equal(loc.where, KV_ABSENT);
	kv_free(kv);
	test_dir_close(&t);
}

static void a_broken_part_is_named(void **state)
{
	__attribute__((cleanup(ocdbt_parts_release))) struct ocdbt_parts parts = { 0 };
	struct io_dir *dir;
	struct test_dir t;
	struct kv *kv;

	test_dir_open(&t, "sync");
	build_kv(&t, "ocdbt.process_0", 0, 3);
	test_write(&t, "ocdbt.process_1/manifest.ocdbt", S("not a manifest of any kind"));
	assert_int_equal(ocdbt_parts_find(t.dir, &parts), 0);
	dir = test_dir_again(&t, ".");
	assert_int_equal(ocdbt_open_union(dir, &parts, NULL, NULL, &kv), -EUCLEAN);
	assert_non_null(strstr(err_text(-EUCLEAN), "ocdbt.process_1/manifest.ocdbt"));
	io_dir_close(dir);
	test_dir_close(&t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(batches_and_lists_find_everything),
		cmocka_unit_test(threads_read_at_once),
		cmocka_unit_test(values_must_lie_in_their_files),
		cmocka_unit_test(versions_can_be_selected),
		cmocka_unit_test(a_union_is_the_sum_of_its_parts),
		cmocka_unit_test(parts_that_disagree_are_an_error),
		cmocka_unit_test(a_union_of_nothing_is_empty),
		cmocka_unit_test(a_broken_part_is_named),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
