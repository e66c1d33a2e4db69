/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_tree_msgpack.c - the aggregate file: what parses, packs and parses again to the same tree.
 */
#include "core/tree/tree.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	auto_of(tree) struct tree *tree = NULL;
	auto_of(tree) struct tree *again = NULL;
	auto_buf packed = { 0 }, a = { 0 }, b = { 0 };

	if (tree_parse_aggregate(span_of(data, size), "input", &tree) < 0) {
		must(!tree);
		return 0;
	}
	must(tree_print_aggregate(tree, &packed) == 0);
	must(tree_parse_aggregate(buf_span(&packed), "packed", &again) == 0);
	must(tree_text(&a, tree) == 0 && tree_text(&b, again) == 0);
	must(span_eq(buf_span(&a), buf_span(&b)));
	return 0;
}
