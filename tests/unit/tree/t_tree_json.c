/* SPDX-License-Identifier: Apache-2.0 */
/*
 * t_tree_json.c - `_METADATA`: each rule of how entries form a tree, refusals, and damage at every
 * byte.
 */
#include "tests/unit/lib/unit.h"

#include <string.h>

#include "core/base/cache.h"
#include "core/base/meter.h"
#include "core/tree/tree.h"

/* Shorthand for entries: K(a) a mapping key, I(0) a position, V(type) a leaf, E(type) empty. */
#define K(k) "{\"key\": \"" #k "\", \"key_type\": 2}"
#define I(i) "{\"key\": \"" #i "\", \"key_type\": 1}"
#define V(t) "{\"value_type\": \"" #t "\", \"skip_deserialize\": false}"
#define E(t) "{\"value_type\": \"" #t "\", \"skip_deserialize\": true}"
#define ENTRY(name, path, value) \
	"\"" name "\": {\"key_metadata\": [" path "], \"value_metadata\": " value "}"
#define DOC(entries) "{\"tree_metadata\": {" entries "}}"

static const char full[] =
	"{\"tree_metadata\": {"
	"\"('empty',)\": {\"key_metadata\": [{\"key\": \"empty\", \"key_type\": 2}], "
	"\"value_metadata\": {\"value_type\": \"Dict\", \"skip_deserialize\": true}}, "
	"\"('layers', '0')\": {\"key_metadata\": [{\"key\": \"layers\", \"key_type\": 2}, "
	"{\"key\": \"0\", \"key_type\": 1}], "
	"\"value_metadata\": {\"value_type\": \"np.ndarray\", \"skip_deserialize\": false}}, "
	"\"('layers', '1')\": {\"key_metadata\": [{\"key\": \"layers\", \"key_type\": 2}, "
	"{\"key\": \"1\", \"key_type\": 1}], "
	"\"value_metadata\": {\"value_type\": \"scalar\", \"skip_deserialize\": false}}, "
	"\"('nothing',)\": {\"key_metadata\": [{\"key\": \"nothing\", \"key_type\": 2}], "
	"\"value_metadata\": {\"value_type\": \"None\", \"skip_deserialize\": true}}, "
	"\"('w',)\": {\"key_metadata\": [{\"key\": \"w\", \"key_type\": 2}], "
	"\"value_metadata\": {\"value_type\": \"jax.Array\", \"skip_deserialize\": false, "
	"\"write_shape\": [64, 0]}}}, "
	"\"use_ocdbt\": true, \"use_zarr3\": false, "
	"\"store_array_data_equal_to_fill_value\": true, \"custom_metadata\": {\"a\": [1, 2.5]}}";

static int parse(const char *text, struct tree **ret)
{
	return tree_parse_metadata(span_str(text), "'_METADATA'", ret);
}

static void the_whole_document(void **state)
{
	auto_of(tree) struct tree *tree = NULL;
	auto_buf text = { 0 }, again = { 0 };

	assert_int_equal(parse(full, &tree), 0);
	tree_text(&text, tree);
	assert_string_equal(buf_str(&text),
			    "use_ocdbt true use_zarr3 false store_fill_value true rich false "
			    "custom_metadata {\"a\": [1, 2.5]}\n"
			    ". dict\n"
			    "  \"empty\" dict\n"
			    "  \"layers\" list\n"
			    "    0 leaf stored \"np.ndarray\" param \"layers.0\"\n"
			    "    1 leaf stored \"scalar\" param \"layers.1\"\n"
			    "  \"nothing\" leaf none \"None\" param \"nothing\"\n"
			    "  \"w\" leaf stored \"jax.Array\" param \"w\" write_shape [64,0]\n");
	assert_int_equal(tree->n_leaves, 3);
	assert_true(tree->has_metadata);
	assert_int_equal(tree_print_metadata(tree, false, &again), 0);
	assert_string_equal(buf_str(&again), full);
}

struct example {
	const char *doc, *want; /* lines after the first */
};

