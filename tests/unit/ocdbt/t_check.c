/* SPDX-License-Identifier: Apache-2.0 */
/*
 * t_check.c - every kind of fault is found, reported with its address, and does not hide others.
 */
#include "tests/unit/lib/ocdbt_test.h"

#include "core/ocdbt/visited.h"

struct found {
	struct buf text; /* "SEVERITY WHERE: TEXT\n" for each finding */
	unsigned n, stop_at;
};

static int take_finding(void *arg, const struct ocdbt_finding *f)
{
	static const char *const names[] = { "info", "warning", "error" };
	struct found *x = arg;

	buf_addf(&x->text, "%s %s: %s\n", names[f->severity], f->where, f->text);
	return ++x->n == x->stop_at ? 99 : 0;
}

static int check_dir(struct test_dir *t, bool all, struct found *x, struct ocdbt_check_stats *stats)
{
	const struct ocdbt_check_opts opts = { all, all, take_finding, x };
	struct ocdbt *db = test_open_db(t, ".", NULL);
	int r = ocdbt_check(db, &opts, stats);

	buf_str(&x->text);
	ocdbt_db_close(db);
	return r;
}

/* ---- TensorStore's own database ---- */

static void write_ts(struct test_dir *t, struct span data)
{
	test_write(t, "manifest.ocdbt", VEC(manifest_ts));
	test_write(t, "d/085055c458ad08b9e95374b324652525", data);
}

static void a_sound_database_has_no_findings(void **state)
{
	struct ocdbt_check_stats stats;
	struct found x = { 0 };
	struct test_dir t;

	test_dir_open(&t, "sync");
	write_ts(&t, VEC(data_ts));
	assert_int_equal(check_dir(&t, true, &x, &stats), 0);
	assert_int_equal(x.n, 0);
	assert_int_equal(stats.versions, 1);
	assert_int_equal(stats.nodes, 3);
	assert_int_equal(stats.keys, 4);
	assert_int_equal(stats.value_bytes, 14);
	assert_int_equal(stats.files, 1);
	buf_release(&x.text);
	test_dir_close(&t);
}

static void each_broken_node_is_found(void **state)
{
	struct ocdbt_check_stats stats;
	struct found x = { 0 };
	auto_buf data = { 0 };
	struct test_dir t;

	test_dir_open(&t, "sync");
	buf_add_span(&data, VEC(data_ts));
	data.p[0x50] ^= 1; /* in the first leaf */
	data.p[0x5c] ^= 1; /* the magic of the second */
	write_ts(&t, buf_span(&data));
	assert_int_equal(check_dir(&t, true, &x, &stats), 0);
	assert_int_equal(stats.errors, 2);
	assert_non_null(strstr((const char *)x.text.p,
			       "error btreenode:d/085055c458ad08b9e95374b324652525:14:78: "));
	assert_non_null(strstr((const char *)x.text.p, "stored b8e0a948"));
	assert_non_null(strstr((const char *)x.text.p,
			       "error btreenode:d/085055c458ad08b9e95374b324652525:92:78: "));
	assert_non_null(strstr((const char *)x.text.p, "magic 0ddb20de"));
	buf_release(&x.text);
	test_dir_close(&t);
}

static void a_short_file_is_found(void **state)
{
	struct ocdbt_check_stats stats;
	struct found x = { 0 };
	struct test_dir t;

	test_dir_open(&t, "sync");
	write_ts(&t, span_of(vec_data_ts, 263));
	assert_int_equal(check_dir(&t, false, &x, &stats), 0);
	assert_string_equal(
		(const char *)x.text.p,
		"error btreenode:d/085055c458ad08b9e95374b324652525:170:94: data file"
		" 'd/085055c458ad08b9e95374b324652525' has 263 bytes, 94 at offset 170 are referred to\n");
	buf_release(&x.text);
	test_dir_close(&t);
}

