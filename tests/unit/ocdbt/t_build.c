/* SPDX-License-Identifier: Apache-2.0 */
/*
 * t_build.c - trees: where nodes end, what a reader gets, and the state after a failure.
 */
#include "tests/unit/lib/ocdbt_test.h"

#include "core/ocdbt/split.h"

/* ---- where nodes end ---- */

/* The numbers of entries in the nodes that n entries of this size are divided into. */
static size_t split_all(struct split *s, uint64_t size, uint64_t *ret, size_t max)
{
	size_t n_nodes = 0;
	uint64_t n = s->n;

	s->sum = n * size;
	split_begin(s);
	for (uint64_t i = 0; i < n; i++) {
		for (int after = 0; after < 2; after++) {
			if (!(after ? split_takes(s, size) : split_refuses(s, size)))
				continue;
			assert_true(n_nodes < max && s->node_n > 0);
			ret[n_nodes++] = s->node_n;
			split_end(s);
			split_begin(s);
		}
	}
	assert_int_equal(s->n, 0);
	return n_nodes;
}

static void nodes_end_where_tensorstore_ends_them(void **state)
{
	static const struct {
		uint64_t max, least, common, n, size;
		uint64_t want[8];
	} cases[] = {
		/* More entries than a node may have: 7-digit keys, empty values. */
		{ 1000000000, 1, 0, 1048577, 23, { 524289, 524288 } },
		{ 1000000000, 1, 0, 1048576, 23, { 1048576 } },
		/* No other limit; then every node but the last counts as too large. */
		{ 0, 1, 0, 3, 100, { 3 } },
		{ 0, 1, 0, 1048577, 23, { 524288, 524289 } },
		{ 0, 2, 0, 2097153, 100, { 699050, 699051, 699052 } },
		/* Every entry is too large: one in each leaf, two in each node above. */
		{ 1, 1, 0, 3, 50, { 1, 1, 1 } },
		{ 1, 2, 0, 5, 50, { 2, 2, 1 } },
		/* Equal parts, instead of a full node and a rest. */
		{ 100, 1, 0, 11, 10, { 6, 5 } },
		{ 100, 1, 0, 10, 10, { 10 } },
		/* The common prefix counts once per node. */
		{ 100, 1, 8, 46, 10, { 46 } },
		{ 100, 1, 8, 47, 10, { 22, 25 } },
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct split s = { .max = cases[i].max,
				   .least = cases[i].least,
				   .common = cases[i].common,
				   .n = cases[i].n };
		uint64_t got[8] = { 0 };

		split_all(&s, cases[i].size, got, ARRAY_LEN(got));
		for (size_t k = 0; k < ARRAY_LEN(got); k++)
			if (got[k] != cases[i].want[k])
				fail_msg("case %zu, node %zu: %llu, should be %llu", i, k,
					 (unsigned long long)got[k],
					 (unsigned long long)cases[i].want[k]);
	}
}

/* The entry that would make a node too large goes to the next one. */
static void an_entry_too_many_goes_to_the_next_node(void **state)
{
	struct split s = { .max = 100, .least = 1, .n = 4, .sum = 40 + 40 + 90 + 10 };

	split_begin(&s);
	assert_int_equal(s.target, 90);
	assert_false(split_refuses(&s, 40) || split_takes(&s, 40));
	assert_false(split_refuses(&s, 40) || split_takes(&s, 40));
	assert_true(split_refuses(&s, 90));
	split_end(&s);
	split_begin(&s);
	assert_int_equal(s.target, 100);
	assert_false(split_refuses(&s, 90) || split_takes(&s, 90));
	assert_false(split_refuses(&s, 10));
	assert_true(split_takes(&s, 10));
}

/* ---- trees ---- */

