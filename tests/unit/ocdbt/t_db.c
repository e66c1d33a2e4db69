/* SPDX-License-Identifier: Apache-2.0 */
/*
 * t_db.c - opening: which manifest is current, which paths a data file may have, files kept open,
 * nodes with and without the cache.
 */
#include "tests/unit/lib/ocdbt_test.h"

#include <pthread.h>
#include <sys/stat.h>

#include "core/base/refusal.h"
#include "core/ocdbt/db.h"

static int try_open(struct test_dir *t, struct ocdbt **ret)
{
	struct io_dir *dir = test_dir_again(t, ".");
	int r = ocdbt_db_open(dir, NULL, ret);

	/* Taken on success only. */
	if (r < 0)
		io_dir_close(dir);
	return r;
}

static void without_a_manifest_there_is_no_database(void **state)
{
	struct ocdbt *db = NULL;
	struct test_dir t;

	test_dir_open(&t, "sync");
	assert_int_equal(try_open(&t, &db), -ENOENT);
	assert_non_null(strstr(err_text(-ENOENT), "'manifest.ocdbt' is absent"));
	test_write(&t, "manifest.ocdbt", span_of(vec_manifest_inline, 50));
	assert_int_equal(try_open(&t, &db), -EUCLEAN);
	assert_non_null(strstr(err_text(-EUCLEAN), "manifest.ocdbt': manifest declares 97 bytes"));
	test_write(&t, "manifest.ocdbt", NONE);
	assert_int_equal(try_open(&t, &db), -EUCLEAN);
	test_write(&t, "manifest.ocdbt", VEC(manifest_inline));
	assert_int_equal(try_open(&t, &db), 0);
	assert_string_equal(ocdbt_db_manifest_name(db), "manifest.ocdbt");
	ocdbt_db_close(db);
	test_dir_close(&t);
}

/* ---- the numbered kind ---- */

static void write_numbered(struct test_dir *t, const char *name, enum ocdbt_kind kind,
			   uint64_t generation, uint32_t inline_max)
{
	struct ocdbt_version v = { .generation = generation,
				   .commit_time = generation,
				   .root = { .off = OCDBT_NO_ROOT, .len = OCDBT_NO_ROOT } };
	struct ocdbt_manifest m = {
		.config = { .kind = kind, .arity_log2 = 4, .max_inline_value_bytes = inline_max },
		.versions = &v,
		.n_versions = kind == OCDBT_SINGLE
	};
	auto_buf b = { 0 };

	assert_int_equal(ocdbt_manifest_pack(&m, NULL, &b), 0);
	test_write(t, name, buf_span(&b));
}

static void the_manifest_with_the_highest_number_is_current(void **state)
{
	struct ocdbt *db;
	struct test_dir t;

	test_dir_open(&t, "sync");
	write_numbered(&t, "manifest.ocdbt", OCDBT_NUMBERED, 0, 5);
	assert_int_equal(try_open(&t, &db), 0);
	assert_int_equal(ocdbt_db_manifest(db)->n_versions, 0);
	ocdbt_db_close(db);
	write_numbered(&t, "manifest.0000000000000009", OCDBT_SINGLE, 9, 5);
	write_numbered(&t, "manifest.000000000000001f", OCDBT_SINGLE, 31, 5);
	/* Names that are not valid, and would have a higher number. */
	test_write(&t, "manifest.00000000000000FF", S("junk"));
	test_write(&t, "manifest.00000000000000ff.__lock", S("junk"));
	test_write(&t, "manifest.0000000000000ff", S("junk"));
	test_write(&t, "manifest.00000000000000fg", S("junk"));
	test_write(&t, "manifest.a000000000000000", S("junk"));
	test_write(&t, "manifest.0000000000000000", S("junk"));
	assert_int_equal(try_open(&t, &db), 0);
	assert_string_equal(ocdbt_db_manifest_name(db), "manifest.000000000000001f");
	assert_int_equal(ocdbt_db_manifest(db)->versions[0].generation, 31);
	ocdbt_db_close(db);
	test_dir_close(&t);
}

static void numbered_manifests_must_agree(void **state)
{
	static const struct {
		enum ocdbt_kind kind;
		uint64_t generation;
		uint32_t inline_max;
		const char *text;
	} cases[] = {
		{ OCDBT_NUMBERED, 3, 5, "holds versions itself" },
		{ OCDBT_SINGLE, 4, 5, "last generation is 4" },
		{ OCDBT_SINGLE, 3, 6, "configuration differs" },
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct ocdbt *db;
		struct test_dir t;

		test_dir_open(&t, "sync");
		write_numbered(&t, "manifest.ocdbt", OCDBT_NUMBERED, 0, 5);
		write_numbered(&t, "manifest.0000000000000003", cases[i].kind, cases[i].generation,
			       cases[i].inline_max);
		assert_int_equal(try_open(&t, &db), -EUCLEAN);
		assert_non_null(strstr(err_text(-EUCLEAN), cases[i].text));
		test_dir_close(&t);
	}
}

