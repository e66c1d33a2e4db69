/* SPDX-License-Identifier: Apache-2.0 */
/*
 * t_ahead.c - readers of an item that are followed.
 */
#include "handlers/namespace/ahead.h"

#include <stdio.h>

#include "core/base/err.h"
#include "core/tree/name.h"
#include "tests/unit/lib/unit.h"

#define LEAVES 100000
#define PROCESSES 40
#define PASSES 50

static enum name_ext ext_of(void *arg, const struct tree_node *leaf)
{
	return NAME_EXT_NPY;
}

static struct tree *make_tree(enum tree_value value)
{
	struct tree_node *root, *leaf;
	struct tree *tree;

	assert_int_equal(tree_new(&tree), 0);
	assert_int_equal(tree_add(tree, NULL, span_str(""), false, TREE_LIST, &root), 0);
	for (unsigned i = 0; i < LEAVES; i++) {
		auto_buf key = { 0 };
		struct span text;

		assert_int_equal(buf_addf(&key, "%u", i), 0);
		text = span_of(arena_dup(&tree->arena, buf_span(&key)), key.n);
		assert_non_null(text.p);
		assert_int_equal(tree_add(tree, root, text, true, TREE_LEAF, &leaf), 0);
		leaf->value = value;
	}
	assert_int_equal(tree_finish(tree), 0);
	assert_int_equal(tree_name(tree, 0, ext_of, NULL), 0);
	return tree;
}

/*
 * Far more processes than are followed share the leaves of a tree. If each leaf cost as much as
 * there are leaves, this would take hours.
 */
static void more_readers_than_are_followed(void **state)
{
	struct ckpt ckpt = { 0 };
	struct item item = { .ckpt = &ckpt, .tree = make_tree(TREE_VALUE_STORED) };
	struct ahead *a;

	/* These leaves are too small to be decoded ahead, so the pool gets nothing. */
	ckpt.pool = (struct pool *)&ckpt;
	assert_int_equal(ahead_new(&item, &a), 0);
	for (unsigned i = 0; i < PASSES * LEAVES; i++) {
		const struct tree_node *leaf = item.tree->nodes[1 + i % LEAVES];

		ahead_begun(a, 1 + i % PROCESSES, leaf, 100);
	}
	ahead_free(a);
	tree_free(item.tree);
}

/* Arrays in an aggregate file have no place of their own, so no order has them. */
static void a_large_leaf_that_is_in_no_order(void **state)
{
	struct ckpt ckpt = { 0 };
	struct item item = { .ckpt = &ckpt, .tree = make_tree(TREE_VALUE_AGGREGATE) };
	struct ahead *a;

	ckpt.pool = (struct pool *)&ckpt;
	assert_int_equal(ahead_new(&item, &a), 0);
	for (unsigned i = 1; i <= 3; i++)
		ahead_begun(a, 1, item.tree->nodes[i], 1 * MiB);
	ahead_free(a);
	tree_free(item.tree);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(more_readers_than_are_followed),
		cmocka_unit_test(a_large_leaf_that_is_in_no_order),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
