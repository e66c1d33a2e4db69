/* SPDX-License-Identifier: Apache-2.0 */
/*
 * t_lookup.c - look-ups and listings in forged trees: bounds, heights, prefixes, shared nodes.
 * t_build.c tests sound trees.
 */
#include "tests/unit/lib/ocdbt_test.h"

struct fixture {
	struct test_dir t;
	struct test_forge f;
	struct cache *cache;
	struct ocdbt *db;
	struct ocdbt_cursor *cur;
};

static int setup(void **state)
{
	struct fixture *x = calloc(1, sizeof(*x));

	test_dir_open(&x->t, "sync");
	assert_int_equal(cache_new(16 * MiB, &x->cache), 0);
	x->f.t = &x->t;
	*state = x;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *x = *state;

	ocdbt_cursor_close(x->cur);
	ocdbt_db_close(x->db);
	buf_release(&x->f.file);
	cache_free(x->cache);
	test_dir_close(&x->t);
	free(x);
	return 0;
}

/* Commit the root and open a cursor on it. */
static void finish(struct fixture *x, const struct ocdbt_ref *root, unsigned height,
		   const struct ocdbt_stats *stats)
{
	test_forge_finish(&x->f, root, height, stats);
	x->db = test_open_db(&x->t, ".", x->cache);
	assert_int_equal(ocdbt_cursor_open(x->db, test_latest(x->db), &x->cur), 0);
}

/* Append all keys; returns the error that ended the listing. */
static int list_all(struct ocdbt_cursor *cur, struct buf *ret)
{
	struct ocdbt_entry e;
	int r = ocdbt_cursor_range(cur, NONE, NONE);

	while (r >= 0 && (r = ocdbt_cursor_next(cur, &e)) > 0)
		buf_addf(ret, "%.*s ", SPAN_ARG(e.key));
	return r;
}

/*
 * Make two leaves below a root whose entries have these keys; the keys of the leaves omit `strip`
 * bytes.
 */
static void two_leaves(struct fixture *x, const char *const first[2], const char *const second[2],
		       const char *key_one, const char *key_two, unsigned strip)
{
	struct ocdbt_stats s1, s2, stats;
	struct ocdbt_ref one = test_forge_leaf(&x->f, first, 2, strip, &s1), root;
	struct ocdbt_ref two = test_forge_leaf(&x->f, second, 2, strip, &s2);
	auto_packer p = { .height = 1 };

	assert_int_equal(ocdbt_packer_add_child(&p, span_str(key_one), strip, &one, &s1), 0);
	assert_int_equal(ocdbt_packer_add_child(&p, span_str(key_two), strip, &two, &s2), 0);
	root = test_forge_node(&x->f, &p, 0, &stats);
	finish(x, &root, 1, &stats);
}

static void bounds_are_checked_both_ways(void **state)
{
	static const struct {
		const char *first[2], *second[2];
		const char *one, *two;
		int code;
		const char *want;
	} cases[] = {
		{ { "xa", "xb" }, { "xc", "xd" }, "xa", "xc", 0, "xa xb xc xd " },
		/* A reference may begin before its first key: shorter separators. */
		{ { "xb", "xbb" }, { "xc", "xd" }, "x", "xbc", 0, "xb xbb xc xd " },
		{ { "xa", "xb" }, { "xc", "xd" }, "xa", "xd", -EUCLEAN, "first key" },
		{ { "xa", "xc" }, { "xc", "xd" }, "xa", "xc", -EUCLEAN, "last key" },
		{ { "xa", "xz" }, { "xc", "xd" }, "xa", "xc", -EUCLEAN, "last key" },
		{ { "xa", "xb" }, { "xc", "xd" }, "xab", "xc", -EUCLEAN, "first key" },
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++)
		for (unsigned strip = 0; strip < 2; strip++) {
			void *fresh = NULL;
			struct fixture *x;
			struct ocdbt_value v;
			auto_buf keys = { 0 };
			int r;

			setup(&fresh);
			x = fresh;
			two_leaves(x, cases[i].first, cases[i].second, cases[i].one, cases[i].two,
				   strip);
			r = list_all(x->cur, &keys);
			if (r != cases[i].code)
				fail_msg("case %zu, strip %u: %d, %s", i, strip, r, err_text(r));
			if (r == 0)
				assert_string_equal(buf_str(&keys), cases[i].want);
			else
				assert_non_null(strstr(err_text(r), cases[i].want));
			/* A look-up in the same leaf finds the same fault. */
			if (r < 0) {
				struct span key = strstr(cases[i].want, "last") ?
							  S("xa") :
							  span_str(cases[i].second[1]);

				r = ocdbt_cursor_find(x->cur, key, &v);
				if (strstr(cases[i].want, "last"))
					assert_int_equal(r, -EUCLEAN);
			}
			teardown(&fresh);
		}
}