static void the_caller_can_end_the_check(void **state)
{
	struct ocdbt_check_stats stats;
	struct found x = { .stop_at = 1 };
	auto_buf data = { 0 };
	struct test_dir t;

	test_dir_open(&t, "sync");
	buf_add_span(&data, VEC(data_ts));
	data.p[0x50] ^= 1;
	data.p[0x5c] ^= 1;
	write_ts(&t, buf_span(&data));
	assert_int_equal(check_dir(&t, true, &x, &stats), 99);
	assert_int_equal(x.n, 1);
	buf_release(&x.text);
	test_dir_close(&t);
}

/* ---- faults between records ---- */

/* Make a root of two leaves "aa", "ab" and "ba", "bb"; `fault` selects what is broken. */
static void forge(struct test_dir *t, int fault)
{
	static const char *const one_keys[] = { "aa", "ab" };
	static const char *const two_keys[] = { "ba", "bb" };
	struct test_forge f = { .t = t };
	struct ocdbt_stats s1, s2, stats;
	struct ocdbt_ref one = test_forge_leaf(&f, one_keys, 2, 0, &s1), root;
	struct ocdbt_ref two = test_forge_leaf(&f, two_keys, 2, 0, &s2);
	auto_packer p = { .height = 1 };

	if (fault == 1)
		s1.keys = 3;
	if (fault == 2)
		s2.tree_bytes++;
	if (fault == 3)
		s2.value_bytes = 1;
	if (fault == 4)
		two = one, s2 = s1;
	assert_int_equal(ocdbt_packer_add_child(&p, fault == 5 ? S("ab") : S("aa"), 0, &one, &s1),
			 0);
	assert_int_equal(ocdbt_packer_add_child(&p, fault == 6 ? S("abb") : S("ba"), 0, &two, &s2),
			 0);
	root = test_forge_node(&f, &p, 0, &stats);
	if (fault == 7)
		stats.keys = 0;
	test_forge_finish(&f, &root, fault == 8 ? 2 : 1, &stats);
}

static void contradictions_between_records_are_found(void **state)
{
	static const struct {
		int fault;
		const char *text;
	} cases[] = {
		{ 0, "" },
		{ 1, "btreenode:d/f:0:33: has 2 keys, its reference says 3" },
		{ 2, "btreenode:d/f:33:33: nodes have 33 bytes, the reference says 34" },
		{ 3, "btreenode:d/f:33:33: values in files have 0 bytes, the reference says 1" },
		{ 4, "btreenode:d/f:0:33: first key 'aa' is below 'ba', the key of its reference" },
		{ 5, "btreenode:d/f:0:33: first key 'aa' is below 'ab', the key of its reference" },
		{ 6, "" }, /* a separator below the first key is legal */
		{ 7, "has 4 keys, its reference says 0" },
		{ 8, "height 1, should be 2" },
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct ocdbt_check_stats stats;
		struct found x = { 0 };
		struct test_dir t;

		test_dir_open(&t, "sync");
		forge(&t, cases[i].fault);
		assert_int_equal(check_dir(&t, true, &x, &stats), 0);
		assert_int_equal(stats.errors, cases[i].text[0] ? 1 : 0);
		if (!strstr((const char *)x.text.p, cases[i].text))
			fail_msg("fault %d gave '%s'", cases[i].fault, (const char *)x.text.p);
		buf_release(&x.text);
		test_dir_close(&t);
	}
}