static void no_entries_are_an_empty_version(void **state)
{
	struct test_dir t;
	struct ocdbt_config c;
	auto_of(ocdbt) struct ocdbt *db = NULL;
	auto_of(ocdbt_cursor) struct ocdbt_cursor *cur = NULL;
	struct ocdbt_value v;
	struct ocdbt_entry e;
	struct stat st;

	test_dir_open(&t, "sync");
	test_config(&c, 100, 1000);
	test_build(t.dir, &c, NULL, 0);
	db = test_open_db(&t, ".", NULL);
	assert_true(ocdbt_version_is_empty(test_latest(db)));
	assert_int_equal(ocdbt_cursor_open(db, test_latest(db), &cur), 0);
	assert_int_equal(ocdbt_cursor_find(cur, S("a"), &v), 0);
	assert_int_equal(ocdbt_cursor_range(cur, NONE, NONE), 0);
	assert_int_equal(ocdbt_cursor_next(cur, &e), 0);
	/* Nothing was stored, so there is no data file. */
	assert_int_equal(io_stat(t.dir, "d", &st), -ENOENT);
	ocdbt_cursor_close(take(cur));
	ocdbt_db_close(take(db));
	test_dir_close(&t);
}

struct model {
	struct arena arena;
	struct ocdbt_entry *entry;
	size_t n;
};

static int by_key(const void *a, const void *b)
{
	return span_cmp(((const struct ocdbt_entry *)a)->key, ((const struct ocdbt_entry *)b)->key);
}

/* Keys of few letters, so that prefixes nest; values around the limit for inline values. */
static void model_init(struct model *m, uint64_t *seed, size_t n, uint32_t inline_max)
{
	static const char letters[] = { 'a', 'b', '/', '\0', '\xff' };
	size_t n_retained = 0;

	*m = (struct model){ .entry = calloc(n + 1, sizeof(*m->entry)) };
	for (size_t i = 0; i < n; i++) {
		size_t key_n = test_random(seed, 12),
		       value_n = test_random(seed, 2 * inline_max + 2);
		uint8_t *key = arena_alloc(&m->arena, key_n),
			*value = arena_alloc(&m->arena, value_n);

		for (size_t k = 0; k < key_n; k++)
			key[k] = (uint8_t)letters[test_random(seed, ARRAY_LEN(letters))];
		for (size_t k = 0; k < value_n; k++)
			value[k] = (uint8_t)test_random(seed, 256);
		m->entry[i] = test_entry(span_of(key, key_n), span_of(value, value_n));
	}
	qsort(m->entry, n, sizeof(*m->entry), by_key);
	for (size_t i = 0; i < n; i++)
		if (n_retained == 0 || !span_eq(m->entry[n_retained - 1].key, m->entry[i].key))
			m->entry[n_retained++] = m->entry[i];
	m->n = n_retained;
}

static void model_release(struct model *m)
{
	arena_release(&m->arena);
	free(m->entry);
}

static void check_stored(struct ocdbt *db, const struct ocdbt_value *got, struct span want,
			 uint32_t inline_max)
{
	auto_kv_loc loc = { 0 };
	auto_free uint8_t *bytes = malloc(want.n + 1);

	assert_int_equal(ocdbt_value_len(got), want.n);
	assert_int_equal(got->kind, want.n > inline_max ? OCDBT_FILE : OCDBT_INLINE);
	assert_int_equal(ocdbt_value_locate(db, got, &loc), 0);
	if (loc.where == KV_FILE)
		assert_int_equal(io_read_exact(loc.file, bytes, want.n, loc.off), 0);
	else
		memcpy(bytes, loc.bytes.p ? loc.bytes.p : bytes, want.n);
	assert_true(span_eq(span_of(bytes, want.n), want));
}