static void a_wrong_height_is_refused(void **state)
{
	static const char *const keys[] = { "a", "b" };
	struct fixture *x = *state;
	struct ocdbt_stats s, stats;
	struct ocdbt_ref leaf = test_forge_leaf(&x->f, keys, 2, 0, &s), root;
	auto_packer p = { .height = 2 };
	struct ocdbt_value v;
	auto_buf list = { 0 };

	assert_int_equal(ocdbt_packer_add_child(&p, S("a"), 0, &leaf, &s), 0);
	root = test_forge_node(&x->f, &p, 0, &stats);
	finish(x, &root, 2, &stats);
	assert_int_equal(list_all(x->cur, &list), -EUCLEAN);
	assert_string_equal(err_text(-EUCLEAN), "btreenode:d/f:0:32: height 0, should be 1");
	assert_int_equal(ocdbt_cursor_find(x->cur, S("a"), &v), -EUCLEAN);
	/* The height of a root is checked, too. */
	ocdbt_cursor_close(take(x->cur));
	{
		struct ocdbt_version wrong = *test_latest(x->db);

		wrong.root_height = 1;
		assert_int_equal(ocdbt_cursor_open(x->db, &wrong, &x->cur), 0);
		assert_int_equal(ocdbt_cursor_find(x->cur, S("a"), &v), -EUCLEAN);
		wrong.root_height = LIMIT_BTREE_HEIGHT + 1;
		ocdbt_cursor_close(take(x->cur));
		assert_int_equal(ocdbt_cursor_open(x->db, &wrong, &x->cur), -EFBIG);
	}
}

/* Each node refers twice to the one below, with different prefixes: n levels list 2^n keys. */
static struct ocdbt_ref doubling(struct fixture *x, unsigned levels, struct ocdbt_stats *stats)
{
	static const char *const keys[] = { "" };
	struct ocdbt_ref below = test_forge_leaf(&x->f, keys, 1, 0, stats);

	for (unsigned h = 1; h <= levels; h++) {
		auto_packer p = { .height = h };
		struct ocdbt_stats s = *stats;

		assert_int_equal(ocdbt_packer_add_child(&p, S("0"), 1, &below, &s), 0);
		assert_int_equal(ocdbt_packer_add_child(&p, S("1"), 1, &below, &s), 0);
		below = test_forge_node(&x->f, &p, 0, stats);
	}
	return below;
}

static void shared_nodes_are_read_under_every_prefix(void **state)
{
	struct fixture *x = *state;
	struct ocdbt_stats stats;
	struct ocdbt_ref root = doubling(x, 12, &stats);
	struct ocdbt_value v;
	struct ocdbt_entry e;
	char key[16];
	unsigned n = 0;
	int r;

	assert_true(x->f.file.n < 1500);
	finish(x, &root, 12, &stats);
	assert_int_equal(ocdbt_cursor_range(x->cur, NONE, NONE), 0);
	while ((r = ocdbt_cursor_next(x->cur, &e)) > 0) {
		for (int i = 0; i < 12; i++)
			key[i] = n >> (11 - i) & 1 ? '1' : '0';
		assert_true(span_eq(e.key, span_of(key, 12)));
		n++;
	}
	assert_int_equal(r, 0);
	assert_int_equal(n, 4096);
	assert_int_equal(ocdbt_cursor_find(x->cur, S("010101010101"), &v), 1);
	assert_int_equal(ocdbt_cursor_find(x->cur, S("0101010101012"), &v), 0);
	assert_int_equal(ocdbt_cursor_find(x->cur, S("01010101010"), &v), 0);
}