/* The last child of the first child exceeds the bound of an entry of the root. */
static void the_right_edge_inherits_bounds(void **state)
{
	static const char *const low_keys[] = { "a", "z" };
	static const char *const high_keys[] = { "m" };
	struct ocdbt_check_stats stats;
	struct ocdbt_stats s1, s2, inner_stats, root_stats, tail_stats;
	struct found x = { 0 };
	struct test_forge f = { 0 };
	auto_packer p = { .height = 1 };
	struct ocdbt_ref low, high, inner, tail, root;
	struct test_dir t;

	test_dir_open(&t, "sync");
	f.t = &t;
	low = test_forge_leaf(&f, low_keys, 2, 0, &s1);
	high = test_forge_leaf(&f, high_keys, 1, 0, &s2);
	assert_int_equal(ocdbt_packer_add_child(&p, S("a"), 0, &low, &s1), 0);
	inner = test_forge_node(&f, &p, 0, &inner_stats);
	assert_int_equal(ocdbt_packer_add_child(&p, S("m"), 0, &high, &s2), 0);
	tail = test_forge_node(&f, &p, 0, &tail_stats);
	p.height = 2;
	assert_int_equal(ocdbt_packer_add_child(&p, S("a"), 0, &inner, &inner_stats), 0);
	assert_int_equal(ocdbt_packer_add_child(&p, S("m"), 0, &tail, &tail_stats), 0);
	root = test_forge_node(&f, &p, 0, &root_stats);
	test_forge_finish(&f, &root, 2, &root_stats);
	assert_int_equal(check_dir(&t, true, &x, &stats), 0);
	assert_int_equal(stats.errors, 1);
	assert_non_null(strstr((const char *)x.text.p, "last key 'z' is not below 'm'"));
	buf_release(&x.text);
	test_dir_close(&t);
}

/*
 * A known subtree is reached again under a tighter bound: only its right edge is checked, and is at
 * fault.
 */
static void a_shared_subtree_is_checked_against_each_bound(void **state)
{
	static const char *const shared_keys[] = { "1", "9" };
	struct ocdbt_check_stats stats;
	struct ocdbt_stats leaf_stats, inner_stats, root_stats;
	struct found x = { 0 };
	struct test_forge f = { 0 };
	auto_packer p = { .height = 1 };
	struct ocdbt_ref leaf, inner, root;
	struct test_dir t;

	test_dir_open(&t, "sync");
	f.t = &t;
	leaf = test_forge_leaf(&f, shared_keys, 2, 0, &leaf_stats);
	assert_int_equal(ocdbt_packer_add_child(&p, S(""), 0, &leaf, &leaf_stats), 0);
	inner = test_forge_node(&f, &p, 0, &inner_stats);
	/* Under "a" it is sound; under "b" its "b9" is beyond "b5". */
	p.height = 2;
	assert_int_equal(ocdbt_packer_add_child(&p, S("a"), 1, &inner, &inner_stats), 0);
	assert_int_equal(ocdbt_packer_add_child(&p, S("b"), 1, &inner, &inner_stats), 0);
	assert_int_equal(ocdbt_packer_add_child(&p, S("b5"), 2, &inner, &inner_stats), 0);
	root = test_forge_node(&f, &p, 0, &root_stats);
	test_forge_finish(&f, &root, 2, &root_stats);
	assert_int_equal(check_dir(&t, true, &x, &stats), 0);
	assert_int_equal(stats.errors, 1);
	assert_non_null(strstr((const char *)x.text.p, "last key 'b9' is not below 'b5'"));
	/* Each node was traversed once. */
	assert_int_equal(stats.nodes, 3);
	assert_int_equal(stats.keys, 2);
	buf_release(&x.text);
	test_dir_close(&t);
}

static void a_bomb_of_shared_nodes_is_cheap(void **state)
{
	static const char *const keys[] = { "" };
	struct ocdbt_check_stats stats;
	struct ocdbt_stats s;
	struct found x = { 0 };
	struct test_forge f = { 0 };
	struct ocdbt_ref below;
	struct test_dir t;

	test_dir_open(&t, "sync");
	f.t = &t;
	below = test_forge_leaf(&f, keys, 1, 0, &s);
	for (unsigned h = 1; h <= 60; h++) {
		auto_packer p = { .height = h };
		struct ocdbt_stats child = s;

		assert_int_equal(ocdbt_packer_add_child(&p, S("0"), 1, &below, &child), 0);
		assert_int_equal(ocdbt_packer_add_child(&p, S("1"), 1, &below, &child), 0);
		below = test_forge_node(&f, &p, 0, &s);
	}
	test_forge_finish(&f, &below, 60, &s);
	assert_int_equal(check_dir(&t, true, &x, &stats), 0);
	assert_int_equal(stats.nodes, 61);
	assert_int_equal(x.n, 0);
	buf_release(&x.text);
	test_dir_close(&t);
}