/* ---- paths and files ---- */

static struct ocdbt *plain_db(struct test_dir *t)
{
	struct ocdbt *db;

	test_write(t, "manifest.ocdbt", VEC(manifest_inline));
	assert_int_equal(try_open(t, &db), 0);
	return db;
}

static void only_usable_paths_are_opened(void **state)
{
	static const struct {
		const char *base, *rel;
		size_t rel_n;
		int code;
	} cases[] = {
		{ "", "d/file", 6, 0 },
		{ "d/", "file", 4, 0 },
		{ "d", "/file", 5, 0 },
		{ "d/f", "ile", 3, 0 },
		{ "", "v%/x y", 6, 0 },
		{ "", "link", 4, 0 },
		{ "", "/etc/passwd", 11, -EUCLEAN },
		{ "", "../x", 4, -EUCLEAN },
		{ "", "d/../d/file", 11, -EUCLEAN },
		{ "", "d//file", 7, -EUCLEAN },
		{ "", "./d/file", 8, -EUCLEAN },
		{ "", "", 0, -EUCLEAN },
		{ "", "d/", 2, -EUCLEAN },
		{ "", "d", 1, -EUCLEAN },
		{ "", "d/absent", 8, -EUCLEAN },
		{ "", "d/file/x", 8, -EUCLEAN },
		{ "", "d/fi\0le", 7, -EUCLEAN },
		{ "", "d/x.__lock", 10, -EUCLEAN },
		{ "", "d/x.__lock/y", 12, -EUCLEAN },
		{ "", "d\\..\\x", 6, -EUCLEAN },
		{ "", "fifo", 4, -EUCLEAN },
		{ "", "out", 3, -EUCLEAN },
		{ "../", "x", 1, -EUCLEAN },
		{ "a/", "/b", 2, -EUCLEAN },
	};
	struct ocdbt *db;
	struct test_dir t;
	char path[128];

	test_dir_open(&t, "sync");
	test_write(&t, "d/file", S("12345"));
	test_write(&t, "v%/x y", S("12345"));
	snprintf(path, sizeof(path), "%s/link", t.path);
	assert_int_equal(symlink("d/file", path), 0);
	snprintf(path, sizeof(path), "%s/out", t.path);
	assert_int_equal(symlink("/etc/passwd", path), 0);
	snprintf(path, sizeof(path), "%s/fifo", t.path);
	assert_int_equal(mkfifo(path, 0600), 0);
	db = plain_db(&t);
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct ocdbt_ref ref = { .base = span_str(cases[i].base),
					 .rel = span_of(cases[i].rel, cases[i].rel_n),
					 .off = 1,
					 .len = 4 };
		auto_buf b = { 0 };
		int r = db_read(db, &ref, 100, &b);

		if (r != cases[i].code)
			fail_msg("'%s' '%s': %d, %s", cases[i].base, cases[i].rel, r, err_text(r));
		if (r == 0)
			assert_string_equal(buf_str(&b), "2345");
	}
	ocdbt_db_close(db);
	test_dir_close(&t);
}

static void short_files_are_named_with_their_size(void **state)
{
	struct ocdbt_ref ref = { .rel = S("d/file"), .off = 3, .len = 3 };
	struct ocdbt *db;
	struct test_dir t;
	auto_buf b = { 0 };

	test_dir_open(&t, "sync");
	test_write(&t, "d/file", S("12345"));
	db = plain_db(&t);
	assert_int_equal(db_read(db, &ref, 100, &b), -EUCLEAN);
	assert_string_equal(err_text(-EUCLEAN),
			    "data file 'd/file' has 5 bytes, 3 at offset 3 are referred to");
	assert_int_equal(b.n, 0);
	ref.off = INT64_MAX - 3;
	assert_int_equal(db_read(db, &ref, 100, &b), -EUCLEAN);
	ref.off = 0;
	ref.len = 101;
	assert_int_equal(db_read(db, &ref, 100, &b), -EFBIG);
	ocdbt_db_close(db);
	test_dir_close(&t);
}

