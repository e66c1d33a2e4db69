/* SPDX-License-Identifier: Apache-2.0 */
/*
 * t_tree_nomem.c - make each allocation of every parser and printer fail in turn: the result is
 * -ENOMEM, nothing is leaked (the address sanitizer checks that), and outputs are untouched.
 */
#include "tests/unit/lib/nomem.h"

#include <cjson/cJSON.h>

#include "core/base/json_pull.h"
#include "core/base/log.h"
#include "core/step/step_deletion.h"
#include "core/step/step_meta.h"
#include "core/tree/array_metadata.h"
#include "core/tree/sharding.h"
#include "core/tree/strings.h"
#include "core/tree/tree.h"

/* Run with the first, second, ... allocation failing, until a run succeeds. */
static void starve(int (*run)(void))
{
	for (unsigned n = 1; n < 100000; n++) {
		bool none;
		int r;

		count = 0;
		fail_at = n;
		r = run();
		none = count < n;
		fail_at = 0;
		if (none) {
			assert_int_equal(r, 0);
			assert_true(n > 1);
			return;
		}
		if (r != -ENOMEM)
			fail_msg("allocation %u: %d %s", n, r, err_text(r));
	}
	fail_msg("there is no end");
}

static enum name_ext ext_of(void *arg, const struct tree_node *leaf)
{
	return NAME_EXT_NPY;
}

#define ENTRY(name, key, type)                                                                   \
	"\"" name "\": {\"key_metadata\": [{\"key\": \"" name "\", \"key_type\": 2}, "           \
	"{\"key\": \"" key "\", \"key_type\": 2}], \"value_metadata\": {\"value_type\": \"" type \
	"\", "                                                                                   \
	"\"skip_deserialize\": false, \"write_shape\": [8]}}"

static int metadata(void)
{
	static const char doc[] = "{\"tree_metadata\": {" ENTRY("\\u00e9z", "b", "x") ", " ENTRY(
		"a", "c",
		"y") "}, "
		     "\"custom_metadata\": {\"k\": [1.5, \"\\n\"]}, \"value_metadata_tree\": "
		     "\"{\\\"a\\\": {\\\"category\\\": \\\"namedtuple\\\", \\\"module\\\": \\\"m\\\", "
		     "\\\"clazz\\\": \\\"C\\\", \\\"entries\\\": [{\\\"key\\\": \\\"c\\\", \\\"value\\\": "
		     "{\\\"category\\\": \\\"custom\\\", \\\"clazz\\\": \\\"ValueMetadataEntry\\\", "
		     "\\\"data\\\": {}}}]}, \\\"\\\\u00e9z\\\": {\\\"b\\\": {\\\"category\\\": "
		     "\\\"custom\\\", \\\"clazz\\\": \\\"ValueMetadataEntry\\\", \\\"data\\\": {}}}}\"}";
	auto_of(tree) struct tree *tree = NULL;
	auto_buf out = { 0 }, text = { 0 }, path = { 0 }, key = { 0 };
	int r = tree_parse_metadata(span_str(doc), "x", &tree);

	if (r < 0) {
		assert_null(tree);
		return r;
	}
	r = tree_name(tree, NAME_OURS_METADATA, ext_of, NULL);
	if (r >= 0)
		r = tree_print_metadata(tree, true, &out);
	if (r >= 0)
		r = tree_text(&text, tree);
	if (r >= 0)
		r = tree_path(tree->nodes[2], &path);
	if (r >= 0)
		r = tree_key_json(tree->nodes[2], &key);
	/* A printer that failed left its output unchanged. */
	assert_true(r >= 0 || out.n == 0 || text.n == 0 || path.n == 0 || key.n == 0);
	return r;
}

