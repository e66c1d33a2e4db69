/* SPDX-License-Identifier: Apache-2.0 */
/*
 * t_ocdbt_nomem.c - each allocation of core/ocdbt fails once: -ENOMEM, nothing leaked, nothing
 * broken.
 *
 * The linker redirects our calls of malloc() and related functions here, but not those inside
 * libraries.
 */
#include "tests/unit/lib/nomem.h"
#include "tests/unit/lib/ocdbt_test.h"

#include "core/ocdbt/db.h"

/* How run() treats its directory. */
enum kind { CHANGES, READS };

/*
 * Run it with the first allocation failing, then the second, and so on until all succeed. prepare()
 * has enough memory. A run that only reads gets the same directory each time.
 */
static void fail_each(enum kind kind, void (*prepare)(struct test_dir *t),
		      int (*run)(struct test_dir *t), unsigned least)
{
	struct test_dir t;
	unsigned n = 0;

	for (bool is_over = false; !is_over; n++) {
		int r;

		if (n == 0 || kind == CHANGES) {
			test_dir_open(&t, "sync");
			if (prepare)
				prepare(&t);
		}
		count = 0;
		fail_at = n + 1;
		r = run(&t);
		is_over = count < fail_at;
		fail_at = 0;
		if (r != 0 && r != -ENOMEM)
			fail_msg("allocation %u failed: %d, %s", n, r, err_text(r));
		if (is_over)
			assert_int_equal(r, 0);
		if (is_over || kind == CHANGES)
			test_dir_close(&t);
	}
	/* Otherwise the test would test nothing. */
	assert_true(n > least);
}

/* ---- records ---- */

static int text_and_back(struct test_dir *t)
{
	const struct span vectors[] = { VEC(manifest_two), VEC(leaf_mixed), VEC(leaf_merged),
					VEC_TS_ROOT,       VEC(vnode_leaf), VEC(vnode_interior) };
	int r = 0;

	for (size_t i = 0; i < ARRAY_LEN(vectors) && r >= 0; i++) {
		auto_buf text = { 0 }, back = { 0 };

		r = ocdbt_record_text(&text, vectors[i]);
		if (r >= 0)
			r = ocdbt_record_undump(buf_span(&text), &back);
	}
	return r;
}

static void records(void **state)
{
	fail_each(READS, NULL, text_and_back, 50);
}

/* ---- writing ---- */

#define KEYS 24

static char keys[KEYS][16];
static struct ocdbt_entry entries[KEYS];

static int write_version(struct io_dir *dir, struct ocdbt *db, uint64_t time)
{
	auto_of(ocdbt_data) struct ocdbt_data *data = NULL;
	struct ocdbt_data_opts opts = { .target_size = 2000 };
	struct ocdbt_array_source src;
	struct ocdbt_version root;
	struct ocdbt_config c;
	auto_manifest m = { 0 };
	int r = ocdbt_data_new(dir, &opts, &data);

	for (unsigned i = 0; i < KEYS; i++) {
		snprintf(keys[i], sizeof(keys[i]), "key%03u", i);
		entries[i] =
			test_entry(span_str(keys[i]),
				   span_of("0123456789012345678901234567890123456789", i % 40));
	}
	test_config(&c, 20, 300);
	c.arity_log2 = 1;
	c.compression = OCDBT_ZSTD;
	ocdbt_array_source_init(&src, entries, KEYS);
	if (r >= 0)
		r = ocdbt_build(&src.base, &c, data, &root);
	if (r >= 0)
		r = db ? ocdbt_manifest_next(db, &root, time, data, &m) :
			 ocdbt_manifest_first(&c, &root, time, &m);
	if (r >= 0)
		r = ocdbt_data_sync(data);
	return r < 0 ? r : ocdbt_manifest_write(dir, &m, NULL);
}

static int write_first(struct test_dir *t)
{
	return write_version(t->dir, NULL, 1);
}

static int open_at(struct test_dir *t, const char *rel, struct cache *cache, struct ocdbt **ret)
{
	struct io_dir *dir;
	int r = io_dir_sub(t->dir, rel, &dir);

	if (r < 0)
		return r;
	r = ocdbt_db_open(dir, cache, ret);
	if (r < 0)
		io_dir_close(dir);
	return r;
}

static int write_next(struct test_dir *t)
{
	auto_of(ocdbt) struct ocdbt *db = NULL;
	int r = open_at(t, ".", NULL, &db);

	return r < 0 ? r : write_version(t->dir, db, 1);
}

static void seven_versions(struct test_dir *t)
{
	assert_int_equal(write_first(t), 0);
	for (int i = 0; i < 6; i++)
		assert_int_equal(write_next(t), 0);
}

static void the_first_version(void **state)
{
	fail_each(CHANGES, NULL, write_first, 50);
}

/* The eighth of arity 2 begins a new block and carries over two levels. */
static void one_more_version(void **state)
{
	fail_each(CHANGES, seven_versions, write_next, 50);
}

