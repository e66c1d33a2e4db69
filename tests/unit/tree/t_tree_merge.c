/* SPDX-License-Identifier: Apache-2.0 */
/*
 * t_tree_merge.c - `_METADATA` with an aggregate file beside it: which of the two determines what.
 */
#include "tests/unit/lib/unit.h"

#include <string.h>

#include "core/tree/tree.h"

/* Leaves a, b, ... in a list "l" at position 0, and at the top. */
static const char metadata[] =
	"{\"tree_metadata\": {"
	"\"1\": {\"key_metadata\": [{\"key\": \"l\", \"key_type\": 2}, {\"key\": \"0\", "
	"\"key_type\": 1}], "
	"\"value_metadata\": {\"value_type\": \"np.ndarray\", \"skip_deserialize\": true}}, "
	"\"2\": {\"key_metadata\": [{\"key\": \"a\", \"key_type\": 2}], "
	"\"value_metadata\": {\"value_type\": \"scalar\", \"skip_deserialize\": true}}, "
	"\"3\": {\"key_metadata\": [{\"key\": \"b\", \"key_type\": 2}], "
	"\"value_metadata\": {\"value_type\": \"jax.Array\", \"skip_deserialize\": false}}, "
	"\"4\": {\"key_metadata\": [{\"key\": \"e\", \"key_type\": 2}], "
	"\"value_metadata\": {\"value_type\": \"List\", \"skip_deserialize\": true}}}}";

static void check(const char *bytes, size_t n, const char *want)
{
	auto_of(tree) struct tree *tree = NULL;
	auto_buf text = { 0 };
	char *copy = malloc(n);
	uint32_t leaves = 0;

	memcpy(copy, bytes, n);
	assert_int_equal(tree_parse_metadata(span_str(metadata), "x", &tree), 0);
	assert_int_equal(tree_merge_aggregate(tree, span_of(copy, n), "x"), 0);
	tree_text(&text, tree);
	assert_string_equal(strchr(buf_str(&text), '\n') + 1, want);
	for (uint32_t i = 0; i < tree->n_nodes; i++)
		leaves += tree->nodes[i]->kind == TREE_LEAF &&
			  tree->nodes[i]->value != TREE_VALUE_NONE;
	assert_int_equal(tree->n_leaves, leaves);
	free(copy);
}

#define CHECK(bytes, want) check(bytes, sizeof(bytes) - 1, want)

static void values_and_placeholders(void **state)
{
	CHECK("\x84\xa1l\x91\xa1x\xa1"
	      "a\x07\xa1"
	      "b\xafPLACEHOLDER://b\xa1"
	      "e\xafPLACEHOLDER://e",
	      ". dict\n  \"l\" list\n"
	      "    0 leaf aggregate \"np.ndarray\" param \"l.0\": string \"x\"\n"
	      "  \"a\" leaf aggregate \"scalar\" param \"a\": int 7\n"
	      "  \"b\" leaf stored \"jax.Array\" param \"b\"\n"
	      "  \"e\" list\n");
}

static void maps_stand_for_sequences(void **state)
{
	CHECK("\x82\xa1l\x81\xa1"
	      "0\x05\xa1"
	      "a\x07",
	      ". dict\n  \"l\" list\n"
	      "    0 leaf aggregate \"np.ndarray\" param \"l.0\": int 5\n"
	      "  \"a\" leaf aggregate \"scalar\" param \"a\": int 7\n"
	      "  \"b\" leaf stored \"jax.Array\" param \"b\"\n"
	      "  \"e\" list\n");
}

static void a_value_in_the_file_overrides_a_stored_one(void **state)
{
	CHECK("\x83\xa1"
	      "a\xafPLACEHOLDER://a\xa1"
	      "b\xc3\xa1l\x91\xc0",
	      ". dict\n  \"l\" list\n"
	      "    0 leaf none \"None\" param \"l.0\"\n"
	      "  \"a\" leaf stored \"scalar\" param \"a\"\n"
	      "  \"b\" leaf aggregate \"jax.Array\" param \"b\": true\n"
	      "  \"e\" list\n");
}

static void missing_values_stay_missing(void **state)
{
	static const char none[] = ". dict\n  \"l\" list\n"
				   "    0 leaf aggregate \"np.ndarray\" param \"l.0\"\n"
				   "  \"a\" leaf aggregate \"scalar\" param \"a\"\n"
				   "  \"b\" leaf stored \"jax.Array\" param \"b\"\n"
				   "  \"e\" list\n";

	CHECK("\x80", none);
	CHECK("\x05", none);
	CHECK("\x82\xa1"
	      "a\x80\xa1l\x05",
	      none);
}

static void arrays_outlive_the_other_tree(void **state)
{
	CHECK("\x81\xa1"
	      "a\xc7\x10\x01\x93\x92\x02\x01\xa5int16\xc4\x04\x01\x02\x03\x04",
	      ". dict\n  \"l\" list\n"
	      "    0 leaf aggregate \"np.ndarray\" param \"l.0\"\n"
	      "  \"a\" leaf aggregate \"scalar\" param \"a\": array int16 [2,1] item 2 sha256 "
	      "9f64a747e1b97f131fabb6b447296c9b\n"
	      "  \"b\" leaf stored \"jax.Array\" param \"b\"\n"
	      "  \"e\" list\n");
}

static void a_broken_file_changes_nothing(void **state)
{
	auto_of(tree) struct tree *tree = NULL;
	auto_buf before = { 0 }, after = { 0 };

	assert_int_equal(tree_parse_metadata(span_str(metadata), "x", &tree), 0);
	tree_text(&before, tree);
	assert_int_equal(tree_merge_aggregate(tree,
					      span_str("\x82\xa1"
						       "a\x07\xa1"),
					      "x"),
			 -EUCLEAN);
	tree_text(&after, tree);
	assert_string_equal(buf_str(&before), buf_str(&after));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(values_and_placeholders),
		cmocka_unit_test(maps_stand_for_sequences),
		cmocka_unit_test(a_value_in_the_file_overrides_a_stored_one),
		cmocka_unit_test(missing_values_stay_missing),
		cmocka_unit_test(arrays_outlive_the_other_tree),
		cmocka_unit_test(a_broken_file_changes_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