/* ---- values and files ---- */

static void values_outside_their_files_are_found(void **state)
{
	static const struct {
		const char *key, *rel;
		uint64_t off, len;
	} values[] = {
		{ "a", "d/v", 0, 10 },   { "b", "d/v", 5, 6 },   { "c", "d/gone", 0, 1 },
		{ "d", "d/gone", 7, 1 }, { "e", "../up", 0, 1 }, { "f", "d/nothing", 9, 0 },
		{ "g", "d/v", 10, 1 },
	};
	struct ocdbt_check_stats stats;
	struct ocdbt_stats s;
	struct found x = { 0 };
	struct test_forge f = { 0 };
	auto_packer p = { 0 };
	struct ocdbt_ref root;
	struct test_dir t;

	test_dir_open(&t, "sync");
	f.t = &t;
	test_write(&t, "d/v", S("0123456789"));
	for (size_t i = 0; i < ARRAY_LEN(values); i++) {
		struct ocdbt_entry e = { .key = span_str(values[i].key), .value.kind = OCDBT_FILE };

		e.value.ref = (struct ocdbt_ref){ NONE, span_str(values[i].rel), values[i].off,
						  values[i].len };
		assert_int_equal(ocdbt_packer_add(&p, &e), 0);
	}
	root = test_forge_node(&f, &p, 0, &s);
	test_forge_finish(&f, &root, 0, &s);
	assert_int_equal(check_dir(&t, true, &x, &stats), 0);
	/* An absent file is reported once, however many values refer to it. */
	assert_string_equal(
		(const char *)x.text.p,
		"error value:d/v:5:6: value of key 1 ends beyond the 10 bytes of its file\n"
		"error file:d/gone: data file 'd/gone' is absent\n"
		"error file:../up: data file: path '../up' is not inside the checkpoint\n"
		"error value:d/v:10:1: value of key 6 ends beyond the 10 bytes of its file\n");
	buf_release(&x.text);
	test_dir_close(&t);
}

static void unused_data_files_are_reported_and_not_a_fault(void **state)
{
	static const char unused[] = "d/0123456789abcdef0123456789abcdef";
	struct ocdbt_check_stats stats;
	struct found x = { 0 }, y = { 0 };
	struct test_dir t;

	test_dir_open(&t, "sync");
	write_ts(&t, VEC(data_ts));
	test_write(&t, unused, S("waste"));
	test_write(&t, "d/some other file", S("none of ours"));
	test_write(&t, "e/0123456789abcdef0123456789abcdef", S("not in a directory of ours"));
	assert_int_equal(check_dir(&t, true, &x, &stats), 0);
	assert_int_equal(stats.warnings, 0);
	assert_int_equal(stats.errors, 0);
	assert_string_equal(
		(const char *)x.text.p,
		"info file:d/0123456789abcdef0123456789abcdef: nothing refers to this data file\n");
	/* A check of the latest version alone cannot find unused files. */
	assert_int_equal(check_dir(&t, false, &y, &stats), 0);
	assert_int_equal(y.n, 0);
	buf_release(&x.text);
	buf_release(&y.text);
	test_dir_close(&t);
}

/* ---- version nodes ---- */

static struct ocdbt_version plain_version(uint64_t g, uint64_t time)
{
	return (struct ocdbt_version){ .generation = g,
				       .commit_time = time,
				       .root = { .off = OCDBT_NO_ROOT, .len = OCDBT_NO_ROOT } };
}

