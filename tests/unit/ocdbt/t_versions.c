/* SPDX-License-Identifier: Apache-2.0 */
/*
 * t_versions.c - version trees: where commits put version nodes, and finding every version again.
 */
#include "tests/unit/lib/ocdbt_test.h"

#include "core/ocdbt/db.h"

/* Commit one more version, whose only value is its generation, at time 10 * generation. */
static void commit(struct test_dir *t, uint64_t generation, unsigned arity_log2)
{
	auto_of(ocdbt_data) struct ocdbt_data *data = NULL;
	auto_of(ocdbt) struct ocdbt *db = NULL;
	char value[24];
	struct ocdbt_entry entry;
	struct ocdbt_array_source src;
	struct ocdbt_version root;
	struct ocdbt_config c;
	auto_manifest m = { 0 };

	snprintf(value, sizeof(value), "%llu", (unsigned long long)generation);
	entry = test_entry(S("key"), span_str(value));
	/* The first generation is empty, as TensorStore creates it. */
	ocdbt_array_source_init(&src, &entry, generation > 1);
	test_config(&c, 100, 1000);
	c.arity_log2 = arity_log2;
	assert_int_equal(ocdbt_data_new(t->dir, NULL, &data), 0);
	if (generation > 1)
		db = test_open_db(t, ".", NULL);
	assert_int_equal(ocdbt_build(&src.base, &c, data, &root), 0);
	if (db)
		assert_int_equal(ocdbt_manifest_next(db, &root, 10 * generation, data, &m), 0);
	else
		assert_int_equal(ocdbt_manifest_first(&c, &root, 10 * generation, &m), 0);
	assert_int_equal(ocdbt_data_sync(data), 0);
	assert_int_equal(ocdbt_manifest_write(t->dir, &m, "manifest.new"), 0);
	assert_int_equal(io_dirop(t->dir, IO_RENAME, "manifest.new", "manifest.ocdbt", 0), 0);
}

static void check_found(struct ocdbt *db, struct ocdbt_when when, uint64_t want)
{
	auto_of(ocdbt_cursor) struct ocdbt_cursor *cur = NULL;
	auto_arena a = { 0 };
	struct ocdbt_version v;
	struct ocdbt_value value;
	char text[24];

	snprintf(text, sizeof(text), "%llu", (unsigned long long)want);
	if (ocdbt_find_version(db, &when, &a, &v) != (want > 0))
		fail_msg("generation %llu, time %llu", (unsigned long long)when.generation,
			 (unsigned long long)when.time);
	if (!want)
		return;
	assert_int_equal(v.generation, want);
	assert_int_equal(ocdbt_cursor_open(db, &v, &cur), 0);
	assert_int_equal(ocdbt_cursor_find(cur, S("key"), &value), want > 1);
	if (want > 1)
		assert_true(span_eq(value.bytes, span_str(text)));
}

static int count_up(void *arg, const struct ocdbt_version *v)
{
	uint64_t *next = arg;

	assert_int_equal(v->generation, *next);
	assert_int_equal(v->commit_time, 10 * *next);
	++*next;
	return 0;
}

static int no_finding(void *arg, const struct ocdbt_finding *f)
{
	fail_msg("%s: %s", f->where, f->text);
	return 0;
}

/* Every version is found by its generation, its time, and a time just before the next one. */
static void check_all(struct ocdbt *db, uint64_t n)
{
	const struct ocdbt_check_opts opts = { .all_versions = true,
					       .unused_files = false,
					       .found = no_finding };
	struct ocdbt_check_stats stats;
	uint64_t next = 1;

	for (uint64_t g = 1; g <= n; g++) {
		check_found(db, (struct ocdbt_when){ .generation = g }, g);
		check_found(db, (struct ocdbt_when){ .time = 10 * g }, g);
		check_found(db, (struct ocdbt_when){ .time = 10 * g + 9 }, g);
	}
	check_found(db, (struct ocdbt_when){ 0 }, n);
	check_found(db, (struct ocdbt_when){ .generation = n + 1 }, 0);
	check_found(db, (struct ocdbt_when){ .time = 9 }, 0);
	assert_int_equal(ocdbt_each_version(db, count_up, &next), 0);
	assert_int_equal(next, n + 1);
	assert_int_equal(ocdbt_check(db, &opts, &stats), 0);
	assert_int_equal(stats.versions, n);
}