static int by_hand(void)
{
	auto_of(tree) struct tree *tree = NULL;
	struct tree_node *root, *list, *n;
	int r = tree_new(&tree);

	if (r >= 0)
		r = tree_add(tree, NULL, span_str(""), false, TREE_DICT, &root);
	if (r >= 0)
		r = tree_add(tree, root, span_str("z"), false, TREE_LIST, &list);
	if (r >= 0)
		r = tree_add(tree, list, span_str("0"), true, TREE_LEAF, &n);
	if (r >= 0)
		r = tree_add(tree, root, span_str("a"), false, TREE_LEAF, &n);
	if (r >= 0)
		r = tree_sort(tree);
	return r < 0 ? r : tree_finish(tree);
}

static int from_names(void)
{
	const struct span names[] = { span_str("b.c"), span_str("a"), span_str("a.b") };
	auto_of(tree) struct tree *tree = NULL;
	int r = tree_from_names(names, NULL, 3, &tree);

	assert_true(r >= 0 || !tree);
	return r;
}

static const char aggregate_file[] =
	"\x84\xa1"
	"a\xc7\x10\x01\x93\x92\x02\x01\xa5int16\xc4\x04\x01\x02\x03\x04"
	"\xa1"
	"b\xc7\x03\x02\x92\x01\xff\xa1"
	"c\xd5\x04\x91\x05\xa1"
	"d"
	"\x83\xb9__msgpack_chunked_array__\xc3\xa5shape\x91\x01\xa6"
	"chunks\x91"
	"\xc7\x07\x01\x93\x91\x01\xa1"
	"a\xa1x";

static int aggregate(void)
{
	auto_of(tree) struct tree *tree = NULL;
	auto_buf out = { 0 };
	int r = tree_parse_aggregate(span_of(aggregate_file, sizeof(aggregate_file) - 1), "x",
				     &tree);

	assert_true(r >= 0 || !tree);
	return r < 0 ? r : tree_print_aggregate(tree, &out);
}

static int merge(void)
{
	static const char doc[] =
		"{\"tree_metadata\": {\"a\": {\"key_metadata\": [{\"key\": \"a\", \"key_type\": 2}], "
		"\"value_metadata\": {\"value_type\": \"x\", \"skip_deserialize\": true}}}}";
	auto_of(tree) struct tree *tree = NULL;
	int r = tree_parse_metadata(span_str(doc), "x", &tree);

	if (r < 0)
		return r;
	r = tree_merge_aggregate(tree, span_of(aggregate_file, sizeof(aggregate_file) - 1), "x");
	assert_true(r >= 0 || !tree->nodes[1]->aggregate);
	return r;
}

static int names(void)
{
	auto_buf name = { 0 }, hashed = { 0 }, key = { 0 }, view = { 0 };
	struct name_view v;
	int r = name_escape(span_str("a/b"), NAME_LEAF, NAME_EXT_NPY, true, &name);

	if (r >= 0)
		r = name_escape_hashed(span_str("a/b"), NAME_LEAF, NAME_EXT_NPY, 1, &hashed);
	if (r >= 0)
		r = name_unescape(span_str("a%2Fb"), NAME_LEAF, true, &key);
	if (r >= 0)
		r = name_view_parse(span_str("w[0:1]@int8@8.npy"), &v);
	return r < 0 ? r : name_view_print(&v, &view);
}

static int strings(void)
{
	const struct strings_pair pairs[] = {
		{ span_str("a/~0"), span_str("x") },
		{ span_str("a/b"), span_str("y") },
	};
	auto_of(strings) struct strings *s = NULL;
	auto_buf out = { 0 }, text = { 0 }, leaf = { 0 };
	int r = strings_parse(span_str("{\"a\": {\"b\": \"\\n\", \"c\": [5]}}"), "x", &s);

	assert_true(r >= 0 || !s);
	if (r >= 0)
		r = strings_text(span_str("\"\\n\""), "x", &text);
	if (r >= 0)
		r = strings_parse_leaf(span_str("{\"a\": \"\\n\"}"), "x", span_str("a"), &leaf);
	if (r >= 0)
		r = strings_print(pairs, 2, &out);
	assert_true(r >= 0 || out.n == 0);
	return r;
}