static void check(const struct example *e)
{
	auto_of(tree) struct tree *tree = NULL;
	auto_buf text = { 0 };

	if (parse(e->doc, &tree) < 0)
		fail_msg("'%s': %s", e->doc, unit_last_note());
	tree_text(&text, tree);
	assert_string_equal(strchr(buf_str(&text), '\n') + 1, e->want);
}

/* Documents and their trees. */
static const struct example examples[] = {
	/* A bare leaf; a whole tree that is empty. */
	{ DOC(ENTRY("()", "", V(scalar))), ". leaf stored \"scalar\" param \"\"\n" },
	{ DOC(ENTRY("()", "", E(List))), ". list\n" },
	/* Names are labels. */
	{ DOC(ENTRY("x", K(a), V(s)) ", " ENTRY("x", K(b), V(s))),
	  ". dict\n  \"a\" leaf stored \"s\" param \"a\"\n  \"b\" leaf stored \"s\" param "
	  "\"b\"\n" },
	/* Keys keep the order of the file; positions are sorted. */
	{ DOC(ENTRY("1", K(b), V(s)) ", " ENTRY("2", K(a) "," I(1),
						V(t)) ", " ENTRY("3", K(a) "," I(0), V(u))),
	  ". dict\n  \"b\" leaf stored \"s\" param \"b\"\n  \"a\" list\n"
	  "    0 leaf stored \"u\" param \"a.0\"\n    1 leaf stored \"t\" param "
	  "\"a.1\"\n" },
	{ DOC(ENTRY("1", I(01), V(s)) ", " ENTRY("2", I(000), V(t))),
	  ". list\n  0 leaf stored \"t\" param \"0\"\n  1 leaf stored \"s\" param "
	  "\"1\"\n" },
	/* Of positions and names under one parent, positions are names, in any order. */
	{ DOC(ENTRY("1", K(a) "," I(0), V(s)) ", " ENTRY("2", K(a) "," K(b), V(t)) ", " ENTRY(
		  "3", K(a) "," I(7), V(u))),
	  ". dict\n  \"a\" dict\n    \"0\" leaf stored \"s\" param \"a.0\"\n"
	  "    \"b\" leaf stored \"t\" param \"a.b\"\n    \"7\" leaf stored \"u\" param "
	  "\"a.7\"\n" },
	{ DOC(ENTRY("1", K(b), V(s)) ", " ENTRY("2", I(0), V(t))),
	  ". dict\n  \"b\" leaf stored \"s\" param \"b\"\n  \"0\" leaf stored \"t\" param "
	  "\"0\"\n" },
	/* A path that is a prefix of another is dropped, whether it comes before or after it. */
	{ DOC(ENTRY("1", K(a), E(Dict)) ", " ENTRY("2", K(a) "," K(b), V(s))),
	  ". dict\n  \"a\" dict\n    \"b\" leaf stored \"s\" param \"a.b\"\n" },
	{ DOC(ENTRY("1", K(a) "," I(0), V(s)) ", " ENTRY("2", K(a), V(s)) ", " ENTRY("3", "",
										     E(None))),
	  ". dict\n  \"a\" list\n    0 leaf stored \"s\" param \"a.0\"\n" },
	{ DOC(ENTRY("1", "",
		    V(s)) ", " ENTRY("2", K(a),
				     "{\"value_type\": \"j\", \"skip_deserialize\": false, "
				     "\"write_shape\": [1]}") ", " ENTRY("3", K(a) "," K(b), V(t))),
	  ". dict\n  \"a\" dict\n    \"b\" leaf stored \"t\" param \"a.b\"\n" },
	/* The same path twice: the last wins, in a sequence the first. */
	{ DOC(ENTRY("1", K(a), V(s)) ", " ENTRY("2", K(b), V(u)) ", " ENTRY("3", K(a), V(t))),
	  ". dict\n  \"a\" leaf stored \"t\" param \"a\"\n  \"b\" leaf stored \"u\" param "
	  "\"b\"\n" },
	{ DOC(ENTRY("1", I(0), V(s)) ", " ENTRY("2", I(0), V(t))),
	  ". list\n  0 leaf stored \"s\" param \"0\"\n" },
	/* Two parameters with the same name are both there. */
	{ DOC(ENTRY("1", K(a.b), V(s)) ", " ENTRY("2", K(a) "," K(b), V(t))),
	  ". dict\n  \"a.b\" leaf stored \"s\" param \"a.b\"\n  \"a\" dict\n"
	  "    \"b\" leaf stored \"t\" param \"a.b\"\n" },
	/* value_type and skip_deserialize. */
	{ DOC(ENTRY("1", K(d), E(Dict)) ", " ENTRY("2", K(l), E(List)) ", " ENTRY("3", K(t), E(Tuple)) ", " ENTRY("4", K(n), E(None)) ", " ENTRY(
		  "5", K(e),
		  E(NamedTuple)) ", " ENTRY("6", K(p),
					    V(placeholder)) ", " ENTRY("7", K(a),
								       E(np.ndarray)) ", " ENTRY("8",
												 K(x),
												 V(Dict)) ", " ENTRY("9",
														     K(u),
														     V(MyState))),
	  ". dict\n  \"d\" dict\n  \"l\" list\n  \"t\" tuple\n"
	  "  \"n\" leaf none \"None\" param \"n\"\n"
	  "  \"e\" leaf none \"NamedTuple\" param \"e\"\n"
	  "  \"p\" leaf placeholder \"placeholder\" param \"p\"\n"
	  "  \"a\" leaf aggregate \"np.ndarray\" param \"a\"\n"
	  "  \"x\" leaf stored \"Dict\" param \"x\"\n"
	  "  \"u\" leaf stored \"MyState\" param \"u\"\n" },
	/* Spellings of other writers: numbers as keys, other orders, unknown members, NaN. */
	{ "{\"z\": NaN, \"tree_metadata\": {\"a\": {\"value_metadata\": {\"x\": [], "
	  "\"skip_deserialize\": false, "
	  "\"value_type\": \"s\"}, \"y\": 1, \"key_metadata\": [{\"key_type\": 1.0, "
	  "\"key\": 0, \"q\": {}}]}}}",
	  ". list\n  0 leaf stored \"s\" param \"0\"\n" },
	{ DOC("\"a\": {\"key_metadata\": [{\"key\": 3, \"key_type\": 2}], "
	      "\"value_metadata\": " V(s) "}"),
	  ". dict\n  \"3\" leaf stored \"s\" param \"3\"\n" },
	{ DOC(ENTRY("1", "{\"key\": \"\\u0000\\u00e9.\\n\", \"key_type\": 2}", V(s))),
	  ". dict\n  \"\\u0000\\u00e9.\\n\" leaf stored \"s\" param "
	  "\"\\u0000\\u00e9.\\n\"\n" },
	/* Of two members the last wins. */
	{ "{\"tree_metadata\": {" ENTRY("1", K(a), V(s)) "}, \"tree_metadata\": {" ENTRY("1", K(b),
											 V(s)) "}}",
	  ". dict\n  \"b\" leaf stored \"s\" param \"b\"\n" },
};

