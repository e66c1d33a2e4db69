/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_tree_manifest.c - the JSON that travels with exported arrays: what parses, prints and parses
 * again with the same paths and dtypes, and is fed twice to the same files.
 */
#include <string.h>

#include "core/base/err.h"
#include "core/base/json.h"
#include "tests/fuzz/fuzz.h"
#include "tools/convert/input.h"

static void check_path(const struct tree_manifest *a, const struct tree_manifest *b,
		       struct span key)
{
	static const struct tree_manifest_style styles[] = { { ".", false, true },
							     { "", false, false },
							     { "/", true, true } };

	for (size_t i = 0; i < ARRAY_LEN(styles); i++) {
		auto_buf pa = { 0 }, pb = { 0 };

		must(tree_manifest_path(a, key, &styles[i], &pa) ==
		     tree_manifest_path(b, key, &styles[i], &pb));
		must(span_eq(buf_span(&pa), buf_span(&pb)));
		if (buf_str(&pa) && strlen(buf_str(&pa)) == pa.n)
			must(tree_manifest_dtype(a, buf_str(&pa)) ==
			     tree_manifest_dtype(b, buf_str(&pa)));
	}
}

static void check_entries(const struct tree_manifest *a, const struct tree_manifest *b)
{
	auto_import_list fa = { .at = "" }, fb = { .at = "" };
	int ra = import_manifest(a, "input", NULL, &fa),
	    rb = import_manifest(b, "printed", NULL, &fb);

	must(ra == rb);
	/* Printing sorts the members: of two inputs that are refused, another part was read before.
	 */
	must(ra < 0 || (fa.n == fb.n && fa.n_dirs == fb.n_dirs && fa.n_marks == fb.n_marks));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	auto_tree_manifest a = { 0 }, b = { 0 };
	auto_buf printed = { 0 };
	const struct json *leaves;

	if (tree_manifest_parse(span_of(data, size), "input", &a) < 0) {
		must(!a.doc.root);
		return 0;
	}
	must(json_print(&printed, a.doc.root, JSON_COMPACT) == 0);
	must(tree_manifest_parse(buf_span(&printed), "printed", &b) == 0);
	must(a.is_step == b.is_step);
	leaves = json_member(a.doc.root, "leaves");
	for (size_t i = 0; leaves && i < MIN(leaves->n, (size_t)32); i++) {
		check_path(&a, &b, leaves->items[i].name);
		check_path(&a, &b, leaves->items[i].s);
	}
	check_path(&a, &b, span_str("a.b/c"));
	check_path(&a, &b, span_of(NULL, 0));
	check_entries(&a, &b);
	return 0;
}
