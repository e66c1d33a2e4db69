/* SPDX-License-Identifier: Apache-2.0 */
/*
 * t_tree.c - trees built by hand: order, parameters, look-ups by key, and refusals.
 */
#include "tests/unit/lib/unit.h"

#include <string.h>

#include "core/tree/tree.h"

static struct tree_node *add(struct tree *tree, struct tree_node *parent, const char *key,
			     bool index, enum tree_kind kind)
{
	struct tree_node *node = NULL;

	assert_int_equal(tree_add(tree, parent, span_str(key), index, kind, &node), 0);
	if (kind == TREE_LEAF)
		node->value_type = span_str("np.ndarray");
	return node;
}

/* {"b": [x0, x1, ..., x11], "a": {"": y, "é": z}}, with everything added out of order. */
static struct tree *sample(void)
{
	static const char *const order[] = { "10", "2", "0", "11", "1", "9",
					     "3",  "8", "4", "7",  "5", "6" };
	struct tree *tree = NULL;
	struct tree_node *root, *list, *dict;

	assert_int_equal(tree_new(&tree), 0);
	root = add(tree, NULL, "", false, TREE_DICT);
	list = add(tree, root, "b", false, TREE_LIST);
	dict = add(tree, root, "a", false, TREE_DICT);
	for (size_t i = 0; i < ARRAY_LEN(order); i++)
		add(tree, list, order[i], true, TREE_LEAF);
	add(tree, dict, "\xc3\xa9", false, TREE_LEAF);
	add(tree, dict, "", false, TREE_LEAF);
	return tree;
}

static void positions_are_put_in_order(void **state)
{
	auto_of(tree) struct tree *tree = sample();
	const struct tree_node *list;

	assert_int_equal(tree_finish(tree), 0);
	list = tree->root->children[0];
	assert_int_equal(list->n_children, 12);
	for (unsigned i = 0; i < 12; i++) {
		char want[16];

		snprintf(want, sizeof(want), "b.%u", i);
		assert_string_equal((const char *)list->children[i]->param.p, want);
		assert_int_equal(list->children[i]->id, 2 + i);
		assert_ptr_equal(tree->nodes[2 + i], list->children[i]);
	}
}

static void keys_keep_the_order_of_the_document(void **state)
{
	auto_of(tree) struct tree *a = sample();
	auto_of(tree) struct tree *b = sample();

	assert_int_equal(tree_finish(a), 0);
	assert_string_equal((const char *)a->root->children[0]->key.p, "b");
	assert_int_equal(tree_sort(b), 0);
	assert_int_equal(tree_finish(b), 0);
	assert_string_equal((const char *)b->root->children[0]->key.p, "a");
	assert_int_equal(b->root->children[0]->children[0]->key.n, 0);
	assert_int_equal(b->n_nodes, 17);
	assert_int_equal(b->n_leaves, 14);
}

static void integers_are_in_the_order_of_their_values(void **state)
{
	static const char *const given[] = { "10",  "b", "-2", "01", "9", "-0",
					     "-10", "a", "0",  "-",  "2", "18446744073709551616" },
				 *const want[] = { "-10", "b",  "-2", "01",
						   "0",   "-0", "2",  "a",
						   "9",   "-",  "10", "18446744073709551616" };
	auto_of(tree) struct tree *tree = NULL;
	struct tree_node *root;

	assert_int_equal(tree_new(&tree), 0);
	root = add(tree, NULL, "", false, TREE_DICT);
	for (size_t i = 0; i < ARRAY_LEN(given); i++)
		add(tree, root, given[i], false, TREE_LEAF);
	assert_int_equal(tree_finish(tree), 0);
	for (uint32_t i = 0; i < ARRAY_LEN(want); i++) {
		const struct tree_node *child = tree->root->children[i];

		assert_true(span_eq(child->key, span_str(want[i])));
		assert_int_equal(child->id, i + 1);
		assert_ptr_equal(tree->nodes[i + 1], child);
		assert_ptr_equal(tree_child_by_key(tree->root, span_str(want[i])), child);
	}
}

static void children_are_found_by_key(void **state)
{
	auto_of(tree) struct tree *tree = sample();
	static const char *const none[] = { "12", "01", "-1", "", "x", "4294967296", "1 " };
	const struct tree_node *list;

	assert_int_equal(tree_finish(tree), 0);
	list = tree_child_by_key(tree->root, span_str("b"));
	assert_ptr_equal(list, tree->root->children[0]);
	assert_ptr_equal(tree_child_by_key(list, span_str("11")), list->children[11]);
	for (size_t i = 0; i < ARRAY_LEN(none); i++)
		assert_null(tree_child_by_key(list, span_str(none[i])));
	assert_non_null(tree_child_by_key(tree->root->children[1], span_str("")));
	assert_null(tree_child_by_key(tree->root, span_str("c")));
	assert_null(tree_child_by_key(list->children[0], span_str("c")));
}

static void parameters_join_keys(void **state)
{
	auto_of(tree) struct tree *tree = sample();
	const struct tree_node *dict;

	assert_int_equal(tree_finish(tree), 0);
	dict = tree->root->children[1];
	assert_string_equal((const char *)dict->children[0]->param.p, "a.\xc3\xa9");
	assert_string_equal((const char *)dict->children[1]->param.p, "a.");
}