/* TensorStore's manifests after 300 commits: generation, height, number of generations. */
static const struct {
	size_t n_inline, n;
	struct {
		uint64_t generation, height, num;
	} node[7];
} positions[] = {
	{ 2,
	  7,
	  { { 128, 7, 128 },
	    { 192, 6, 64 },
	    { 256, 5, 64 },
	    { 272, 4, 16 },
	    { 288, 3, 16 },
	    { 296, 2, 8 },
	    { 298, 1, 2 } } },
	{ 4, 3, { { 256, 3, 256 }, { 288, 2, 32 }, { 296, 1, 8 } } },
	{ 4, 2, { { 256, 2, 256 }, { 296, 1, 40 } } },
	{ 12, 2, { { 256, 2, 256 }, { 288, 1, 32 } } },
};

static void versions_are_carried_as_tensorstore_carries_them(void **state)
{
	for (unsigned a = 1; a <= 4; a++) {
		const struct ocdbt_manifest *m;
		struct ocdbt *db;
		struct test_dir t;

		test_dir_open(&t, "sync");
		for (uint64_t g = 1; g <= 300; g++) {
			commit(&t, g, a);
			if (g % 37 == 0) {
				db = test_open_db(&t, ".", NULL);
				check_all(db, g);
				ocdbt_db_close(db);
			}
		}
		db = test_open_db(&t, ".", NULL);
		m = ocdbt_db_manifest(db);
		assert_int_equal(m->n_versions, positions[a - 1].n_inline);
		assert_int_equal(m->n_nodes, positions[a - 1].n);
		for (size_t i = 0; i < m->n_nodes; i++) {
			assert_int_equal(m->nodes[i].generation,
					 positions[a - 1].node[i].generation);
			assert_int_equal(m->nodes[i].height, positions[a - 1].node[i].height);
			assert_int_equal(m->nodes[i].num_generations, positions[a - 1].node[i].num);
		}
		check_all(db, 300);
		ocdbt_db_close(db);
		test_dir_close(&t);
	}
}

static void commit_times_only_rise(void **state)
{
	auto_of(ocdbt_data) struct ocdbt_data *data = NULL;
	auto_of(ocdbt) struct ocdbt *db = NULL;
	auto_manifest m = { 0 };
	struct test_dir t;

	test_dir_open(&t, "sync");
	commit(&t, 1, 4);
	db = test_open_db(&t, ".", NULL);
	assert_int_equal(ocdbt_data_new(t.dir, NULL, &data), 0);
	/* A time before that of the last version becomes one nanosecond after it. */
	assert_int_equal(ocdbt_manifest_next(db, test_latest(db), 3, data, &m), 0);
	assert_int_equal(m.versions[1].commit_time, 11);
	assert_int_equal(m.versions[1].generation, 2);
	ocdbt_data_free(take(data));
	ocdbt_db_close(take(db));
	test_dir_close(&t);
}

/* ---- version nodes that contradict their references ---- */

static struct ocdbt_version plain_version(uint64_t g, uint64_t time)
{
	return (struct ocdbt_version){ .generation = g,
				       .commit_time = time,
				       .root = { .off = OCDBT_NO_ROOT, .len = OCDBT_NO_ROOT } };
}

struct lie {
	unsigned arity_log2, height;
	uint64_t generation, time;
	const char *want;
};

