/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_tree_json.c - `_METADATA`: what parses, prints and parses again to the same tree; its nodes
 * have names by which they are found.
 */
#include "core/base/log.h"
#include "core/tree/tree.h"
#include "tests/fuzz/fuzz.h"

static enum name_ext ext_of(void *arg, const struct tree_node *leaf)
{
	return leaf->value == TREE_VALUE_NONE ? NAME_EXT_NULL : NAME_EXT_NPY;
}

static void check_names(struct tree *tree)
{
	must(tree_name(tree, NAME_OURS_METADATA, ext_of, NULL) == 0);
	for (uint32_t i = 1; i < tree->n_nodes; i++) {
		const struct tree_node *node = tree->nodes[i];
		auto_buf path = { 0 };

		must(tree_child(node->parent, node->name) == node);
		must(tree_child_by_key(node->parent, node->key) == node);
		must(tree_path(node, &path) == 0);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	auto_of(tree) struct tree *tree = NULL;
	auto_of(tree) struct tree *again = NULL;
	auto_buf printed = { 0 }, a = { 0 }, b = { 0 };

	log_open(false, false, NULL);
	if (tree_parse_metadata(span_of(data, size), "input", &tree) < 0) {
		must(!tree);
		return 0;
	}
	must(tree_print_metadata(tree, tree->rich, &printed) == 0);
	must(tree_parse_metadata(buf_span(&printed), "printed", &again) == 0);
	must(tree_text(&a, tree) == 0 && tree_text(&b, again) == 0);
	must(span_eq(buf_span(&a), buf_span(&b)));
	check_names(tree);
	return 0;
}