/* The same with sixty levels has 2^60 keys in six kilobytes. */
static void a_bomb_of_shared_nodes_ends(void **state)
{
	struct fixture *x = *state;
	struct ocdbt_stats stats;
	struct ocdbt_ref root = doubling(x, 60, &stats);
	struct ocdbt_value v;
	struct ocdbt_entry e;
	char key[64];
	int r;

	memset(key, '1', sizeof(key));
	finish(x, &root, 60, &stats);
	assert_int_equal(ocdbt_cursor_find(x->cur, span_of(key, 60), &v), 1);
	r = ocdbt_cursor_range(x->cur, NONE, NONE);
	while (r >= 0 && (r = ocdbt_cursor_next(x->cur, &e)) > 0)
		;
	assert_int_equal(r, -EFBIG);
	assert_non_null(strstr(err_text(-EFBIG), "more than 16000000 nodes"));
}

/* Prefixes that grow at each level make keys that exceed the limit. */
static void keys_that_grow_too_long_are_refused(void **state)
{
	struct fixture *x = *state;
	static const char *const keys[] = { "" };
	struct ocdbt_stats stats;
	struct ocdbt_ref below = test_forge_leaf(&x->f, keys, 1, 0, &stats);
	auto_buf list = { 0 }, part = { 0 };

	buf_add_zero(&part, 30000);
	for (unsigned h = 1; h <= 3; h++) {
		auto_packer p = { .height = h };
		struct ocdbt_stats s = stats;

		assert_int_equal(ocdbt_packer_add_child(&p, buf_span(&part), 30000, &below, &s), 0);
		below = test_forge_node(&x->f, &p, 0, &stats);
	}
	finish(x, &below, 3, &stats);
	assert_int_equal(list_all(x->cur, &list), -EUCLEAN);
	assert_non_null(strstr(err_text(-EUCLEAN), "more than 65535 bytes"));
}

static void a_child_out_of_the_range_is_not_read(void **state)
{
	static const char *const first[] = { "aa", "ab" }, *const second[] = { "ba", "bb" };
	struct fixture *x = *state;
	const struct io_stats *stats = io_engine_stats(x->t.io);
	struct ocdbt_entry e;
	struct ocdbt_value v;
	uint64_t before;

	two_leaves(x, first, second, "aa", "ba", 1);
	/* Before the first key, between the two by prefix, and after the last. */
	assert_int_equal(ocdbt_cursor_find(x->cur, S("a"), &v), 0);
	before = atomic_load(&stats->reads);
	assert_int_equal(ocdbt_cursor_find(x->cur, S("A"), &v), 0);
	assert_int_equal(ocdbt_cursor_find(x->cur, S("azz!"), &v), 0);
	assert_true(atomic_load(&stats->reads) - before <= 1);
	before = atomic_load(&stats->reads);
	assert_int_equal(ocdbt_cursor_find(x->cur, S("b!"), &v), 0);
	/* A range that begins after all keys of the first leaf, which its prefix shows. */
	assert_int_equal(ocdbt_cursor_range(x->cur, S("b"), NONE), 0);
	assert_int_equal(ocdbt_cursor_next(x->cur, &e), 1);
	assert_true(span_eq(e.key, S("ba")));
	assert_true(atomic_load(&stats->reads) - before <= 1);
}

