/* SPDX-License-Identifier: Apache-2.0 */
/*
 * t_tree_rich.c - value_metadata_tree: the kinds that it adds, and that a tree ignores one that
 * does not match it.
 */
#include "tests/unit/lib/unit.h"

#include <string.h>

#include "core/tree/tree.h"

#define LEAF                                                                       \
	"{\"category\": \"custom\", \"clazz\": \"ValueMetadataEntry\", \"data\": " \
	"{\"value_type\": \"s\", \"skip_deserialize\": false}}"
#define TUPLE(entries) \
	"{\"category\": \"custom\", \"clazz\": \"tuple\", \"entries\": [" entries "]}"
#define NT(entries)                                                                                    \
	"{\"category\": \"namedtuple\", \"module\": \"m.x\", \"clazz\": \"C\", \"entries\": [" entries \
	"]}"
#define FIELD(k, v) "{\"key\": \"" k "\", \"value\": " v "}"

/* The kinds of n and s in {"n": {"a": s, "b": s}, "s": [s, s]} with this rich text. */
static const char *kinds(const char *rich, struct buf *out)
{
	static const char *const paths[][2] = {
		{ "n", "a" }, { "n", "b" }, { "s", "0" }, { "s", "1" }
	};
	auto_of(tree) struct tree *tree = NULL;
	auto_buf doc = { 0 };

	buf_add_str(&doc, "{\"tree_metadata\": {");
	for (int i = 0; i < 4; i++)
		buf_addf(&doc,
			 "%s\"%d\": {\"key_metadata\": [{\"key\": \"%s\", \"key_type\": 2}, "
			 "{\"key\": \"%s\", "
			 "\"key_type\": %d}], \"value_metadata\": {\"value_type\": \"s\", "
			 "\"skip_deserialize\": false}}",
			 i ? ", " : "", i, paths[i][0], paths[i][1], i < 2 ? 2 : 1);
	buf_add_str(&doc, "}, \"value_metadata_tree\": ");
	json_put_str(&doc, span_str(rich), JSON_PYTHON);
	buf_add_str(&doc, "}");
	if (tree_parse_metadata(buf_span(&doc), "x", &tree) < 0)
		fail_msg("'%s': %s", rich, unit_last_note());
	if (!tree->rich)
		buf_add_str(out, "plain ");
	for (unsigned i = 0; i < 2; i++) {
		const struct tree_node *n = tree->root->children[i];

		buf_addf(out, "%s%s", i ? " " : "", tree_kind_text(n->kind));
		if (n->type)
			buf_addf(out, " %.*s.%.*s", SPAN_ARG(n->type->module),
				 SPAN_ARG(n->type->clazz));
	}
	/* The printed text parses to the same kinds. */
	auto_buf printed = { 0 }, a = { 0 }, b = { 0 };
	auto_of(tree) struct tree *again = NULL;

	assert_int_equal(tree_print_metadata(tree, tree->rich, &printed), 0);
	assert_int_equal(tree_parse_metadata(buf_span(&printed), "x", &again), 0);
	tree_text(&a, tree);
	tree_text(&b, again);
	assert_string_equal(buf_str(&a), buf_str(&b));
	return buf_str(out);
}

static void kinds_are_added(void **state)
{
	/* clang-format off */
	static const struct {
		const char *rich, *want;
	} cases[] = {
		{ "{\"n\": {\"a\": " LEAF ", \"b\": " LEAF "}, \"s\": [" LEAF ", " LEAF "]}",
		  "dict list" },
		{ "{\"s\": " TUPLE(LEAF ", " LEAF) ", \"n\": " NT(FIELD("a", LEAF) ", " FIELD("b",
		  LEAF)) "}",
		  "namedtuple m.x.C tuple" },
		/* Fields in another order than in the file, members sorted by name. */
		{ "{\"n\": {\"category\": \"namedtuple\", \"clazz\": \"C\", \"entries\": ["
		  FIELD("b", LEAF) ", "
		  FIELD("a", LEAF) "], \"module\": \"\"}, \"s\": [" LEAF ", " LEAF "]}",
		  "namedtuple .C list" },
		/* Positions with names. */
		{ "{\"n\": {\"b\": " LEAF ", \"a\": " LEAF "}, \"s\": {\"0\": " LEAF ", \"1\": "
		  LEAF "}}", "dict custom" },
		/* Unknown members of nodes. */
		{ "{\"n\": {\"a\": " LEAF ", \"b\": "
		  LEAF "}, \"s\": {\"category\": \"custom\", \"x\": [{}], "
		  "\"clazz\": \"tuple\", \"entries\": ["
		  LEAF ", {\"category\": \"custom\", \"clazz\": "
		  "\"ValueMetadataEntry\", \"y\": null, \"data\": 1}]}}", "dict tuple" },
	};
	/* clang-format on */

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		auto_buf out = { 0 };

		assert_string_equal(kinds(cases[i].rich, &out), cases[i].want);
	}
}

