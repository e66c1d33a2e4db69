/* SPDX-License-Identifier: Apache-2.0 */
/*
 * t_tree_name.c - name a tree's nodes, and find them by name, stem and path.
 */
#include "tests/unit/lib/unit.h"

#include <string.h>

#include "core/tree/tree.h"

/* The extension is in value_type. */
static enum name_ext ext_of(void *arg, const struct tree_node *leaf)
{
	assert_int_equal(leaf->kind, TREE_LEAF);
	++*(int *)arg;
	return name_ext_of(leaf->value_type);
}

struct row {
	const char *key, *ext; /* ext NULL: a container that contains the next rows */
	int up;                /* number of containers to leave first */
	const char *path;      /* in the mount */
};

static struct tree *build(const struct row *rows, size_t n)
{
	struct tree *tree = NULL;
	struct tree_node *at, *node;

	assert_int_equal(tree_new(&tree), 0);
	assert_int_equal(tree_add(tree, NULL, span_str(""), false, TREE_DICT, &at), 0);
	for (size_t i = 0; i < n; i++) {
		for (int k = 0; k < rows[i].up; k++)
			at = at->parent;
		assert_int_equal(tree_add(tree, at, span_str(rows[i].key), false,
					  rows[i].ext ? TREE_LEAF : TREE_DICT, &node),
				 0);
		if (rows[i].ext)
			node->value_type = span_str(rows[i].ext);
		else
			at = node;
	}
	assert_int_equal(tree_finish(tree), 0);
	return tree;
}

static const struct row rows[] = {
	{ "a", ".npy", 0, "a.npy" },
	{ "a-b", ".npy", 0, "a-b.npy" },
	{ "a.npy", ".npy", 0, "a.npy.npy" },
	{ "_METADATA", "", 0, "%5FMETADATA" },
	{ "", ".json", 0, "%.json" },
	{ "_CHECKPOINT_METADATA", NULL, 0, "%5FCHECKPOINT_METADATA" },
	{ "_METADATA", "", 0, "%5FCHECKPOINT_METADATA/_METADATA" },
	{ "x/y", ".txt", 0, "%5FCHECKPOINT_METADATA/x%2Fy.txt" },
	{ "d.npy", NULL, 1, "d%2Enpy" },
	{ "d.npy", NULL, 0, "d%2Enpy/d%2Enpy" },
	{ "w", ".npy", 0, "d%2Enpy/d%2Enpy/w.npy" },
	{ "w", NULL, 1, "d%2Enpy/w" },
};

static void every_node_has_its_path(void **state)
{
	auto_of(tree) struct tree *tree = build(rows, ARRAY_LEN(rows));
	int calls = 0;

	assert_int_equal(tree_name(tree, NAME_OURS_METADATA | NAME_OURS_STEP, ext_of, &calls), 0);
	assert_true(calls >= 7);
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		const struct tree_node *node = tree->nodes[i + 1];
		auto_buf path = { 0 };

		assert_int_equal(tree_path(node, &path), 0);
		assert_string_equal(buf_str(&path), rows[i].path);
		assert_ptr_equal(tree_child(node->parent, node->name), node);
	}
}

static void stems_find_leaves_and_containers(void **state)
{
	auto_of(tree) struct tree *tree = build(rows, ARRAY_LEN(rows));
	const struct tree_node *root = tree->root;
	int calls = 0;

	assert_int_equal(tree_name(tree, NAME_OURS_METADATA | NAME_OURS_STEP, ext_of, &calls), 0);
	assert_ptr_equal(tree_child_by_stem(root, span_str("a")),
			 tree_child_by_key(root, span_str("a")));
	assert_ptr_equal(tree_child_by_stem(root, span_str("a.npy")),
			 tree_child(root, span_str("a.npy")));
	assert_ptr_equal(tree_child_by_stem(root, span_str("%")),
			 tree_child_by_key(root, span_str("")));
	assert_ptr_equal(tree_child_by_stem(root, span_str("d%2Enpy")),
			 tree_child_by_key(root, span_str("d.npy")));
	assert_null(tree_child_by_stem(root, span_str("d")));
	assert_null(tree_child_by_stem(root, span_str("")));
	assert_null(tree_child_by_stem(root, span_str("zzz")));
}

static void a_bare_leaf_has_a_name(void **state)
{
	auto_of(tree) struct tree *tree = NULL;
	struct tree_node *root;
	int calls = 0;

	assert_int_equal(tree_new(&tree), 0);
	assert_int_equal(tree_add(tree, NULL, span_str(""), false, TREE_LEAF, &root), 0);
	root->value_type = span_str(".npy");
	assert_int_equal(tree_finish(tree), 0);
	assert_int_equal(tree_name(tree, NAME_OURS_METADATA | NAME_OURS_STEP, ext_of, &calls), 0);
	assert_true(span_eq(root->name, span_str("%.npy")));
}

/* Hashes do not collide in practice, so equal keys are forged after the tree was finished. */
static void leaves_that_collide_get_different_names(void **state)
{
	static const struct row four[] = {
		{ "m", ".npy" },
		{ "k1", ".npy" },
		{ "k2", ".npy" },
		{ "k3", ".npy" },
	};
	auto_of(tree) struct tree *tree = build(four, ARRAY_LEN(four));
	const struct tree_node *root = tree->root;
	int calls = 0;

	for (int i = 2; i <= 4; i++)
		tree->nodes[i]->key = span_str("k");
	assert_int_equal(tree_name(tree, NAME_OURS_METADATA | NAME_OURS_STEP, ext_of, &calls), 0);
	/* The first keeps its name; the second gets a hash; the third's hash collides again. */
	assert_true(span_eq(root->children[1]->name, span_str("k.npy")));
	assert_true(name_is_hashed(span_of(root->children[2]->name.p, 18)));
	assert_false(span_eq(root->children[2]->name, root->children[3]->name));
	for (unsigned i = 0; i < 4; i++) {
		assert_ptr_equal(tree_child(root, root->children[i]->name), root->children[i]);
		assert_ptr_equal(tree_child_by_stem(root, span_of(root->children[i]->name.p,
								  root->children[i]->name.n - 4)),
				 root->children[i]);
	}
}

static void long_keys_are_found_by_their_short_names(void **state)
{
	char a[400], b[400];
	struct row two[] = { { a, ".npy" }, { b, ".npy" } };
	struct tree *tree;
	int calls = 0;

	memset(a, 'x', sizeof(a));
	memset(b, 'x', sizeof(b));
	a[399] = b[399] = '\0';
	b[398] = 'y';
	tree = build(two, 2);
	assert_int_equal(tree_name(tree, NAME_OURS_METADATA | NAME_OURS_STEP, ext_of, &calls), 0);
	for (int i = 0; i < 2; i++) {
		const struct tree_node *n = tree->root->children[i];

		assert_int_equal(n->name.n, LIMIT_NAME_KEEP + 17 + 4);
		assert_ptr_equal(tree_child(tree->root, n->name), n);
		assert_ptr_equal(tree_child_by_stem(tree->root, span_of(n->name.p, n->name.n - 4)),
				 n);
	}
	tree_free(tree);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_node_has_its_path),
		cmocka_unit_test(stems_find_leaves_and_containers),
		cmocka_unit_test(a_bare_leaf_has_a_name),
		cmocka_unit_test(leaves_that_collide_get_different_names),
		cmocka_unit_test(long_keys_are_found_by_their_short_names),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