static int use_streams(struct test_dir *t)
{
	auto_of(ocdbt_data) struct ocdbt_data *data = NULL;
	auto_of(ocdbt_stream) struct ocdbt_stream *s = NULL;
	struct ocdbt_ref ref = { 0 };
	auto_kv_loc loc = { 0 };
	int r = ocdbt_data_new(t->dir, NULL, &data);

	if (r >= 0)
		r = ocdbt_stream_open(data, 0, &s);
	if (r >= 0)
		r = ocdbt_stream_add(s, S("some bytes"));
	if (r >= 0)
		r = ocdbt_stream_close(s, false, &ref);
	if (r >= 0)
		s = NULL;
	if (r >= 0)
		r = ocdbt_data_locate(data, &ref, &loc);
	/* The writer is usable after a failure. */
	if (r == -ENOMEM) {
		fail_at = 0;
		ocdbt_stream_abort(take(s));
		if (data) {
			assert_int_equal(ocdbt_data_put(data, S("x"), &ref), 0);
			assert_int_equal(ocdbt_data_discard(data), 0);
		}
	}
	return r;
}

static void streams(void **state)
{
	fail_each(CHANGES, NULL, use_streams, 4);
}

/* ---- reading ---- */

static int any_key(void *arg, struct span key, uint64_t len)
{
	return 0;
}

static int any_version(void *arg, const struct ocdbt_version *v)
{
	return 0;
}

static int any_finding(void *arg, const struct ocdbt_finding *f)
{
	return -EIO;
}

static int read_kv(struct kv *kv)
{
	struct span key[KEYS];
	struct kv_loc loc[KEYS];
	auto_buf where = { 0 };
	int r;

	for (unsigned i = 0; i < KEYS; i++)
		key[i] = span_str(keys[(i * 7) % KEYS]);
	r = kv_locate(kv, key, loc, KEYS);
	for (unsigned i = 0; i < KEYS && r >= 0; i++)
		kv_loc_release(&loc[i]);
	if (r >= 0)
		r = kv_list(kv, S("key0"), any_key, NULL);
	return r < 0 ? r : kv_where_text(kv, key[1], &where);
}

static int read_all(struct test_dir *t)
{
	const struct ocdbt_check_opts opts = { true, true, any_finding, NULL };
	struct ocdbt_check_stats stats;
	auto_of(ocdbt) struct ocdbt *db = NULL;
	struct ocdbt_version v;
	struct cache *cache = NULL;
	struct io_dir *dir = NULL;
	struct kv *kv = NULL;
	auto_arena a = { 0 };
	int r = cache_new(3000, &cache);

	if (r >= 0)
		r = io_dir_sub(t->dir, ".", &dir);
	if (r >= 0)
		r = ocdbt_open(dir, cache, NULL, &kv);
	if (r >= 0)
		dir = NULL;
	if (r >= 0)
		r = read_kv(kv);
	kv_free(kv);
	io_dir_close(dir);
	if (r >= 0)
		r = open_at(t, ".", cache, &db);
	if (r >= 0)
		r = ocdbt_find_version(db, &(struct ocdbt_when){ .generation = 2 }, &a, &v);
	if (r >= 0)
		r = ocdbt_each_version(db, any_version, NULL);
	if (r >= 0)
		r = ocdbt_check(db, &opts, &stats);
	ocdbt_db_close(take(db));
	cache_free(cache);
	return r;
}

static void reading(void **state)
{
	fail_each(READS, seven_versions, read_all, 200);
}

/* ---- parts ---- */

static void three_parts(struct test_dir *t)
{
	for (int i = 0; i < 3; i++) {
		char name[32];
		struct io_dir *dir;

		snprintf(name, sizeof(name), "ocdbt.process_%d", i);
		assert_int_equal(io_dirop(t->dir, IO_MKDIR, name, NULL, 0700), 0);
		dir = test_dir_again(t, name);
		assert_int_equal(write_version(dir, NULL, 1), 0);
		io_dir_close(dir);
	}
}

static int merge_parts(struct test_dir *t)
{
	__attribute__((cleanup(ocdbt_parts_release))) struct ocdbt_parts parts = { 0 };
	auto_of(ocdbt_data) struct ocdbt_data *data = NULL;
	struct ocdbt_merge_stats stats;
	struct ocdbt_version root;
	struct ocdbt_config c;
	int r = ocdbt_parts_find(t->dir, &parts);

	test_config(&c, 20, 300);
	if (r >= 0)
		r = ocdbt_data_new(t->dir, NULL, &data);
	return r < 0 ? r : ocdbt_merge_dirs(t->dir, &parts, NULL, &c, data, &root, &stats);
}

static int read_union(struct test_dir *t)
{
	__attribute__((cleanup(ocdbt_parts_release))) struct ocdbt_parts parts = { 0 };
	struct io_dir *dir = NULL;
	struct kv *kv = NULL;
	int r = ocdbt_parts_find(t->dir, &parts);

	if (r >= 0)
		r = io_dir_sub(t->dir, ".", &dir);
	if (r >= 0)
		r = ocdbt_open_union(dir, &parts, NULL, NULL, &kv);
	if (r >= 0)
		dir = NULL;
	if (r >= 0)
		r = read_kv(kv);
	kv_free(kv);
	io_dir_close(dir);
	return r;
}

static void merging(void **state)
{
	fail_each(READS, three_parts, merge_parts, 200);
}

static void unions(void **state)
{
	fail_each(READS, three_parts, read_union, 200);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(records),          cmocka_unit_test(the_first_version),
		cmocka_unit_test(one_more_version), cmocka_unit_test(streams),
		cmocka_unit_test(reading),          cmocka_unit_test(merging),
		cmocka_unit_test(unions),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