static void check_model(struct ocdbt *db, const struct model *m, uint32_t inline_max,
			uint64_t *seed)
{
	auto_of(ocdbt_cursor) struct ocdbt_cursor *cur = NULL;
	const struct ocdbt_version *v = test_latest(db);
	struct ocdbt_value value;
	struct ocdbt_entry e;

	assert_int_equal(v->stats.keys, m->n);
	assert_int_equal(ocdbt_cursor_open(db, v, &cur), 0);
	assert_int_equal(ocdbt_cursor_range(cur, NONE, NONE), 0);
	for (size_t i = 0; i < m->n; i++) {
		assert_int_equal(ocdbt_cursor_next(cur, &e), 1);
		assert_true(span_eq(e.key, m->entry[i].key));
		check_stored(db, &e.value, m->entry[i].value.bytes, inline_max);
	}
	assert_int_equal(ocdbt_cursor_next(cur, &e), 0);
	/* In random order, and also keys that do not exist. */
	for (size_t i = 0; i < m->n; i++) {
		const struct ocdbt_entry *want = &m->entry[test_random(seed, (uint32_t)m->n)];
		auto_buf other = { 0 };

		assert_int_equal(ocdbt_cursor_find(cur, want->key, &value), 1);
		check_stored(db, &value, want->value.bytes, inline_max);
		buf_add_span(&other, want->key);
		buf_add_byte(&other, 'x');
		assert_int_equal(ocdbt_cursor_find(cur, buf_span(&other), &value), 0);
	}
}

static int no_finding(void *arg, const struct ocdbt_finding *f)
{
	fail_msg("%s: %s", f->where, f->text);
	return 0;
}

static void random_trees_are_read_back(void **state)
{
	static const uint32_t inline_max[] = { 0, 10, 100 };
	static const uint32_t node_max[] = { 0, 1, 100, 300, 2000, 100000 };
	static const size_t sizes[] = { 1, 2, 3, 40, 400 };
	uint64_t seed = 7;

	for (size_t round = 0;
	     round < ARRAY_LEN(inline_max) * ARRAY_LEN(node_max) * ARRAY_LEN(sizes); round++) {
		uint32_t limit = inline_max[round % 3], node = node_max[round / 3 % 6];
		const struct ocdbt_check_opts opts = { .all_versions = true,
						       .unused_files = true,
						       .found = no_finding };
		struct ocdbt_check_stats stats;
		struct cache *cache = NULL;
		struct ocdbt_config c;
		struct test_dir t;
		struct ocdbt *db;
		struct model m;

		test_dir_open(&t, "sync");
		test_config(&c, limit, node);
		c.compression = round % 2 ? OCDBT_ZSTD : OCDBT_PLAIN;
		model_init(&m, &seed, sizes[round / 18], limit);
		test_build(t.dir, &c, m.entry, m.n);
		/* No cache, a cache that holds nothing, and one that holds everything. */
		if (round % 3)
			assert_int_equal(cache_new(round % 3 == 1 ? 1 : 64 * MiB, &cache), 0);
		db = test_open_db(&t, ".", cache);
		check_model(db, &m, limit, &seed);
		assert_int_equal(ocdbt_check(db, &opts, &stats), 0);
		assert_int_equal(stats.keys, m.n);
		ocdbt_db_close(db);
		cache_free(cache);
		model_release(&m);
		test_dir_close(&t);
	}
}

static void ranges_are_those_of_the_model(void **state)
{
	uint64_t seed = 21;

	for (int round = 0; round < 6; round++) {
		auto_of(ocdbt_cursor) struct ocdbt_cursor *cur = NULL;
		struct ocdbt_config c;
		struct test_dir t;
		struct ocdbt *db;
		struct model m;

		test_dir_open(&t, "sync");
		test_config(&c, 10, round < 3 ? 1 : 400);
		model_init(&m, &seed, 200, 10);
		test_build(t.dir, &c, m.entry, m.n);
		db = test_open_db(&t, ".", NULL);
		assert_int_equal(ocdbt_cursor_open(db, test_latest(db), &cur), 0);
		for (int k = 0; k < 60; k++) {
			/*
			 * From one key, or a part of it, to another; sometimes the range is empty
			 * or reversed.
			 */
			struct span low = m.entry[test_random(&seed, (uint32_t)m.n)].key;
			struct span high = m.entry[test_random(&seed, (uint32_t)m.n)].key;
			struct ocdbt_entry e;

			low.n = test_random(&seed, (uint32_t)low.n + 1);
			high.n = test_random(&seed, (uint32_t)high.n + 1);
			assert_int_equal(ocdbt_cursor_range(cur, low, high), 0);
			for (size_t i = 0; i < m.n; i++) {
				struct span key = m.entry[i].key;

				if (span_cmp(key, low) < 0 || (high.n && span_cmp(key, high) >= 0))
					continue;
				assert_int_equal(ocdbt_cursor_next(cur, &e), 1);
				assert_true(span_eq(e.key, key));
			}
			assert_int_equal(ocdbt_cursor_next(cur, &e), 0);
		}
		ocdbt_cursor_close(take(cur));
		ocdbt_db_close(db);
		model_release(&m);
		test_dir_close(&t);
	}
}

