/* SPDX-License-Identifier: Apache-2.0 */
/*
 * t_leaf_order.c - the orders in which leaves are read.
 */
#include "handlers/namespace/leaf_order.h"

#include "tests/unit/lib/leaf_list.h"

#define LEAVES 12

static void assert_order(const struct leaf_orders *o, enum leaf_order order, const uint32_t *leaf,
			 uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		assert_int_equal(leaf_at(o, order, i), leaf[i]);
		assert_int_equal(leaf_place(o, order, leaf[i]), i);
	}
	assert_int_equal(leaf_at(o, order, n), LEAF_NONE);
}

static void orders_of_a_tree(void **state)
{
	static const uint32_t tree_order[] = { 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12 };
	/* 0, 1, 10, 11, 2 ... */
	static const uint32_t names[] = { 1, 2, 11, 12, 3, 4, 5, 6, 7, 8, 9, 10 };
	struct tree *tree = leaf_list(LEAVES, TREE_VALUE_STORED);
	struct leaf_orders o;

	leaf_orders_init(&o, tree);
	assert_int_equal(leaf_place(&o, ORDER_TREE, 3), LEAF_NONE);
	assert_int_equal(leaf_at(&o, ORDER_TREE, 0), LEAF_NONE);
	leaf_orders_make(&o);
	leaf_orders_make(&o);
	assert_order(&o, ORDER_TREE, tree_order, LEAVES);
	assert_order(&o, ORDER_NAMES, names, LEAVES);
	/* The root is not a leaf. */
	assert_int_equal(leaf_place(&o, ORDER_TREE, 0), LEAF_NONE);
	leaf_orders_release(&o);
	tree_free(tree);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(orders_of_a_tree),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