static void entries_make_the_tree(void **state)
{
	for (size_t i = 0; i < ARRAY_LEN(examples); i++)
		check(&examples[i]);
}

static void flags_have_defaults(void **state)
{
	static const struct {
		const char *members, *want;
	} cases[] = {
		{ "", "use_ocdbt unknown use_zarr3 false store_fill_value false rich false "
		      "custom_metadata null\n" },
		{ ", \"use_ocdbt\": null, \"use_zarr3\": null, \"custom_metadata\": null",
		  "use_ocdbt unknown use_zarr3 false store_fill_value false rich false "
		  "custom_metadata null\n" },
		{ ", \"use_ocdbt\": false, \"use_zarr3\": true, \"custom_metadata\": \"x\"",
		  "use_ocdbt false use_zarr3 true store_fill_value false rich false "
		  "custom_metadata \"x\"\n" },
		{ ", \"use_zarr3\": true, \"use_zarr3\": null, \"custom_metadata\": 1, "
		  "\"custom_metadata\": {\"k\":NaN}",
		  "use_ocdbt unknown use_zarr3 false store_fill_value false rich false "
		  "custom_metadata {\"k\": NaN}\n" },
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		auto_of(tree) struct tree *tree = NULL;
		auto_buf doc = { 0 }, text = { 0 };

		buf_addf(&doc, "{\"tree_metadata\": {%s}%s}", ENTRY("()", "", V(s)),
			 cases[i].members);
		assert_int_equal(parse(buf_str(&doc), &tree), 0);
		tree_text(&text, tree);
		text.n -= strlen(". leaf stored \"s\" param \"\"\n");
		assert_string_equal(buf_str(&text), cases[i].want);
	}
}