static void an_absent_child_fails_only_where_it_is_needed(void **state)
{
	static const char *const keys[] = { "a", "b" };
	struct fixture *x = *state;
	struct ocdbt_stats s, stats;
	struct ocdbt_ref leaf = test_forge_leaf(&x->f, keys, 2, 0, &s), root;
	struct ocdbt_ref nowhere = { .rel = S("d/gone"), .len = 40 };
	auto_packer p = { .height = 1 };
	struct ocdbt_value v;
	auto_buf list = { 0 };

	assert_int_equal(ocdbt_packer_add_child(&p, S("a"), 0, &leaf, &s), 0);
	assert_int_equal(ocdbt_packer_add_child(&p, S("c"), 0, &nowhere, &s), 0);
	root = test_forge_node(&x->f, &p, 0, &stats);
	finish(x, &root, 1, &stats);
	assert_int_equal(ocdbt_cursor_find(x->cur, S("b"), &v), 1);
	assert_int_equal(ocdbt_cursor_find(x->cur, S("d"), &v), -EUCLEAN);
	assert_string_equal(err_text(-EUCLEAN),
			    "btreenode:d/gone:0:40: data file 'd/gone' is absent");
	/* The cursor is usable after a failure. */
	assert_int_equal(ocdbt_cursor_find(x->cur, S("a"), &v), 1);
	assert_int_equal(list_all(x->cur, &list), -EUCLEAN);
	assert_string_equal(buf_str(&list), "a b ");
}

/* Everything below a node that was reached through a base inherits the base. */
static void bases_are_inherited(void **state)
{
	static const char *const key[] = { "k" };
	struct fixture *x = *state;
	struct ocdbt_stats s, stats;
	struct ocdbt_ref leaf, root;
	auto_packer p = { 0 };
	struct ocdbt_entry e = {
		.key = S("k"), .value = { .kind = OCDBT_FILE, .ref = { S("in/"), S("d/v"), 2, 3 } }
	};
	struct ocdbt_value v;

	(void)key;
	/* The leaf is in the database part/, and refers to its value in part/in/d/v. */
	assert_int_equal(ocdbt_packer_add(&p, &e), 0);
	leaf = test_forge_node(&x->f, &p, 0, &s);
	test_write(&x->t, "part/d/f", buf_span(&x->f.file));
	test_write(&x->t, "part/in/d/v", S("xxabcxx"));
	leaf.base = S("part/");
	p.height = 1;
	assert_int_equal(ocdbt_packer_add_child(&p, S("k"), 0, &leaf, &s), 0);
	root = test_forge_node(&x->f, &p, 0, &stats);
	finish(x, &root, 1, &stats);
	assert_int_equal(ocdbt_cursor_find(x->cur, S("k"), &v), 1);
	assert_true(span_eq(v.ref.base, S("part/in/")));
	{
		auto_kv_loc loc = { 0 };
		char bytes[3];

		assert_int_equal(ocdbt_value_locate(x->db, &v, &loc), 0);
		assert_int_equal(io_read_exact(loc.file, bytes, 3, loc.off), 0);
		assert_memory_equal(bytes, "abc", 3);
	}
}

/* The same node reached through two splits of one path is two nodes, whatever is in the cache. */
static void the_split_of_a_path_matters(void **state)
{
	struct fixture *x = *state;
	struct ocdbt_stats s, stats;
	struct ocdbt_ref leaf, root;
	auto_packer p = { 0 };
	struct ocdbt_entry e = { .key = S(""),
				 .value = { .kind = OCDBT_FILE, .ref = { NONE, S("d/v"), 0, 1 } } };
	struct ocdbt_value v;

	assert_int_equal(ocdbt_packer_add(&p, &e), 0);
	leaf = test_forge_node(&x->f, &p, 0, &s);
	test_write(&x->t, "p/d/f", buf_span(&x->f.file));
	p.height = 1;
	leaf.base = NONE;
	leaf.rel = S("p/d/f");
	assert_int_equal(ocdbt_packer_add_child(&p, S("a"), 1, &leaf, &s), 0);
	leaf.base = S("p/");
	leaf.rel = S("d/f");
	assert_int_equal(ocdbt_packer_add_child(&p, S("b"), 1, &leaf, &s), 0);
	root = test_forge_node(&x->f, &p, 0, &stats);
	finish(x, &root, 1, &stats);
	assert_int_equal(ocdbt_cursor_find(x->cur, S("a"), &v), 1);
	assert_int_equal(v.ref.base.n, 0);
	assert_int_equal(ocdbt_cursor_find(x->cur, S("b"), &v), 1);
	assert_true(span_eq(v.ref.base, S("p/")));
}

