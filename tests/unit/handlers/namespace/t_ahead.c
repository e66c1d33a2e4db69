/* SPDX-License-Identifier: Apache-2.0 */
/*
 * t_ahead.c - readers of an item that are followed.
 */
#include "handlers/namespace/ahead.h"

#include "core/base/err.h"
#include "tests/unit/lib/leaf_list.h"

#define LEAVES 100000
#define PROCESSES 40
#define PASSES 50

/*
 * Far more processes than are followed share the leaves of a tree. If each leaf cost as much as
 * there are leaves, this would take hours.
 */
static void more_readers_than_are_followed(void **state)
{
	struct ckpt ckpt = { 0 };
	struct item item = { .ckpt = &ckpt, .tree = leaf_list(LEAVES, TREE_VALUE_STORED) };
	struct ahead *a;

	/* These leaves are too small to be decoded ahead, so the pool gets nothing. */
	ckpt.pool = (struct pool *)&ckpt;
	assert_int_equal(ahead_new(&item, NULL, &a), 0);
	for (unsigned i = 0; i < PASSES * LEAVES; i++) {
		const struct tree_node *leaf = item.tree->nodes[1 + i % LEAVES];

		ahead_begun(a, 1 + i % PROCESSES, leaf, 100, AHEAD_CHUNKS);
	}
	ahead_free(a);
	tree_free(item.tree);
}

/* Arrays in an aggregate file have no place of their own, so no order has them. */
static void a_large_leaf_that_is_in_no_order(void **state)
{
	struct ckpt ckpt = { 0 };
	struct item item = { .ckpt = &ckpt, .tree = leaf_list(LEAVES, TREE_VALUE_AGGREGATE) };
	struct ahead *a;

	ckpt.pool = (struct pool *)&ckpt;
	assert_int_equal(ahead_new(&item, NULL, &a), 0);
	for (unsigned i = 1; i <= 3; i++)
		ahead_begun(a, 1, item.tree->nodes[i], 1 * MiB, AHEAD_CHUNKS);
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