static void faults_of_the_format_are_named(void **state)
{
	static const struct {
		const char *doc, *want;
	} cases[] = {
		{ "", "'_METADATA': line 1, column 1: the document is truncated" },
		{ "[]", "not an object" },
		{ "{}", "tree_metadata is missing" },
		{ DOC(""), "tree_metadata has no entries" },
		{ "{\"tree_metadata\": []}", "not an object" },
		{ DOC(ENTRY("()", "", V(s))) " x", "something follows the document" },
		{ DOC(ENTRY("()", "", V(s))) "{", "something follows the document" },
		{ DOC(ENTRY("1", I(0), V(s)) ", " ENTRY("2", I(2), V(s))),
		  "a sequence of 2 has position '2' where '1' should be" },
		{ DOC(ENTRY("1", I(1), V(s))), "a sequence of 1 has position '1' where '0' should "
					       "be" },
		{ DOC(ENTRY("1", I(-1), V(s))), "a position in a sequence is not a number" },
		{ DOC(ENTRY("1", I(), V(s))), "a position in a sequence is empty" },
		{ DOC(ENTRY("1", I(1x), V(s))), "a position in a sequence is not a number" },
		{ DOC(ENTRY("1", "{\"key\": \"a\", \"key_type\": 3}", V(s))),
		  "key_type is neither 1 nor 2" },
		{ DOC(ENTRY("1", "{\"key\": \"a\", \"key_type\": 0}", V(s))),
		  "key_type is neither 1 nor 2" },
		{ DOC(ENTRY("1", "{\"key\": \"a\", \"key_type\": \"2\"}", V(s))), "not a number" },
		{ DOC(ENTRY("1", "{\"key\": \"a\"}", V(s))), "no key or no key_type" },
		{ DOC(ENTRY("1", "{\"key_type\": 2}", V(s))), "no key or no key_type" },
		{ DOC(ENTRY("1", "{\"key\": null, \"key_type\": 2}", V(s))), "not a string" },
		{ DOC(ENTRY("1", "{\"key\": 1.5, \"key_type\": 2}", V(s))), "not an integer" },
		{ DOC(ENTRY("1", "\"a\"", V(s))), "entry '1': '_METADATA'" },
		{ DOC("\"1\": {\"value_metadata\": " V(s) "}"), "key_metadata is missing" },
		{ DOC("\"1\": {\"key_metadata\": []}"), "value_type is missing" },
		{ DOC(ENTRY("1", K(a), "{\"value_type\": \"s\"}")), "skip_deserialize is missing" },
		{ DOC(ENTRY("1", K(a), "{\"skip_deserialize\": true}")), "value_type is missing" },
		{ DOC(ENTRY("1", K(a), "{\"value_type\": \"\", \"skip_deserialize\": true}")),
		  "value_type is empty" },
		{ DOC(ENTRY("1", K(a), "{\"value_type\": 1, \"skip_deserialize\": true}")),
		  "not a string" },
		{ DOC(ENTRY("1", K(a), "{\"value_type\": \"s\", \"skip_deserialize\": 0}")),
		  "not true or false" },
		{ DOC(ENTRY("1", K(a),
			    "{\"value_type\": \"s\", \"skip_deserialize\": true, "
			    "\"write_shape\": null}")),
		  "not an array" },
		{ DOC(ENTRY("1", K(a),
			    "{\"value_type\": \"s\", \"skip_deserialize\": true, "
			    "\"write_shape\": [-1]}")),
		  "a shape has a negative axis" },
		{ "{\"use_zarr3\": 1, \"tree_metadata\": {" ENTRY("()", "", V(s)) "}}",
		  "not true or false" },
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct tree *tree = (struct tree *)1;

		assert_int_equal(parse(cases[i].doc, &tree), -EUCLEAN);
		assert_ptr_equal(tree, 1);
		if (!strstr(err_text(-EUCLEAN), cases[i].want))
			fail_msg("'%s' gave '%s'", cases[i].doc, err_text(-EUCLEAN));
	}
}

