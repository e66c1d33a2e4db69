/* SPDX-License-Identifier: Apache-2.0 */
/*
 * t_merge.c - several databases into one by reference, and as one sequence of keys.
 */
#include "tests/unit/lib/ocdbt_test.h"

#include "core/ocdbt/db.h"

/*
 * Build a database in rel with the keys key%05u for every i that `has` accepts, with values of
 * value_n bytes.
 */
static void build_part(struct test_dir *t, const char *rel, unsigned n,
		       bool (*has)(unsigned i, unsigned part), unsigned part, size_t value_n)
{
	auto_free struct ocdbt_entry *entry = calloc(n + 1, sizeof(*entry));
	auto_of(io_dir) struct io_dir *dir = NULL;
	struct ocdbt_config c;
	auto_arena a = { 0 };
	size_t count = 0;

	for (unsigned i = 0; i < n; i++) {
		char key[16];
		uint8_t *value;

		if (!has(i, part))
			continue;
		snprintf(key, sizeof(key), "key%05u", i);
		value = arena_alloc(&a, value_n);
		memset(value, (int)i, value_n);
		entry[count++] = test_entry(span_str(arena_str(&a, key)), span_of(value, value_n));
	}
	assert_int_equal(io_dirop(t->dir, IO_MKDIR, rel, NULL, 0700), 0);
	dir = test_dir_again(t, rel);
	test_config(&c, 20, 500);
	test_build(dir, &c, entry, count);
}

static bool every_third(unsigned i, unsigned part)
{
	return i % 3 == part;
}

static bool all_of_them(unsigned i, unsigned part)
{
	return true;
}

static bool none_of_them(unsigned i, unsigned part)
{
	return false;
}

static int merge_all(struct test_dir *t, struct ocdbt_merge_stats *stats)
{
	__attribute__((cleanup(ocdbt_parts_release))) struct ocdbt_parts parts = { 0 };
	auto_of(ocdbt_data) struct ocdbt_data *data = NULL;
	struct ocdbt_version root;
	struct ocdbt_config c;
	auto_manifest m = { 0 };
	int r;

	test_config(&c, 20, 1000);
	assert_int_equal(ocdbt_parts_find(t->dir, &parts), 0);
	assert_int_equal(ocdbt_data_new(t->dir, NULL, &data), 0);
	r = ocdbt_merge_dirs(t->dir, &parts, NULL, &c, data, &root, stats);
	if (r < 0)
		return r;
	assert_int_equal(ocdbt_data_sync(data), 0);
	assert_int_equal(ocdbt_manifest_first(&c, &root, 0, &m), 0);
	assert_int_equal(ocdbt_manifest_write(t->dir, &m, NULL), 0);
	return 0;
}

static void check_merged(struct test_dir *t, unsigned n, size_t value_n)
{
	auto_of(kv) struct kv *kv = NULL;

	assert_int_equal(ocdbt_open(test_dir_again(t, "."), NULL, NULL, &kv), 0);
	for (unsigned i = 0; i < n + 2; i++) {
		uint8_t want[4096];
		auto_buf got = { 0 };
		char key[16];

		snprintf(key, sizeof(key), "key%05u", i);
		memset(want, (int)i, sizeof(want));
		assert_int_equal(kv_get_all(kv, span_str(key), UINT64_MAX, &got), i < n);
		if (i < n)
			assert_true(span_eq(buf_span(&got), span_of(want, value_n)));
	}
}

static void values_stay_where_they_are(void **state)
{
	static const size_t sizes[] = { 5, 3000 };

	for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
		struct ocdbt_merge_stats stats;
		struct test_dir t;
		struct kv *kv;
		auto_buf where = { 0 };

		test_dir_open(&t, "sync");
		for (unsigned part = 0; part < 3; part++) {
			char name[32];

			snprintf(name, sizeof(name), "ocdbt.process_%u", part);
			build_part(&t, name, 200, every_third, part, sizes[i]);
		}
		assert_int_equal(merge_all(&t, &stats), 0);
		assert_int_equal(stats.keys, 200);
		assert_int_equal(stats.repeated, 0);
		check_merged(&t, 200, sizes[i]);
		/* Small ones are copied, the others referred to. */
		assert_int_equal(ocdbt_open(test_dir_again(&t, "."), NULL, NULL, &kv), 0);
		assert_int_equal(kv_where_text(kv, S("key00001"), &where), 0);
		if (i == 0)
			assert_string_equal(buf_str(&where), "inline:5");
		else
			assert_non_null(strstr(buf_str(&where), "value:ocdbt.process_1/d/"));
		kv_free(kv);
		/* The manifests of the parts are not needed any more. */
		assert_int_equal(
			io_dirop(t.dir, IO_UNLINK, "ocdbt.process_1/manifest.ocdbt", NULL, 0), 0);
		check_merged(&t, 200, sizes[i]);
		test_dir_close(&t);
	}
}