static void prefixes_end_before_their_successor(void **state)
{
	static const struct {
		const char *prefix;
		size_t n;
		const char *end;
	} cases[] = { { "a", 1, "b" },
		      { "a/\xff\xff", 4, "a0" },
		      { "\xff", 1, "" },
		      { "", 0, "" },
		      { "a\x00", 2, "a\x01" } };

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		auto_buf end = { 0 };

		assert_int_equal(ocdbt_prefix_end(span_of(cases[i].prefix, cases[i].n), &end), 0);
		assert_string_equal(buf_str(&end), cases[i].end);
	}
}

static void keys_must_ascend(void **state)
{
	const struct ocdbt_entry entry[] = { test_entry(S("b"), S("1")),
					     test_entry(S("a"), S("2")) };
	const struct ocdbt_entry twice[] = { test_entry(S("b"), S("1")),
					     test_entry(S("b"), S("2")) };
	auto_of(ocdbt_data) struct ocdbt_data *data = NULL;
	struct ocdbt_array_source src;
	struct ocdbt_version root;
	struct ocdbt_config c;
	struct test_dir t;

	test_dir_open(&t, "sync");
	test_config(&c, 10, 1);
	assert_int_equal(ocdbt_data_new(t.dir, NULL, &data), 0);
	ocdbt_array_source_init(&src, entry, 2);
	assert_int_equal(ocdbt_build(&src.base, &c, data, &root), -EINVAL);
	assert_string_equal(err_text(-EINVAL), "key 'a' follows 'b'");
	ocdbt_array_source_init(&src, twice, 2);
	assert_int_equal(ocdbt_build(&src.base, &c, data, &root), -EINVAL);
	ocdbt_data_free(take(data));
	test_dir_close(&t);
}

/* A source that has fewer entries in the second pass. */
struct fickle {
	struct ocdbt_array_source array;
	int rounds;
};

static int fickle_rewind(struct ocdbt_source *src)
{
	struct fickle *f = container_of(src, struct fickle, array.base);

	f->array.at = 0;
	f->array.n = f->rounds++ ? 1 : 2;
	return 0;
}

static void a_source_that_changes_is_refused(void **state)
{
	const struct ocdbt_entry entry[] = { test_entry(S("a"), S("1")),
					     test_entry(S("b"), S("2")) };
	auto_of(ocdbt_data) struct ocdbt_data *data = NULL;
	struct ocdbt_version root;
	struct ocdbt_config c;
	struct fickle f = { 0 };
	struct test_dir t;

	test_dir_open(&t, "sync");
	test_config(&c, 10, 1000);
	assert_int_equal(ocdbt_data_new(t.dir, NULL, &data), 0);
	ocdbt_array_source_init(&f.array, entry, 2);
	f.array.base.rewind = fickle_rewind;
	assert_int_equal(ocdbt_build(&f.array.base, &c, data, &root), -EINVAL);
	ocdbt_data_free(take(data));
	test_dir_close(&t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nodes_end_where_tensorstore_ends_them),
		cmocka_unit_test(an_entry_too_many_goes_to_the_next_node),
		cmocka_unit_test(no_entries_are_an_empty_version),
		cmocka_unit_test(random_trees_are_read_back),
		cmocka_unit_test(ranges_are_those_of_the_model),
		cmocka_unit_test(prefixes_end_before_their_successor),
		cmocka_unit_test(keys_must_ascend),
		cmocka_unit_test(a_source_that_changes_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
