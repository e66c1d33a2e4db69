/* SPDX-License-Identifier: Apache-2.0 */
/*
 * t_tree_build.c - children by key among many, texts stored once, and trees from names alone.
 */
#include "tests/unit/lib/unit.h"

#include <string.h>

#include "core/tree/tree_build.h"

static void children_are_found_or_made(void **state)
{
	auto_of(tree) struct tree *tree = NULL;
	struct tree_build b = { 0 };
	struct tree_node *root, *first[2000], *n;
	char key[32];

	assert_int_equal(tree_new(&tree), 0);
	b.tree = tree;
	assert_int_equal(tree_attach(tree, NULL, span_str(""), false, &root), 0);
	for (int i = 0; i < 2000; i++) {
		snprintf(key, sizeof(key), "key%d", i % 1000);
		assert_int_equal(tree_build_child(&b, i < 1000 ? root : first[7], span_str(key),
						  false, &first[i]),
				 1);
	}
	for (int i = 1999; i >= 0; i--) {
		snprintf(key, sizeof(key), "key%d", i % 1000);
		assert_int_equal(tree_build_child(&b, i < 1000 ? root : first[7], span_str(key),
						  false, &n),
				 0);
		assert_ptr_equal(n, first[i]);
	}
	/* Each key is stored once. */
	assert_ptr_equal(first[3]->key.p, first[1003]->key.p);
	assert_int_equal(root->n_children, 1000);
	assert_int_equal(first[7]->n_children, 1000);
	tree_build_release(&b);
}

static void check(const char *const *names, size_t n, const char *want)
{
	auto_of(tree) struct tree *tree = NULL;
	auto_free struct span *spans = calloc(n, sizeof(*spans));
	auto_buf text = { 0 };

	for (size_t i = 0; i < n; i++)
		spans[i] = span_str(names[i]);
	assert_int_equal(tree_from_names(spans, NULL, n, &tree), 0);
	tree_text(&text, tree);
	/* The first line has the properties of the item; there are none here. */
	assert_string_equal(strchr(buf_str(&text), '\n') + 1, want);
}

/* Of paths, a dot is part of a key, and what is below an array is one key. */
static void paths_are_split_at_slashes(void **state)
{
	static const char *const names[] = { "step", "p/w", "p/b.c", "p/x%2Fy/q.0", "a", "a/b/c" };
	auto_of(tree) struct tree *tree = NULL;
	struct span spans[ARRAY_LEN(names)];
	auto_buf text = { 0 };

	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		spans[i] = span_str(names[i]);
	assert_int_equal(tree_from_hierarchy(spans, ARRAY_LEN(names), NULL, 0, &tree), 0);
	tree_text(&text, tree);
	assert_string_equal(strchr(buf_str(&text), '\n') + 1,
			    ". dict\n"
			    "  \"step\" leaf stored \"\" param \"step\"\n"
			    "  \"p\" dict\n"
			    "    \"w\" leaf stored \"\" param \"p/w\"\n"
			    "    \"b.c\" leaf stored \"\" param \"p/b.c\"\n"
			    "    \"x%2Fy\" dict\n"
			    "      \"q.0\" leaf stored \"\" param \"p/x%2Fy/q.0\"\n"
			    "  \"a\" leaf stored \"\" param \"a\"\n"
			    "  \"a/b\" dict\n"
			    "    \"c\" leaf stored \"\" param \"a/b/c\"\n");
}

static void names_are_split_at_dots(void **state)
{
	static const char *const names[] = { "params.b", "step", "params.a.0", "params.a.1",
					     "x/y.z" };

	check(names, ARRAY_LEN(names),
	      ". dict\n"
	      "  \"params\" dict\n"
	      "    \"b\" leaf stored \"\" param \"params.b\"\n"
	      "    \"a\" dict\n"
	      "      \"0\" leaf stored \"\" param \"params.a.0\"\n"
	      "      \"1\" leaf stored \"\" param \"params.a.1\"\n"
	      "  \"step\" leaf stored \"\" param \"step\"\n"
	      "  \"x/y\" dict\n"
	      "    \"z\" leaf stored \"\" param \"x/y.z\"\n");
}

