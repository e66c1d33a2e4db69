/* SPDX-License-Identifier: Apache-2.0 */
/*
 * t_version.c - version tree nodes: TensorStore's own, each rule broken once, and packing.
 */
#include "tests/unit/lib/ocdbt_test.h"

static int parse(struct span stored)
{
	auto_vnode v = { 0 };
	auto_buf again = { 0 };
	int r = ocdbt_vnode_parse(stored, NONE, &v);

	if (r < 0) {
		assert_null(v.arena.top);
		return r;
	}
	assert_int_equal(ocdbt_vnode_pack(&v, NULL, &again), 0);
	return 0;
}

static void a_leaf_is_read(void **state)
{
	auto_vnode v = { 0 };

	assert_int_equal(ocdbt_vnode_parse(VEC(vnode_leaf), S("sub/"), &v), 0);
	assert_int_equal(v.arity_log2, 1);
	assert_int_equal(v.height, 0);
	assert_int_equal(v.n, 2);
	assert_int_equal(v.versions[0].generation, 1);
	assert_int_equal(v.versions[1].generation, 2);
	assert_true(span_eq(v.versions[0].root.rel, S("d/343a512f0c3320363179abe6c17ee172")));
	assert_true(span_eq(v.versions[1].root.rel, S("d/0eea3dc18d6318f2e1dffb1d1869947b")));
	assert_true(span_eq(v.versions[0].root.base, S("sub/")));
	assert_int_equal(v.versions[0].root.len, 26);
	assert_int_equal(v.versions[0].stats.tree_bytes, 26);
	assert_true(v.versions[0].commit_time < v.versions[1].commit_time);
}

static void an_interior_node_is_read(void **state)
{
	auto_vnode v = { 0 };

	assert_int_equal(ocdbt_vnode_parse(VEC(vnode_interior), NONE, &v), 0);
	assert_int_equal(v.height, 1);
	assert_int_equal(v.n, 1);
	assert_int_equal(v.children[0].generation, 2);
	assert_int_equal(v.children[0].num_generations, 2);
	assert_int_equal(v.children[0].node.off, 26);
	assert_int_equal(v.children[0].node.len, sizeof(vec_vnode_leaf));
	assert_int_equal(v.children[0].height, 0);
}

static void packing_gives_the_same_bytes(void **state)
{
	auto_vnode leaf = { 0 }, interior = { 0 };
	auto_buf b = { 0 }, c = { 0 };

	assert_int_equal(ocdbt_vnode_parse(VEC(vnode_leaf), NONE, &leaf), 0);
	assert_int_equal(ocdbt_vnode_pack(&leaf, NULL, &b), 0);
	assert_true(span_eq(buf_span(&b), VEC(vnode_leaf)));
	assert_int_equal(ocdbt_vnode_parse(VEC(vnode_interior), NONE, &interior), 0);
	assert_int_equal(ocdbt_vnode_pack(&interior, NULL, &c), 0);
	assert_true(span_eq(buf_span(&c), VEC(vnode_interior)));
}

static void damage_is_refused(void **state)
{
	test_falsify(VEC(vnode_leaf), parse);
	test_falsify(VEC(vnode_interior), parse);
}

/* Arity 4, height 2: children end blocks of 16, all in one block of 64. */
static struct ocdbt_version_ref children[3];

static void fresh(struct ocdbt_vnode *v)
{
	*v = (struct ocdbt_vnode){ .arity_log2 = 2, .height = 2, .children = children, .n = 3 };
	for (int i = 0; i < 3; i++)
		children[i] = (struct ocdbt_version_ref){ .generation = 16u * (unsigned)(i + 1),
							  .num_generations = 16,
							  .commit_time = 10u + (unsigned)i,
							  .node = { .rel = S("d/a"), .len = 40 } };
}

static int pack_and_parse(const struct ocdbt_vnode *v)
{
	auto_buf b = { 0 };

	assert_int_equal(ocdbt_vnode_pack(v, NULL, &b), 0);
	return parse(buf_span(&b));
}

static void broken(int i, struct ocdbt_vnode *v)
{
	switch (i) {
	case 0:
		children[1].generation = 16;
		break;
	case 1:
		children[0].generation = 0;
		break;
	case 2:
		children[0].generation = 12;
		break;
	case 3:
		children[2].generation = 80;
		break; /* another block of 64 */
	case 4:
		children[1].num_generations = 17;
		break;
	case 5:
		children[1].num_generations = 0;
		break;
	case 6:
		children[1].commit_time = 10;
		break;
	case 7:
		children[2].node.off = children[2].node.len = OCDBT_NO_ROOT;
		break;
	case 8:
		v->height = 31;
		break;
	default:
		fail_msg("no such case");
	}
}

static void every_rule_is_checked(void **state)
{
	struct ocdbt_vnode v;

	fresh(&v);
	assert_int_equal(pack_and_parse(&v), 0);
	for (int i = 0; i <= 8; i++) {
		fresh(&v);
		broken(i, &v);
		if (pack_and_parse(&v) != -EUCLEAN)
			fail_msg("rule %d is not checked", i);
	}
}

static void heights_end_where_generations_do(void **state)
{
	for (unsigned a = 1; a <= OCDBT_ARITY_LOG2_MAX; a++) {
		unsigned max = ocdbt_vnode_height_max(a);
		struct ocdbt_vnode v;

		fresh(&v);
		v.n = 1;
		v.arity_log2 = a;
		v.height = max;
		children[0].generation = (uint64_t)1 << (a * max);
		children[0].num_generations = 1;
		assert_int_equal(pack_and_parse(&v), 0);
		v.height = max + 1;
		assert_int_equal(pack_and_parse(&v), -EUCLEAN);
	}
}

static void a_node_without_entries_is_refused(void **state)
{
	auto_buf leaf = { 0 }, interior = { 0 };

	/* Arity, height, empty table, no entries. */
	assert_int_equal(ocdbt_frame_pack(OCDBT_VERSIONNODE, NULL, S("\x02\x00\x00\x00"), &leaf),
			 0);
	assert_int_equal(parse(buf_span(&leaf)), -EUCLEAN);
	assert_int_equal(
		ocdbt_frame_pack(OCDBT_VERSIONNODE, NULL, S("\x02\x01\x00\x00"), &interior), 0);
	assert_int_equal(parse(buf_span(&interior)), -EUCLEAN);
}

static void statistics_saturate(void **state)
{
	struct ocdbt_stats sum = { UINT64_MAX - 1, 5, UINT64_MAX }, more = { 3, 6, 1 };

	ocdbt_stats_add(&sum, &more);
	assert_true(sum.keys == UINT64_MAX);
	assert_int_equal(sum.tree_bytes, 11);
	assert_true(sum.value_bytes == UINT64_MAX);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_leaf_is_read),
		cmocka_unit_test(an_interior_node_is_read),
		cmocka_unit_test(packing_gives_the_same_bytes),
		cmocka_unit_test(damage_is_refused),
		cmocka_unit_test(every_rule_is_checked),
		cmocka_unit_test(heights_end_where_generations_do),
		cmocka_unit_test(a_node_without_entries_is_refused),
		cmocka_unit_test(statistics_saturate),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