static void limits_are_enforced(void **state)
{
	for (int depth = LIMIT_TREE_DEPTH; depth <= LIMIT_TREE_DEPTH + 1; depth++) {
		auto_of(tree) struct tree *tree = NULL;
		auto_buf doc = { 0 };

		buf_add_str(&doc, "{\"tree_metadata\": {\"x\": {\"key_metadata\": [");
		for (int i = 0; i < depth; i++)
			buf_addf(&doc, "%s{\"key\": \"k\", \"key_type\": 2}", i ? ", " : "");
		buf_add_str(&doc, "], \"value_metadata\": " V(s) "}}}");
		assert_int_equal(tree_parse_metadata(buf_span(&doc), "x", &tree),
				 depth > LIMIT_TREE_DEPTH ? -EFBIG : 0);
	}
	for (int rank = LIMIT_RANK; rank <= LIMIT_RANK + 1; rank++) {
		auto_of(tree) struct tree *tree = NULL;
		auto_buf doc = { 0 };

		buf_add_str(&doc, "{\"tree_metadata\": {\"x\": {\"key_metadata\": [], "
				  "\"value_metadata\": "
				  "{\"value_type\": \"s\", \"skip_deserialize\": false, "
				  "\"write_shape\": [");
		for (int i = 0; i < rank; i++)
			buf_addf(&doc, "%s1", i ? ", " : "");
		buf_add_str(&doc, "]}}}}");
		assert_int_equal(tree_parse_metadata(buf_span(&doc), "x", &tree),
				 rank > LIMIT_RANK ? -EFBIG : 0);
	}
}

/* A tree that was parsed prints to a document that parses to the same tree. */
static void check_again(const struct tree *tree)
{
	auto_of(tree) struct tree *again = NULL;
	auto_buf a = { 0 }, b = { 0 }, printed = { 0 };

	tree_text(&a, tree);
	assert_int_equal(tree_print_metadata(tree, tree->rich, &printed), 0);
	if (tree_parse_metadata(buf_span(&printed), "again", &again) < 0)
		fail_msg("'%.*s': %s", SPAN_ARG(printed), unit_last_note());
	tree_text(&b, again);
	assert_string_equal(buf_str(&a), buf_str(&b));
}

static void damage_is_refused_or_read(void **state)
{
	static const uint8_t bytes[] = "\0 \"{}[],:-1e\\/nt\xff";
	size_t n = sizeof(full) - 1;
	char text[sizeof(full)];

	for (size_t at = 0; at < n; at++) {
		struct tree *tree = NULL;

		assert_int_equal(tree_parse_metadata(span_of(full, at), "x", &tree), -EUCLEAN);
		assert_null(tree);
		for (size_t k = 0; k < sizeof(bytes) - 1; k++) {
			auto_of(tree) struct tree *t = NULL;

			memcpy(text, full, n);
			text[at] = (char)bytes[k];
			if (tree_parse_metadata(span_of(text, n), "x", &t) < 0)
				assert_null(t);
			else
				check_again(t);
		}
	}
}