static void claims_of_version_nodes_are_checked(void **state)
{
	static const struct {
		uint64_t num, time;
		const char *text;
	} cases[] = {
		{ 2, 5, "" },
		{ 3, 5, "2 generations from time 5, the reference says 3 from 5" },
		{ 2, 4, "2 generations from time 5, the reference says 2 from 4" },
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct ocdbt_version v[2] = { plain_version(3, 5), plain_version(4, 6) },
				     last = plain_version(5, 50);
		struct ocdbt_version_ref child = { .generation = 4,
						   .num_generations = cases[i].num,
						   .commit_time = cases[i].time };
		struct ocdbt_vnode leaf = { .arity_log2 = 2, .versions = v, .n = 2 };
		struct ocdbt_vnode top = {
			.arity_log2 = 2, .height = 1, .children = &child, .n = 1
		};
		struct ocdbt_version_ref node = { .generation = 4,
						  .height = 1,
						  .num_generations = cases[i].num,
						  .commit_time = cases[i].time };
		struct ocdbt_manifest m = { .config.arity_log2 = 2,
					    .versions = &last,
					    .n_versions = 1,
					    .nodes = &node,
					    .n_nodes = 1 };
		auto_buf file = { 0 }, manifest = { 0 };
		struct ocdbt_check_stats stats;
		struct found x = { 0 };
		struct test_dir t;

		assert_int_equal(ocdbt_vnode_pack(&leaf, NULL, &file), 0);
		child.node = (struct ocdbt_ref){ .rel = S("d/f"), .off = 0, .len = file.n };
		node.node = (struct ocdbt_ref){ .rel = S("d/f"), .off = file.n };
		assert_int_equal(ocdbt_vnode_pack(&top, NULL, &file), 0);
		node.node.len = file.n - node.node.off;
		assert_int_equal(ocdbt_manifest_pack(&m, NULL, &manifest), 0);
		test_dir_open(&t, "sync");
		test_write(&t, "d/f", buf_span(&file));
		test_write(&t, "manifest.ocdbt", buf_span(&manifest));
		assert_int_equal(check_dir(&t, true, &x, &stats), 0);
		assert_int_equal(stats.versions, 3);
		assert_int_equal(stats.version_nodes, 2);
		assert_int_equal(stats.errors, cases[i].text[0] ? 1 : 0);
		if (!strstr((const char *)x.text.p, cases[i].text))
			fail_msg("case %zu gave '%s'", i, (const char *)x.text.p);
		buf_release(&x.text);
		test_dir_close(&t);
	}
}

static void visited_records_are_known(void **state)
{
	struct visited s = { 0 };

	for (uint64_t i = 0; i < 5000; i++) {
		/* Many ids that have the same slots. */
		uint64_t id[2] = { i % 50 * 4096, i };
		struct visited_item *item;

		assert_false(visited_has(&s, id));
		assert_int_equal(visited_get(&s, id, &item), 0);
		item->value = i;
	}
	for (uint64_t i = 0; i < 5000; i++) {
		uint64_t id[2] = { i % 50 * 4096, i };
		struct visited_item *item;

		assert_true(visited_has(&s, id));
		assert_int_equal(visited_get(&s, id, &item), 1);
		assert_int_equal(item->value, i);
	}
	assert_int_equal(s.n, 5000);
	visited_release(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_sound_database_has_no_findings),
		cmocka_unit_test(each_broken_node_is_found),
		cmocka_unit_test(a_short_file_is_found),
		cmocka_unit_test(the_caller_can_end_the_check),
		cmocka_unit_test(contradictions_between_records_are_found),
		cmocka_unit_test(the_right_edge_inherits_bounds),
		cmocka_unit_test(a_shared_subtree_is_checked_against_each_bound),
		cmocka_unit_test(a_bomb_of_shared_nodes_is_cheap),
		cmocka_unit_test(values_outside_their_files_are_found),
		cmocka_unit_test(unused_data_files_are_reported_and_not_a_fault),
		cmocka_unit_test(claims_of_version_nodes_are_checked),
		cmocka_unit_test(visited_records_are_known),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