static int shardings(void)
{
	static const char doc[] =
		"{\"YQ==\": \"{\\\"sharding_type\\\": \\\"NamedSharding\\\", \\\"shape\\\": [2], "
		"\\\"axis_names\\\": [\\\"x\\\"], \\\"partition_spec\\\": [\\\"x\\\"], "
		"\\\"device_mesh\\\": {\\\"mesh\\\": [{\\\"id\\\": 0}, {\\\"id\\\": 1}]}}\"}";
	auto_of(shardings) struct shardings *all = NULL;
	auto_of(sharding) struct sharding *s = NULL;
	auto_buf file = { 0 }, one = { 0 };
	int r = shardings_parse(span_str(doc), "x", &all);

	assert_true(r >= 0 || !all);
	if (r >= 0)
		r = sharding_parse(all->entries[0].text, "x", &s);
	if (r >= 0)
		r = sharding_print(s, &one);
	if (r >= 0)
		r = shardings_print(all->entries, all->n, &file);
	assert_true(r >= 0 || file.n == 0);
	return r;
}

static int arrays(void)
{
	static const char doc[] =
		"{\"array_metadatas\": [{\"array_metadata\": {\"param_name\": \"a\\n\", "
		"\"write_shape\": [1], \"chunk_shape\": [1], \"ext_metadata\": "
		"{\"random_key_impl\": \"rbg\"}}}]}";
	auto_of(array_metadatas) struct array_metadatas *a = NULL;
	auto_buf out = { 0 };
	int r = array_metadatas_parse(span_str(doc), "x", &a);

	assert_true(r >= 0 || !a);
	return r < 0 ? r : array_metadatas_print(a->entries, a->n, &out);
}

static int steps(void)
{
	static const char doc[] =
		"{\"item_handlers\": {\"a\": \"h\", \"c\": \"g\"}, \"metrics\": {\"x\": 1}, "
		"\"performance_metrics\": {\"f\": 1.5}, \"init_timestamp_nsecs\": 5, \"other\": [1]}";
	auto_of(step_meta) struct step_meta *m = NULL;
	auto_of(root_meta) struct root_meta *root = NULL;
	auto_buf out = { 0 }, root_out = { 0 };
	int r = step_meta_parse(span_str(doc), "x", &m);

	assert_true(r >= 0 || !m);
	if (r >= 0)
		r = step_meta_print(m, &out);
	if (r >= 0)
		r = root_meta_parse(span_str("{\"a\": 1}"), "x", &root);
	return r < 0 ? r : root_meta_print(root, &root_out);
}

#define RUN(name)                                              \
	static void name##_can_run_out_of_memory(void **state) \
	{                                                      \
		starve(name);                                  \
	}

RUN(metadata)
RUN(by_hand)
RUN(from_names)
RUN(aggregate)
RUN(merge)
RUN(names)
RUN(strings)
RUN(shardings)
RUN(arrays)
RUN(steps)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(metadata_can_run_out_of_memory),
		cmocka_unit_test(by_hand_can_run_out_of_memory),
		cmocka_unit_test(from_names_can_run_out_of_memory),
		cmocka_unit_test(aggregate_can_run_out_of_memory),
		cmocka_unit_test(merge_can_run_out_of_memory),
		cmocka_unit_test(names_can_run_out_of_memory),
		cmocka_unit_test(strings_can_run_out_of_memory),
		cmocka_unit_test(shardings_can_run_out_of_memory),
		cmocka_unit_test(arrays_can_run_out_of_memory),
		cmocka_unit_test(steps_can_run_out_of_memory),
	};

	log_open(false, false, NULL);
	cJSON_InitHooks(&(cJSON_Hooks){ __wrap_malloc, free });
	return cmocka_run_group_tests(tests, NULL, NULL);
}