static void a_tree_that_does_not_fit_is_ignored(void **state)
{
	/* clang-format off */
	static const char *const bad[] = {
		"", "7", "{}", "[]", LEAF, "{\"n\": " LEAF ", \"s\": " LEAF "}",
		/* A tuple was set before the failure. */
		"{\"s\": " TUPLE(LEAF ", " LEAF) "}",
		"{\"s\": " TUPLE(LEAF ", " LEAF) ", \"n\": {\"a\": " LEAF "}}",
		"{\"s\": " TUPLE(LEAF) ", \"n\": {\"a\": " LEAF ", \"b\": " LEAF "}}",
		"{\"s\": " TUPLE(LEAF ", " LEAF ", " LEAF) ", \"n\": {\"a\": " LEAF ", \"b\": "
		LEAF "}}",
		"{\"s\": " TUPLE(LEAF ", " LEAF) ", \"n\": {\"a\": " LEAF ", \"c\": " LEAF "}}",
		"{\"s\": " TUPLE(LEAF ", " LEAF) ", \"n\": {\"a\": " LEAF ", \"b\": 5}}",
		"{\"s\": " TUPLE(LEAF ", " LEAF) ", \"n\": [" LEAF ", " LEAF "]}",
		"{\"s\": " TUPLE(LEAF ", " LEAF) ", \"n\": " NT(FIELD("a", LEAF)) "}",
		"{\"s\": " TUPLE(LEAF ", " LEAF) ", \"n\": " NT(FIELD("a",
		LEAF) ", {\"key\": \"b\"}") "}",
		"{\"s\": " TUPLE(LEAF ", " LEAF) ", \"n\": " NT(FIELD("a", LEAF) ", " FIELD("z",
		LEAF)) "}",
		"{\"s\": " TUPLE(LEAF ", " LEAF) ", \"n\": " NT(FIELD("a", NT("")) ", " FIELD("b",
		LEAF)) "}",
		"{\"s\": " TUPLE(LEAF ", "
		LEAF) ", \"n\": {\"category\": \"namedtuple\", \"entries\": []}}",
		"{\"s\": " TUPLE(LEAF ", " LEAF) ", \"n\": {\"category\": \"other\"}}",
		"{\"s\": " TUPLE(LEAF ", "
		LEAF) ", \"n\": {\"category\": \"custom\", \"clazz\": \"set\"}}",
		"{\"s\": {\"category\": \"custom\", \"entries\": ["
		LEAF "], \"clazz\": \"tuple\"}, \"n\": {}}",
		"{\"n\": {\"a\": " LEAF ", \"b\": " LEAF "}, \"s\": [" LEAF ", " TUPLE("") "]}",
		"{\"n\": {\"a\": " LEAF ", \"b\": " LEAF "}, \"s\": [" LEAF ", " LEAF "]} x",
	};
	/* clang-format on */

	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		auto_buf out = { 0 };

		assert_string_equal(kinds(bad[i], &out), "plain dict list");
	}
}

static void bytes_that_are_not_text_are_ignored(void **state)
{
	auto_of(tree) struct tree *tree = NULL;

	assert_int_equal(
		tree_parse_metadata(
			span_str(
				"{\"value_metadata_tree\": null, \"tree_metadata\": {\"()\": {\"key_metadata\": "
				"[], "
				"\"value_metadata\": {\"value_type\": \"s\", \"skip_deserialize\": false}}}}"),
			"x", &tree),
		0);
	assert_false(tree->rich);
}

static void a_bare_leaf_can_be_rich(void **state)
{
	auto_of(tree) struct tree *tree = NULL;
	auto_buf doc = { 0 };

	buf_add_str(&doc, "{\"tree_metadata\": {\"()\": {\"key_metadata\": [], \"value_metadata\": "
			  "{\"value_type\": \"s\", \"skip_deserialize\": false}}}, "
			  "\"value_metadata_tree\": ");
	json_put_str(&doc, span_str(LEAF), JSON_PYTHON);
	buf_add_str(&doc, "}");
	assert_int_equal(tree_parse_metadata(buf_span(&doc), "x", &tree), 0);
	assert_true(tree->rich);
}

static void a_key_may_be_called_category(void **state)
{
	auto_of(tree) struct tree *tree = NULL;
	auto_buf doc = { 0 };

	buf_add_str(&doc,
		    "{\"tree_metadata\": {\"x\": {\"key_metadata\": [{\"key\": "
		    "\"category\", \"key_type\": 2}], "
		    "\"value_metadata\": {\"value_type\": \"s\", \"skip_deserialize\": false}}}, "
		    "\"value_metadata_tree\": ");
	json_put_str(&doc, span_str("{\"category\": " LEAF "}"), JSON_PYTHON);
	buf_add_str(&doc, "}");
	assert_int_equal(tree_parse_metadata(buf_span(&doc), "x", &tree), 0);
	assert_true(tree->rich);
	assert_int_equal(tree->root->kind, TREE_DICT);
}

static void truncated_texts_are_ignored(void **state)
{
	static const char rich[] = "{\"n\": " NT(
		FIELD("a", LEAF) ", " FIELD("b", LEAF)) ", \"s\": " TUPLE(LEAF ", " LEAF) "}";
	char part[sizeof(rich)];

	for (size_t n = 0; n < sizeof(rich) - 1; n++) {
		auto_buf out = { 0 };

		memcpy(part, rich, n);
		part[n] = '\0';
		assert_string_equal(kinds(part, &out), "plain dict list");
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(kinds_are_added),
		cmocka_unit_test(a_tree_that_does_not_fit_is_ignored),
		cmocka_unit_test(bytes_that_are_not_text_are_ignored),
		cmocka_unit_test(a_bare_leaf_can_be_rich),
		cmocka_unit_test(a_key_may_be_called_category),
		cmocka_unit_test(truncated_texts_are_ignored),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