static void repeated_keys_must_be_equal(void **state)
{
	static const size_t sizes[] = { 5, 3000 };

	for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
		struct ocdbt_merge_stats stats;
		struct test_dir t;

		test_dir_open(&t, "sync");
		build_part(&t, "ocdbt.process_0", 50, all_of_them, 0, sizes[i]);
		build_part(&t, "ocdbt.process_1", 30, all_of_them, 0, sizes[i]);
		build_part(&t, "ocdbt.process_2", 30, none_of_them, 0, sizes[i]);
		build_part(&t, "ocdbt.process_10", 50, every_third, 2, sizes[i]);
		assert_int_equal(merge_all(&t, &stats), 0);
		assert_int_equal(stats.keys, 50);
		assert_int_equal(stats.repeated, 30 + 16);
		check_merged(&t, 50, sizes[i]);
		/* One more part that has other values for some keys. */
		build_part(&t, "ocdbt.process_3", 7, every_third, 0, sizes[i] + 1);
		assert_int_equal(merge_all(&t, &stats), -EUCLEAN);
		assert_string_equal(
			err_text(-EUCLEAN),
			"'key00000' is in 'ocdbt.process_0/' and in 'ocdbt.process_3/' with different"
			" values");
		test_dir_close(&t);
	}
}

/* Equal length, and a difference in the last byte of a long value. */
static void values_are_compared_to_their_end(void **state)
{
	size_t n = 3 * MiB + 1;
	auto_buf value = { 0 };
	struct test_dir t;
	struct ocdbt *a, *b;
	struct ocdbt_value va, vb;

	buf_add_zero(&value, n);
	test_dir_open(&t, "sync");
	test_write(&t, "d/one", buf_span(&value));
	test_write(&t, "d/same", buf_span(&value));
	value.p[n - 1] = 1;
	test_write(&t, "d/other", buf_span(&value));
	test_write(&t, "manifest.ocdbt", VEC(manifest_inline));
	a = test_open_db(&t, ".", NULL);
	b = test_open_db(&t, ".", NULL);
	va = (struct ocdbt_value){ .kind = OCDBT_FILE, .ref = { .rel = S("d/one"), .len = n } };
	vb = va;
	assert_int_equal(ocdbt_value_equal(a, &va, b, &vb), 1);
	vb.ref.rel = S("d/same");
	assert_int_equal(ocdbt_value_equal(a, &va, b, &vb), 1);
	vb.ref.rel = S("d/other");
	assert_int_equal(ocdbt_value_equal(a, &va, b, &vb), 0);
	vb.ref.len--;
	assert_int_equal(ocdbt_value_equal(a, &va, b, &vb), 0);
	vb.ref.rel = S("d/none");
	vb.ref.len = n;
	assert_int_equal(ocdbt_value_equal(a, &va, b, &vb), -EUCLEAN);
	/* Inline and in a file, and two empty values. */
	va.ref.len = 5;
	vb = (struct ocdbt_value){ .kind = OCDBT_INLINE, .bytes = span_of("\0\0\0\0\0", 5) };
	assert_int_equal(ocdbt_value_equal(a, &va, b, &vb), 1);
	vb.bytes = S("\0\0\0\0x");
	assert_int_equal(ocdbt_value_equal(a, &va, b, &vb), 0);
	va.ref.len = 0;
	vb.bytes = NONE;
	assert_int_equal(ocdbt_value_equal(a, &va, b, &vb), 1);
	ocdbt_db_close(a);
	ocdbt_db_close(b);
	test_dir_close(&t);
}

static void merged_databases_merge_again(void **state)
{
	struct ocdbt_merge_stats stats;
	struct test_dir t, sub;

	test_dir_open(&t, "sync");
	test_dir_open(&sub, "sync");
	io_dir_close(sub.dir);
	assert_int_equal(io_dirop(t.dir, IO_MKDIR, "ocdbt.process_0", NULL, 0700), 0);
	sub.dir = test_dir_again(&t, "ocdbt.process_0");
	build_part(&sub, "ocdbt.process_a", 60, every_third, 0, 300);
	build_part(&sub, "ocdbt.process_b", 60, every_third, 1, 300);
	assert_int_equal(merge_all(&sub, &stats), 0);
	build_part(&t, "ocdbt.process_1", 60, every_third, 2, 300);
	assert_int_equal(merge_all(&t, &stats), 0);
	assert_int_equal(stats.keys, 60);
	check_merged(&t, 60, 300);
	test_dir_close(&sub);
	test_dir_close(&t);
}

static void nothing_merges_to_an_empty_database(void **state)
{
	struct ocdbt_merge_stats stats;
	struct test_dir t;

	test_dir_open(&t, "sync");
	assert_int_equal(merge_all(&t, &stats), 0);
	check_merged(&t, 0, 0);
	build_part(&t, "ocdbt.process_0", 10, none_of_them, 0, 5);
	assert_int_equal(merge_all(&t, &stats), 0);
	assert_int_equal(stats.keys, 0);
	check_merged(&t, 0, 0);
	test_dir_close(&t);
}