static void few_files_stay_open(void **state)
{
	struct db_recent recent = { 0 };
	struct ocdbt *db;
	struct test_dir t;
	uint64_t opens;

	test_dir_open(&t, "sync");
	for (unsigned i = 0; i < 2 * LIMIT_DB_FILES; i++) {
		char name[16];

		snprintf(name, sizeof(name), "d/%u", i);
		test_write(&t, name, span_str(name));
	}
	db = plain_db(&t);
	for (int round = 0; round < 3; round++) {
		unsigned n = round == 1 ? LIMIT_DB_FILES : 2 * LIMIT_DB_FILES;

		opens = atomic_load(&io_engine_stats(t.io)->opens);
		for (unsigned i = 0; i < n; i++)
			for (int again = 0; again < 3; again++) {
				char name[16], got[16] = { 0 };
				struct ocdbt_ref ref = { .len = (uint64_t)snprintf(
								 name, sizeof(name), "d/%u", i) };
				struct io_file *file;

				ref.rel = span_str(name);
				if (again < 2)
					assert_int_equal(db_file(db, &ref, &file), 0);
				else
					assert_int_equal(db_file_again(db, &recent, &ref, &file),
							 0);
				assert_int_equal(io_read_exact(file, got, ref.len, 0), 0);
				assert_string_equal(got, name);
				io_file_unref(file);
			}
		/*
		 * Each is opened at most once in a row; in the second round, those of the first
		 * have been closed.
		 */
		assert_in_range(atomic_load(&io_engine_stats(t.io)->opens) - opens, 1, n);
	}
	for (unsigned i = 0, n = 0; i < LIMIT_DB_FILES; i++) {
		n += db->file[i].file != NULL;
		assert_true(n <= LIMIT_DB_FILES);
	}
	db_recent_release(&recent);
	ocdbt_db_close(db);
	test_dir_close(&t);
}

/* ---- nodes and the cache ---- */

static void build_many(struct test_dir *t, struct ocdbt_entry *entry, char (*key)[16], size_t n,
		       uint32_t node_max)
{
	struct ocdbt_config c;

	for (size_t i = 0; i < n; i++) {
		snprintf(key[i], 16, "key%06zu", i);
		entry[i] = test_entry(span_str(key[i]), S("value"));
	}
	test_config(&c, 100, node_max);
	test_build(t->dir, &c, entry, n);
}

static struct ocdbt_entry entries[5000];
static char keys[5000][16];

static void a_node_larger_than_the_cache_works(void **state)
{
	static const uint64_t sizes[] = { 1, 1000, 100 * KiB, 16 * MiB };

	for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
		struct cache *cache;
		struct cache_stats stats;
		struct ocdbt_cursor *cur;
		struct ocdbt *db;
		struct test_dir t;

		test_dir_open(&t, "sync");
		build_many(&t, entries, keys, 5000, 100000000);
		assert_int_equal(cache_new(sizes[i], &cache), 0);
		db = test_open_db(&t, ".", cache);
		for (int k = 0; k < 3; k++) {
			struct ocdbt_value v;

			assert_int_equal(ocdbt_cursor_open(db, test_latest(db), &cur), 0);
			assert_int_equal(ocdbt_cursor_find(cur, S("key004321"), &v), 1);
			assert_true(span_eq(v.bytes, S("value")));
			ocdbt_cursor_close(cur);
		}
		cache_stats(cache, &stats);
		assert_int_equal(stats.pinned_bytes, 0);
		assert_int_equal(stats.misses, sizes[i] >= 16 * MiB ? 1 : 3);
		ocdbt_db_close(db);
		/* A closed database leaves nothing in the cache. */
		cache_stats(cache, &stats);
		assert_int_equal(stats.entries, 0);
		cache_free(cache);
		test_dir_close(&t);
	}
}

/* The clock of the file system may be too coarse to distinguish two changes, so set the time. */
static void flip(const char *path, uint64_t at, time_t time)
{
	const struct timespec times[2] = { { .tv_sec = time }, { .tv_sec = time } };
	int fd = open(path, O_RDWR | O_CLOEXEC);
	uint8_t byte;

	assert_true(fd >= 0);
	assert_int_equal(pread(fd, &byte, 1, (off_t)at), 1);
	byte ^= 1;
	assert_int_equal(pwrite(fd, &byte, 1, (off_t)at), 1);
	assert_int_equal(futimens(fd, times), 0);
	close(fd);
}

static int find_one(struct ocdbt *db)
{
	auto_of(ocdbt_cursor) struct ocdbt_cursor *cur = NULL;
	struct ocdbt_value v;
	int r = ocdbt_cursor_open(db, test_latest(db), &cur);

	return r < 0 ? r : ocdbt_cursor_find(cur, S("key000007"), &v);
}

/* Whether an error of the node is remembered. */
static bool is_refused(const struct ocdbt *db, const struct ocdbt_ref *ref)
{
	uint64_t id[2];

	assert_int_equal(db_ref_id(ref, id), 0);
	return refusal_is_likely(refusal_key(db->owner, span_of(id, sizeof(id)), 0));
}