static void printing_refuses_unreadable_trees(void **state)
{
	auto_of(tree) struct tree *tree = NULL;
	auto_buf out = { 0 };
	struct span bad = span_str("a\xff");

	buf_add_str(&out, "kept");
	assert_int_equal(tree_from_names(&bad, NULL, 1, &tree), 0);
	assert_int_equal(tree_print_metadata(tree, false, &out), -EINVAL);
	tree->root->children[0]->key = span_str("a");
	/* A leaf without value_type has no entry either. */
	assert_int_equal(tree_print_metadata(tree, false, &out), -EINVAL);
	assert_int_equal(out.n, 4);
}

static void printing_by_hand(void **state)
{
	auto_of(tree) struct tree *tree = NULL;
	struct tree_node *root, *n;
	auto_buf plain = { 0 }, rich = { 0 };

	assert_int_equal(tree_new(&tree), 0);
	assert_int_equal(tree_add(tree, NULL, span_str(""), false, TREE_DICT, &root), 0);
	assert_int_equal(tree_add(tree, root, span_str("t"), false, TREE_TUPLE, &n), 0);
	assert_int_equal(tree_add(tree, n, span_str("0"), true, TREE_LEAF, &n), 0);
	n->value = TREE_VALUE_NONE;
	assert_int_equal(tree_add(tree, root, span_str("e"), false, TREE_NAMEDTUPLE, &n), 0);
	assert_int_equal(tree_add(tree, root, span_str("c"), false, TREE_CUSTOM, &n), 0);
	tree->has_use_ocdbt = true;
	assert_int_equal(tree_finish(tree), 0);
	assert_int_equal(tree_print_metadata(tree, false, &plain), 0);
	assert_string_equal(
		buf_str(&plain),
		"{\"tree_metadata\": {\"('t', '0')\": {\"key_metadata\": [{\"key\": \"t\", "
		"\"key_type\": 2}, "
		"{\"key\": \"0\", \"key_type\": 1}], \"value_metadata\": {\"value_type\": "
		"\"None\", "
		"\"skip_deserialize\": true}}, \"('e',)\": {\"key_metadata\": [{\"key\": \"e\", "
		"\"key_type\": 2}], "
		"\"value_metadata\": {\"value_type\": \"None\", \"skip_deserialize\": true}}, "
		"\"('c',)\": {\"key_metadata\": [{\"key\": \"c\", \"key_type\": 2}], "
		"\"value_metadata\": "
		"{\"value_type\": \"None\", \"skip_deserialize\": true}}}, \"use_ocdbt\": false, "
		"\"use_zarr3\": false, \"store_array_data_equal_to_fill_value\": false, "
		"\"custom_metadata\": null}");
	assert_int_equal(tree_print_metadata(tree, true, &rich), 0);
	assert_non_null(strstr(buf_str(&rich), "\"value_type\": \"NamedTuple\""));
	assert_non_null(strstr(buf_str(&rich),
			       "\"value_metadata_tree\": \"{\\\"t\\\": "
			       "{\\\"category\\\": "
			       "\\\"custom\\\", \\\"clazz\\\": \\\"tuple\\\", \\\"entries\\\": "
			       "[{"));
}

static void a_tree_is_charged(void **state)
{
	auto_of(tree) struct tree *tree = NULL;
	struct meter_stats before, after;
	struct cache *cache;

	assert_int_equal(cache_new(MiB, &cache), 0);
	meter_stats(&before);
	assert_int_equal(parse(full, &tree), 0);
	meter_stats(&after);
	assert_int_equal(after.used - before.used, tree->arena.total);
	tree_free(take(tree));
	meter_stats(&after);
	assert_int_equal(after.used, before.used);
	cache_free(cache);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_whole_document),
		cmocka_unit_test(entries_make_the_tree),
		cmocka_unit_test(flags_have_defaults),
		cmocka_unit_test(faults_of_the_format_are_named),
		cmocka_unit_test(limits_are_enforced),
		cmocka_unit_test(damage_is_refused_or_read),
		cmocka_unit_test(printing_refuses_unreadable_trees),
		cmocka_unit_test(printing_by_hand),
		cmocka_unit_test(a_tree_is_charged),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