static void a_bare_leaf_is_a_tree(void **state)
{
	auto_of(tree) struct tree *tree = NULL;
	auto_buf key = { 0 }, path = { 0 };

	assert_int_equal(tree_new(&tree), 0);
	add(tree, NULL, "", false, TREE_LEAF);
	assert_int_equal(tree_finish(tree), 0);
	assert_int_equal(tree->n_leaves, 1);
	assert_int_equal(tree->root->param.n, 0);
	assert_non_null(tree->root->param.p);
	assert_int_equal(tree_key_json(tree->root, &key), 0);
	assert_string_equal(buf_str(&key), "[]");
	assert_int_equal(tree_path(tree->root, &path), 0);
	assert_int_equal(path.n, 0);
}

static void the_key_path_is_json(void **state)
{
	auto_of(tree) struct tree *tree = sample();
	auto_buf a = { 0 }, b = { 0 };

	assert_int_equal(tree_finish(tree), 0);
	assert_int_equal(tree_key_json(tree->root->children[0]->children[10], &a), 0);
	assert_string_equal(buf_str(&a), "[\"b\",\"10\"]");
	assert_int_equal(tree_key_json(tree->root->children[1]->children[0], &b), 0);
	assert_string_equal(buf_str(&b), "[\"a\",\"\xc3\xa9\"]");
}

static void nodes_without_a_place_are_refused(void **state)
{
	auto_of(tree) struct tree *tree = sample();
	struct tree_node *list = tree->root->first, *n = NULL;

	assert_int_equal(tree_add(tree, NULL, span_str(""), false, TREE_DICT, &n), -EINVAL);
	assert_int_equal(tree_add(tree, list, span_str("k"), false, TREE_LEAF, &n), -EINVAL);
	assert_int_equal(tree_add(tree, tree->root, span_str("0"), true, TREE_LEAF, &n), -EINVAL);
	assert_int_equal(tree_add(tree, list->first, span_str("x"), false, TREE_LEAF, &n), -EINVAL);
	assert_int_equal(tree_add(tree, tree->root, span_str("\xff"), false, TREE_LEAF, &n),
			 -EINVAL);
	assert_null(n);
}

static void finishing_refuses_two_of_one_key(void **state)
{
	for (int sorted = 0; sorted < 2; sorted++) {
		auto_of(tree) struct tree *tree = sample();

		if (!sorted)
			add(tree, tree->root, "z", false, TREE_LEAF);
		add(tree, tree->root, "a", false, TREE_LEAF);
		if (sorted)
			assert_int_equal(tree_sort(tree), 0);
		assert_int_equal(tree_finish(tree), -EINVAL);
		assert_non_null(strstr(err_text(-EINVAL), "two children have the key 'a'"));
	}
}

static void finishing_refuses_gaps(void **state)
{
	static const char *const last[] = { "13", "11", "012", "x" };

	for (size_t i = 0; i < ARRAY_LEN(last); i++) {
		auto_of(tree) struct tree *tree = sample();

		add(tree, tree->root->first, last[i], true, TREE_LEAF);
		assert_int_equal(tree_finish(tree), -EINVAL);
		assert_non_null(strstr(err_text(-EINVAL), "a sequence of 13 has position"));
	}
}

static void finishing_refuses_an_empty_tree(void **state)
{
	auto_of(tree) struct tree *tree = NULL;

	assert_int_equal(tree_new(&tree), 0);
	assert_int_equal(tree_finish(tree), -EINVAL);
}

static void depth_is_bounded(void **state)
{
	for (int depth = LIMIT_TREE_DEPTH; depth <= LIMIT_TREE_DEPTH + 1; depth++) {
		auto_of(tree) struct tree *tree = NULL;
		auto_buf key = { 0 };
		struct tree_node *n;

		assert_int_equal(tree_new(&tree), 0);
		n = add(tree, NULL, "", false, TREE_DICT);
		for (int i = 0; i < depth; i++)
			n = add(tree, n, "k", false, i + 1 < depth ? TREE_DICT : TREE_LEAF);
		assert_int_equal(tree_finish(tree), depth > LIMIT_TREE_DEPTH ? -EFBIG : 0);
		if (depth == LIMIT_TREE_DEPTH) {
			assert_int_equal(tree_key_json(n, &key), 0);
			assert_int_equal(key.n, 4 * depth + 1);
			assert_int_equal(n->param.n, 2 * depth - 1);
		}
	}
}

static void none_and_placeholders_are_not_leaves(void **state)
{
	auto_of(tree) struct tree *tree = sample();

	add(tree, tree->root, "n", false, TREE_LEAF)->value = TREE_VALUE_NONE;
	add(tree, tree->root, "p", false, TREE_LEAF)->value = TREE_VALUE_PLACEHOLDER;
	add(tree, tree->root, "g", false, TREE_LEAF)->value = TREE_VALUE_AGGREGATE;
	assert_int_equal(tree_finish(tree), 0);
	assert_int_equal(tree->n_leaves, 15);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(positions_are_put_in_order),
		cmocka_unit_test(keys_keep_the_order_of_the_document),
		cmocka_unit_test(integers_are_in_the_order_of_their_values),
		cmocka_unit_test(children_are_found_by_key),
		cmocka_unit_test(parameters_join_keys),
		cmocka_unit_test(a_bare_leaf_is_a_tree),
		cmocka_unit_test(the_key_path_is_json),
		cmocka_unit_test(nodes_without_a_place_are_refused),
		cmocka_unit_test(finishing_refuses_two_of_one_key),
		cmocka_unit_test(finishing_refuses_gaps),
		cmocka_unit_test(finishing_refuses_an_empty_tree),
		cmocka_unit_test(depth_is_bounded),
		cmocka_unit_test(none_and_placeholders_are_not_leaves),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