static int no_matter(void *arg, const struct ocdbt_finding *f)
{
	return 0;
}

/* Every key of a listing is found, and its value is inside its file or refused. */
static void check_consistent(struct ocdbt *db, unsigned *listed)
{
	const struct ocdbt_check_opts opts = { true, true, no_matter, NULL };
	auto_of(ocdbt_cursor) struct ocdbt_cursor *list = NULL, *find = NULL;
	struct ocdbt_check_stats stats;
	struct ocdbt_entry e;
	int r = ocdbt_cursor_open(db, test_latest(db), &list);

	assert_int_equal(ocdbt_cursor_open(db, test_latest(db), &find), r);
	if (r >= 0)
		r = ocdbt_cursor_range(list, NONE, NONE);
	while (r >= 0 && (r = ocdbt_cursor_next(list, &e)) > 0) {
		auto_kv_loc loc = { 0 };
		struct ocdbt_value v;

		assert_int_equal(ocdbt_cursor_find(find, e.key, &v), 1);
		assert_int_equal(ocdbt_value_len(&v), ocdbt_value_len(&e.value));
		r = ocdbt_value_locate(db, &v, &loc);
		if (r >= 0 && loc.where == KV_FILE)
			assert_true(loc.off + loc.len <= loc.file->size);
		++*listed;
	}
	assert_true(r == 0 || test_is_refusal(r));
	r = ocdbt_check(db, &opts, &stats);
	assert_true(r == 0 || r == -EFBIG);
}

/* TensorStore's tree with bytes changed in its records, and the checksums corrected. */
static void damaged_trees_are_consistent_or_refused(void **state)
{
	static const struct {
		size_t at, n;
	} records[] = { { 0x0e, 0x4e }, { 0x5c, 0x4e }, { 0xaa, 0x5e } };
	struct fixture *x = *state;
	unsigned listed = 0;
	uint64_t seed = 17;

	test_write(&x->t, "manifest.ocdbt", VEC(manifest_ts));
	for (int round = 0; round < 4000; round++) {
		auto_buf data = { 0 };

		buf_add_span(&data, VEC(data_ts));
		for (uint32_t k = 0; k <= test_random(&seed, 3); k++) {
			size_t i = test_random(&seed, 3);
			uint8_t *record = data.p + records[i].at;

			/* After the file name, where the keys, lengths and references are. */
			record[0x34 + test_random(&seed, (uint32_t)records[i].n - 0x38)] ^=
				(uint8_t)(1 + test_random(&seed, test_random(&seed, 2) ? 7 : 255));
			set_u32le(record + records[i].n - 4,
				  crc32c(span_of(record, records[i].n - 4)));
		}
		test_write(&x->t, "d/085055c458ad08b9e95374b324652525", buf_span(&data));
		x->db = test_open_db(&x->t, ".", x->cache);
		check_consistent(x->db, &listed);
		ocdbt_db_close(take(x->db));
	}
	/* Not all damage was harmless, and not all refused: the test reached both. */
	assert_true(listed > 1000);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(bounds_are_checked_both_ways),
		TEST(a_wrong_height_is_refused),
		TEST(shared_nodes_are_read_under_every_prefix),
		TEST(a_bomb_of_shared_nodes_ends),
		TEST(keys_that_grow_too_long_are_refused),
		TEST(a_child_out_of_the_range_is_not_read),
		TEST(an_absent_child_fails_only_where_it_is_needed),
		TEST(bases_are_inherited),
		TEST(the_split_of_a_path_matters),
		TEST(damaged_trees_are_consistent_or_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