static void a_full_disk_ends_the_merge(void **state)
{
	struct ocdbt_merge_stats stats;
	struct test_dir t;

	test_dir_open(&t, "sync");
	build_part(&t, "ocdbt.process_0", 100, all_of_them, 0, 300);
	io_dir_close(t.dir);
	io_engine_close(t.io);
	assert_int_equal(io_engine_open("fault(create:enospc:1):sync", &t.io), 0);
	assert_int_equal(io_dir_open(t.io, t.path, &t.dir), 0);
	assert_int_equal(merge_all(&t, &stats), -ENOSPC);
	assert_int_equal(merge_all(&t, &stats), 0);
	check_merged(&t, 100, 300);
	test_dir_close(&t);
}

static void parts_are_found_by_name(void **state)
{
	static const char *const with_manifest[] = {
		"ocdbt.process_10",        "ocdbt.process_2",     "ocdbt.process_0",
		"ocdbt.process_replica_1", "ocdbt.process_0ab12", "ocdbt.process_",
		"ocdbt.process_x-y",       "ocdbt.process_a.b",   "other",
		"ocdbt.proces_1"
	};
	static const char *const want[] = { "ocdbt.process_0", "ocdbt.process_0ab12",
					    "ocdbt.process_2", "ocdbt.process_10",
					    "ocdbt.process_replica_1" };
	__attribute__((cleanup(ocdbt_parts_release))) struct ocdbt_parts parts = { 0 };
	struct test_dir t;

	test_dir_open(&t, "sync");
	for (size_t i = 0; i < ARRAY_LEN(with_manifest); i++) {
		char path[64];

		snprintf(path, sizeof(path), "%s/manifest.ocdbt", with_manifest[i]);
		test_write(&t, path, VEC(manifest_empty));
	}
	test_write(&t, "ocdbt.process_7/d/junk", S("x"));
	test_write(&t, "ocdbt.process_8", S("a file"));
	assert_int_equal(ocdbt_parts_find(t.dir, &parts), 0);
	assert_int_equal(parts.n, ARRAY_LEN(want));
	assert_int_equal(parts.n_bare, 2);
	for (size_t i = 0; i < parts.n; i++) {
		bool known = false;

		for (size_t k = 0; k < ARRAY_LEN(want); k++)
			known |= !strcmp(parts.name[i], want[k]);
		assert_true(known);
	}
	assert_string_equal(parts.name[0], "ocdbt.process_0");
	test_dir_close(&t);
}

/* Windows so small that each part is read in many of them. */
static void small_windows_return_every_key(void **state)
{
	enum { PARTS = 40, KEYS = 3000 };
	struct ocdbt *db[PARTS];
	struct mergelist_part part[PARTS];
	struct mergelist *m;
	const struct mergelist_hit *hit;
	struct test_dir t;
	unsigned n = 0;
	int r;

	test_dir_open(&t, "sync");
	for (unsigned i = 0; i < PARTS; i++) {
		char name[32];

		snprintf(name, sizeof(name), "p%u", i);
		build_part(&t, name, KEYS, i % 2 ? every_third : all_of_them, i % 3, 8);
		db[i] = test_open_db(&t, name, NULL);
		part[i] = (struct mergelist_part){ db[i], test_latest(db[i]) };
	}
	assert_int_equal(mergelist_open(part, PARTS, S("key00100"), S("key02900"), &m), 0);
	while ((r = mergelist_next(m, &hit)) > 0) {
		unsigned number = 100 + n, want = 0;
		char key[16];

		snprintf(key, sizeof(key), "key%05u", number);
		for (unsigned i = 0; i < PARTS; i++)
			want += i % 2 ? every_third(number, i % 3) : 1;
		assert_int_equal(r, want);
		for (int i = 0; i < r; i++) {
			assert_true(span_eq(hit[i].entry->key, span_str(key)));
			if (i)
				assert_true(hit[i].part > hit[i - 1].part);
		}
		n++;
	}
	assert_int_equal(r, 0);
	assert_int_equal(n, 2800);
	mergelist_close(m);
	for (unsigned i = 0; i < PARTS; i++)
		ocdbt_db_close(db[i]);
	test_dir_close(&t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(values_stay_where_they_are),
		cmocka_unit_test(repeated_keys_must_be_equal),
		cmocka_unit_test(values_are_compared_to_their_end),
		cmocka_unit_test(merged_databases_merge_again),
		cmocka_unit_test(nothing_merges_to_an_empty_database),
		cmocka_unit_test(a_full_disk_ends_the_merge),
		cmocka_unit_test(parts_are_found_by_name),
		cmocka_unit_test(small_windows_return_every_key),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
