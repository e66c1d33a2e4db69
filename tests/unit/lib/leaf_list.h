/* SPDX-License-Identifier: Apache-2.0 */
/*
 * leaf_list.h - a tree that is one list of leaves.
 */
#ifndef PYTREEFS_LEAF_LIST_H
#define PYTREEFS_LEAF_LIST_H

#include "core/tree/name.h"
#include "tests/unit/lib/unit.h"

static enum name_ext leaf_list_ext(void *arg, const struct tree_node *leaf)
{
	return NAME_EXT_NPY;
}

/* The ids of the leaves are 1 to n. The caller frees the tree. */
static inline struct tree *leaf_list(unsigned n, enum tree_value value)
{
	struct tree_node *root, *leaf;
	struct tree *tree;

	assert_int_equal(tree_new(&tree), 0);
	assert_int_equal(tree_add(tree, NULL, span_str(""), false, TREE_LIST, &root), 0);
	for (unsigned i = 0; i < n; i++) {
		auto_buf key = { 0 };
		struct span text;

		assert_int_equal(buf_addf(&key, "%u", i), 0);
		text = span_of(arena_dup(&tree->arena, buf_span(&key)), key.n);
		assert_non_null(text.p);
		assert_int_equal(tree_add(tree, root, text, true, TREE_LEAF, &leaf), 0);
		leaf->value = value;
	}
	assert_int_equal(tree_finish(tree), 0);
	assert_int_equal(tree_name(tree, 0, leaf_list_ext, NULL), 0);
	return tree;
}

#endif