static void a_refused_node_is_remembered_until_its_file_changes(void **state)
{
	const struct ocdbt_ref *root;
	struct ocdbt *db;
	struct test_dir t;
	char path[512];

	test_dir_open(&t, "sync");
	build_many(&t, entries, keys, 50, 100000000);
	db = test_open_db(&t, ".", NULL);
	root = &test_latest(db)->root;
	assert_int_equal(root->base.n, 0);
	snprintf(path, sizeof(path), "%s/%.*s", t.path, SPAN_ARG(root->rel));
	assert_int_equal(find_one(db), 1);
	assert_false(is_refused(db, root));
	flip(path, root->off + root->len / 2, 1000);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(find_one(db), -EBADMSG);
		assert_non_null(strstr(err_text(-EBADMSG), "btreenode"));
		assert_true(is_refused(db, root));
	}
	/* At once, although the file is open. */
	flip(path, root->off + root->len / 2, 1001);
	assert_int_equal(find_one(db), 1);
	ocdbt_db_close(db);
	test_dir_close(&t);
}

struct reader {
	struct ocdbt *db;
	unsigned seed;
	int r;
};

static void *read_keys(void *arg)
{
	struct reader *x = arg;
	uint64_t seed = x->seed;

	for (int i = 0; i < 400 && x->r >= 0; i++) {
		auto_of(ocdbt_cursor) struct ocdbt_cursor *cur = NULL;
		struct ocdbt_value v;

		x->r = ocdbt_cursor_open(x->db, test_latest(x->db), &cur);
		for (int k = 0; k < 5 && x->r >= 0; k++) {
			x->r = ocdbt_cursor_find(cur, span_str(keys[test_random(&seed, 5000)]), &v);
			if (x->r == 0)
				x->r = -ENOENT;
		}
	}
	return NULL;
}

static void threads_share_nodes(void **state)
{
	struct reader reader[6];
	pthread_t thread[6];
	struct cache *cache;
	struct ocdbt *db;
	struct test_dir t;

	test_dir_open(&t, "sync");
	build_many(&t, entries, keys, 5000, 2000);
	/* Too small for all nodes, so that they are evicted while readers use them. */
	assert_int_equal(cache_new(40 * KiB, &cache), 0);
	db = test_open_db(&t, ".", cache);
	for (unsigned i = 0; i < 6; i++) {
		reader[i] = (struct reader){ db, i, 0 };
		assert_int_equal(pthread_create(&thread[i], NULL, read_keys, &reader[i]), 0);
	}
	for (unsigned i = 0; i < 6; i++) {
		pthread_join(thread[i], NULL);
		assert_true(reader[i].r >= 0);
	}
	ocdbt_db_close(db);
	cache_free(cache);
	test_dir_close(&t);
}

/* ---- ids of records ---- */

/*
 * More files than are cached, a path twice as long as the cached ones, and one that is split in two
 * ways.
 */
static void records_have_distinct_ids(void **state)
{
	char far[225];
	const char *const path[][2] = { { "", "a" },   { "", "b" },   { "d/", "a" },
					{ "d", "/a" }, { "", "d/a" }, { "", far } };
	const uint64_t at[] = { 0, 1, 2, 0x100000000, 0x100000001 };
	uint64_t id[ARRAY_LEN(path) * ARRAY_LEN(at) * ARRAY_LEN(at)][2];
	size_t n = 0;

	memset(far, 'f', sizeof(far) - 1);
	far[sizeof(far) - 1] = '\0';
	for (unsigned again = 0; again < 2; again++) {
		size_t i = 0;

		for (unsigned p = 0; p < ARRAY_LEN(path); p++)
			for (unsigned k = 0; k < ARRAY_LEN(at) * ARRAY_LEN(at); k++, i++) {
				struct ocdbt_ref ref = {
					.base = span_str(path[p][0]),
					.rel = span_str(path[p][1]),
					.off = at[k % ARRAY_LEN(at)],
					.len = at[k / ARRAY_LEN(at)],
				};
				uint64_t now[2];

				assert_int_equal(db_ref_id(&ref, now), 0);
				if (again)
					assert_memory_equal(now, id[i], sizeof(now));
				else
					memcpy(id[n++], now, sizeof(now));
			}
	}
	for (size_t i = 0; i < n; i++)
		for (size_t k = 0; k < i; k++)
			assert_memory_not_equal(id[i], id[k], sizeof(id[i]));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(without_a_manifest_there_is_no_database),
		cmocka_unit_test(the_manifest_with_the_highest_number_is_current),
		cmocka_unit_test(numbered_manifests_must_agree),
		cmocka_unit_test(only_usable_paths_are_opened),
		cmocka_unit_test(short_files_are_named_with_their_size),
		cmocka_unit_test(few_files_stay_open),
		cmocka_unit_test(a_node_larger_than_the_cache_works),
		cmocka_unit_test(a_refused_node_is_remembered_until_its_file_changes),
		cmocka_unit_test(threads_share_nodes),
		cmocka_unit_test(records_have_distinct_ids),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