static void a_version_node_must_match_its_reference(void **state)
{
	static const struct lie lies[] = {
		{ 2, 0, 4, 5, NULL },
		{ 3, 0, 4, 5, "arity 2^3" },
		{ 2, 1, 4, 5, "height 1, should be 0" },
		{ 2, 0, 3, 5, "last generation 3, should be 4" },
	};

	for (size_t i = 0; i < ARRAY_LEN(lies); i++) {
		struct ocdbt_version v = plain_version(lies[i].generation, lies[i].time),
				     last = plain_version(5, 50);
		struct ocdbt_version_ref child = { .generation = 4,
						   .num_generations = 1,
						   .commit_time = 5 };
		struct ocdbt_vnode leaf = { .arity_log2 = lies[i].arity_log2,
					    .height = lies[i].height,
					    .versions = &v,
					    .children = &child,
					    .n = 1 };
		struct ocdbt_vnode top = {
			.arity_log2 = 2, .height = 1, .children = &child, .n = 1
		};
		struct ocdbt_version_ref node = {
			.generation = 4, .height = 1, .num_generations = 1, .commit_time = 5
		};
		struct ocdbt_manifest m = { .config.arity_log2 = 2,
					    .versions = &last,
					    .n_versions = 1,
					    .nodes = &node,
					    .n_nodes = 1 };
		auto_buf file = { 0 }, manifest = { 0 };
		auto_arena a = { 0 };
		struct ocdbt_version found;
		struct ocdbt *db;
		struct test_dir t;
		uint64_t next = 4;
		int r;

		child.node = (struct ocdbt_ref){ .rel = S("d/f"), .off = 0, .len = 30 };
		assert_int_equal(ocdbt_vnode_pack(&leaf, NULL, &file), 0);
		child.node.len = file.n;
		node.node = (struct ocdbt_ref){ .rel = S("d/f"), .off = file.n };
		assert_int_equal(ocdbt_vnode_pack(&top, NULL, &file), 0);
		node.node.len = file.n - node.node.off;
		assert_int_equal(ocdbt_manifest_pack(&m, NULL, &manifest), 0);
		test_dir_open(&t, "sync");
		test_write(&t, "d/f", buf_span(&file));
		test_write(&t, "manifest.ocdbt", buf_span(&manifest));
		db = test_open_db(&t, ".", NULL);
		r = ocdbt_find_version(db, &(struct ocdbt_when){ .generation = 4 }, &a, &found);
		assert_int_equal(r, lies[i].want ? -EUCLEAN : 1);
		if (lies[i].want) {
			assert_non_null(strstr(err_text(r), lies[i].want));
			assert_non_null(strstr(err_text(r), "versionnode:d/f:0:"));
			assert_int_equal(ocdbt_each_version(db, count_up, &next), -EUCLEAN);
		}
		ocdbt_db_close(db);
		test_dir_close(&t);
	}
}

static int count_versions(void *arg, const struct ocdbt_version *v)
{
	++*(unsigned *)arg;
	return 0;
}

/* The reference and the leaf agree, but the leaf's times are earlier than those of a later node. */
static void a_traversal_finds_times_that_decrease(void **state)
{
	struct ocdbt_version v[2] = { plain_version(1, 5), plain_version(2, 500) },
			     last = plain_version(5, 50);
	struct ocdbt_version_ref child = { .generation = 4,
					   .num_generations = 2,
					   .commit_time = 5 };
	struct ocdbt_vnode leaf = { .arity_log2 = 2, .versions = v, .n = 2 };
	struct ocdbt_vnode top = { .arity_log2 = 2, .height = 1, .children = &child, .n = 1 };
	struct ocdbt_version_ref node = {
		.generation = 4, .height = 1, .num_generations = 2, .commit_time = 5
	};
	struct ocdbt_manifest m = { .config.arity_log2 = 2,
				    .versions = &last,
				    .n_versions = 1,
				    .nodes = &node,
				    .n_nodes = 1 };
	auto_buf file = { 0 }, manifest = { 0 };
	struct ocdbt *db;
	struct test_dir t;
	unsigned visited = 0;

	v[1].generation = 4;
	assert_int_equal(ocdbt_vnode_pack(&leaf, NULL, &file), 0);
	child.node = (struct ocdbt_ref){ .rel = S("d/f"), .off = 0, .len = file.n };
	node.node = (struct ocdbt_ref){ .rel = S("d/f"), .off = file.n };
	assert_int_equal(ocdbt_vnode_pack(&top, NULL, &file), 0);
	node.node.len = file.n - node.node.off;
	assert_int_equal(ocdbt_manifest_pack(&m, NULL, &manifest), 0);
	test_dir_open(&t, "sync");
	test_write(&t, "d/f", buf_span(&file));
	test_write(&t, "manifest.ocdbt", buf_span(&manifest));
	db = test_open_db(&t, ".", NULL);
	assert_int_equal(ocdbt_each_version(db, count_versions, &visited), -EUCLEAN);
	assert_string_equal(err_text(-EUCLEAN),
			    "generation 5 of time 50 follows generation 4 of time 500");
	assert_int_equal(visited, 2);
	ocdbt_db_close(db);
	test_dir_close(&t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(versions_are_carried_as_tensorstore_carries_them),
		cmocka_unit_test(commit_times_only_rise),
		cmocka_unit_test(a_version_node_must_match_its_reference),
		cmocka_unit_test(a_traversal_finds_times_that_decrease),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