static void a_name_that_continues_another_is_preserved(void **state)
{
	static const char *const names[] = { "a.b.c", "a", "a.b", "a.b.d.e", "q.r", "q.r.s" };

	check(names, ARRAY_LEN(names),
	      ". dict\n"
	      "  \"a.b.c\" leaf stored \"\" param \"a.b.c\"\n"
	      "  \"a\" leaf stored \"\" param \"a\"\n"
	      "  \"a.b\" leaf stored \"\" param \"a.b\"\n"
	      "  \"a.b.d\" dict\n"
	      "    \"e\" leaf stored \"\" param \"a.b.d.e\"\n"
	      "  \"q\" dict\n"
	      "    \"r\" leaf stored \"\" param \"q.r\"\n"
	      "    \"r.s\" leaf stored \"\" param \"q.r.s\"\n");
}

static void empty_names_and_parts(void **state)
{
	static const char *const bare[] = { "" }, *const both[] = { "", ".x", "y." },
				 *const dots[] = { "..", "." };

	check(bare, 1, ". leaf stored \"\" param \"\"\n");
	check(both, 3,
	      ". dict\n"
	      "  \"\" leaf stored \"\" param \"\"\n"
	      "  \".x\" leaf stored \"\" param \".x\"\n"
	      "  \"y\" dict\n"
	      "    \"\" leaf stored \"\" param \"y.\"\n");
	check(dots, 2,
	      ". dict\n"
	      "  \"\" dict\n"
	      "    \".\" leaf stored \"\" param \"..\"\n"
	      "    \"\" leaf stored \"\" param \".\"\n");
}

static void a_name_twice_is_one_leaf(void **state)
{
	static const char *const names[] = { "a.b", "a.b", "a.c", "a.b" };

	check(names, ARRAY_LEN(names),
	      ". dict\n"
	      "  \"a\" dict\n"
	      "    \"b\" leaf stored \"\" param \"a.b\"\n"
	      "    \"c\" leaf stored \"\" param \"a.c\"\n");
}

static void strings_are_recognized(void **state)
{
	auto_of(tree) struct tree *tree = NULL;
	const struct span names[] = { span_str("a"), span_str("b") };
	const bool strings[] = { false, true };

	assert_int_equal(tree_from_names(names, strings, 2, &tree), 0);
	assert_int_equal(tree->root->children[0]->value_type.n, 0);
	assert_true(span_eq(tree->root->children[1]->value_type, span_str("string")));
	assert_int_equal(tree_from_names(names, strings, 0, &tree), -EUCLEAN);
}

/* Many dots: nothing is lost, and the tree is not too deep. */
static void every_name_finds_a_place(void **state)
{
	char long_name[1001], same[1001];
	struct span names[402];
	auto_of(tree) struct tree *tree = NULL;

	for (int i = 0; i < 1000; i++)
		long_name[i] = i % 2 ? '.' : 'k';
	long_name[1000] = '\0';
	memset(same, '.', 1000);
	names[0] = span_of(long_name, 1000);
	names[1] = span_of(same, 1000);
	for (int i = 0; i < 400; i++)
		names[2 + i] = span_of(long_name, 2 * (size_t)i + 1);
	assert_int_equal(tree_from_names(names, NULL, ARRAY_LEN(names), &tree), 0);
	assert_int_equal(tree->n_leaves, ARRAY_LEN(names));
	for (uint32_t i = 0; i < tree->n_nodes; i++)
		for (size_t k = 0; k < ARRAY_LEN(names); k++)
			if (tree->nodes[i]->kind == TREE_LEAF &&
			    span_eq(tree->nodes[i]->param, names[k]))
				names[k].n = 0;
	for (size_t k = 0; k < ARRAY_LEN(names); k++)
		assert_int_equal(names[k].n, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(children_are_found_or_made),
		cmocka_unit_test(paths_are_split_at_slashes),
		cmocka_unit_test(names_are_split_at_dots),
		cmocka_unit_test(a_name_that_continues_another_is_preserved),
		cmocka_unit_test(empty_names_and_parts),
		cmocka_unit_test(a_name_twice_is_one_leaf),
		cmocka_unit_test(strings_are_recognized),
		cmocka_unit_test(every_name_finds_a_place),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
