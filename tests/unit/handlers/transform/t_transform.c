/* SPDX-License-Identifier: Apache-2.0 */
/*
 * t_transform.c - rules: reading them, turning them around, and the trees that they make.
 */
#include "tests/unit/lib/unit.h"

#include <stdlib.h>
#include <unistd.h>

#include "handlers/transform/transform_impl.h"

/* A file of rules from text. */
static int open_text(const char *text, size_t n, struct transform **ret)
{
	char path[] = "/tmp/t_transform-XXXXXX";
	int fd = mkstemp(path), r;

	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, n), (ssize_t)n);
	close(fd);
	r = transform_open(path, ret);
	unlink(path);
	return r;
}

static void rules_are_turned_around_where_that_is_clear(void **state)
{
	static const struct {
		const char *key, *original, *old, *new; /* new NULL: none */
	} cases[] = {
		{ "a", "b", "b", "a" },
		{ "a", "b", "c", NULL },
		{ "a/(.*)", "b/\\\\1", "b/x/y", "a/x/y" },
		{ "a/(.*)", "b/\\\\1", "c/x", NULL },
		{ "(\\\\w+)_(\\\\d+)", "l\\\\2/\\\\1", "l7/w", "w_7" },
		{ "(\\\\w+)_(\\\\d+)", "l\\\\2/\\\\1", "lx/w", NULL },
		{ "(?P<n>\\\\d+)/x", "y/\\\\g<n>", "y/12", "12/x" },
		{ "(a|b)/w", "\\\\1/\\\\1", "a/a", "a/w" },
		{ "(a|b)/w", "\\\\1/\\\\1", "a/b", NULL },
		{ "((a)b)/w", "\\\\1", "ab", "ab/w" },
		{ "a\\\\.b", "c", "c", "a.b" },
		{ "a(.*)", "b.c\\\\1", "bxc1", NULL },
		{ "a(.*)", "b.c\\\\1", "b.c1", "a1" },
		{ "a.*", "b", "b", NULL },
		{ "a(.*)", "b", "b", NULL },
		{ "(.*)(?:x)", "\\\\1", "y", NULL },
		{ "(a)?", "\\\\1", "a", NULL },
		{ "(?<=>a)(b)", "\\\\1", "b", NULL },
		{ "(\\\\Q()()\\\\E)(x)", "\\\\1\\\\2", "()()x", NULL },
		{ "(\\\\Q()()()()()()()()()()()()()()()()()()()()()()()()()()()()()()()\\\\E)(x)",
		  "\\\\2", "x", NULL },
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		auto_of(transform) struct transform *t = NULL;
		auto_buf text = { 0 }, key = { 0 };
		int r;

		assert_int_equal(
			buf_addf(&text,
				 "{\"rules\": [{\"key\": \"%s\", \"original_key\": \"%s\"}]}",
				 cases[i].key, cases[i].original),
			0);
		r = open_text((char *)text.p, text.n, &t);
		if (r < 0)
			fail_msg("case %zu: %s", i, err_text(r));
		r = rule_new_key(&t->rule[0], span_str(cases[i].old), &key);
		if (r != (cases[i].new != NULL) ||
		    (r && !span_eq(buf_span(&key), span_str(cases[i].new))))
			fail_msg("case %zu: %d '%.*s'", i, r, SPAN_ARG(buf_span(&key)));
	}
}

static const char whole[] =
	"{\"default_to_original\": false, \"item\": \"state\", \"rules\": [{\"key\": \"a/(.*)\", \"original_key\": \"b/\\\\1\"},"
	" {\"key\": \"c\", \"original_key\": [\"d\", \"e\"], \"value_fn\": \"concat(0)\"},"
	" {\"key\": \"g{i}\", \"original_key\": \"h{i}\", \"for\": {\"i\": 2}, \"value_fn\": [\"unstack({i}, 2)\", \"add(1)\"]},"
	" {\"key\": \"f\", \"use_fallback\": [1]}]}";

/* A group that takes part is not NULL, also where the subject is an empty span without memory. */
static void an_empty_subject_is_matched_by_empty_groups(void **state)
{
	static const struct span none;
	auto_of(regex) struct regex *re = NULL;
	struct regex_match m;

	assert_int_equal(regex_new(span_str("(.*)(x)?"), "pattern", &re), 0);
	assert_int_equal(regex_match(re, none, &m), 1);
	assert_int_equal(m.n, 3);
	assert_non_null(m.group[0].p);
	assert_non_null(m.group[1].p);
	assert_int_equal(m.group[1].n, 0);
	assert_null(m.group[2].p);
	(void)state;
}

static void files_that_are_cut_or_changed_are_refused_or_mean_something(void **state)
{
	struct transform *t = NULL;

	for (size_t n = 0; n < sizeof(whole) - 1; n++) {
		t = NULL;
		assert_true(open_text(whole, n, &t) < 0);
		assert_null(t);
	}
	for (size_t i = 0; i < sizeof(whole) - 1; i++) {
		char copy[sizeof(whole)];

		memcpy(copy, whole, sizeof(whole));
		copy[i] ^= 1 << (i % 7);
		t = NULL;
		if (open_text(copy, sizeof(whole) - 1, &t) >= 0)
			transform_free(t);
		else
			assert_null(t);
	}
}

/* One rule for each pair of numbers, the last name first; other braces stay. */
static void a_rule_is_written_out_for_each_index(void **state)
{
	static const char text[] =
		"{\"rules\": [{\"key\": \"x\"}, {\"key\": \"l{i}/{e}/[a-c]{1}\", \"original_key\": \"w{e}\","
		" \"for\": {\"i\": 2, \"e\": 3}, \"value_fn\": [\"unstack({i}, 2)\", \"pad({e})\"]}]}";
	auto_of(transform) struct transform *t = NULL;

	assert_int_equal(open_text(text, sizeof(text) - 1, &t), 0);
	assert_int_equal(t->n_rules, 7);
	assert_string_equal(t->rule[0].what, "rule 1");
	for (size_t i = 0; i < 6; i++) {
		const struct rule *r = &t->rule[1 + i];
		auto_buf want = { 0 };

		assert_int_equal(buf_addf(&want, "rule 2 (i=%zu, e=%zu)", i / 3, i % 3), 0);
		assert_string_equal(r->what, buf_str(&want));
		want.n = 0;
		assert_int_equal(buf_addf(&want, "l%zu/%zu/[a-c]{1}", i / 3, i % 3), 0);
		assert_true(span_eq(r->key_text, buf_span(&want)));
		want.n = 0;
		assert_int_equal(buf_addf(&want, "w%zu", i % 3), 0);
		assert_true(span_eq(r->original[0], buf_span(&want)));
		assert_int_equal(r->n_steps, 2);
		want.n = 0;
		assert_int_equal(buf_addf(&want, "%zu, 2", i / 3), 0);
		assert_true(r->step[0].fn == VALUE_FN_UNSTACK &&
			    span_eq(r->step[0].args, buf_span(&want)));
		assert_true(r->step[1].fn == VALUE_FN_PAD);
	}
}

static int make(const char *rules, struct tree **tree)
{
	auto_of(transform) struct transform *t = NULL;
	int r = open_text(rules, strlen(rules), &t);

	return r < 0 ? r : transform_tree(t, tree);
}

static void a_leaf_cannot_hold_another(void **state)
{
	const struct span names[] = { span_str("a"), span_str("b.c"), span_str("b.d") };
	auto_of(tree) struct tree *tree = NULL;
	struct tree *in;

	assert_int_equal(tree_from_names(names, NULL, 3, &tree), 0);
	in = tree;
	assert_int_equal(make("{\"rules\": [{\"key\": \"a/x\", \"original_key\": \"b/c\"}]}",
			      &tree),
			 -EINVAL);
	assert_int_equal(
		make("{\"rules\": [{\"key\": \"z\", \"original_key\": \"none\"}], \"target\": [\"z\"]}",
		     &tree),
		-EINVAL);
	assert_ptr_equal(tree, in);
	assert_int_equal(make("{\"rules\": [], \"target\": [\"a\", \"q\"]}", &tree), 0);
	assert_ptr_equal(tree->made_of, in);
	assert_int_equal(tree->n_nodes, 3);
	assert_int_equal(tree->root->children[1]->value, TREE_VALUE_PLACEHOLDER);
}

static void ids_of_both_trees_differ(void **state)
{
	const struct span names[] = { span_str("a"), span_str("b.c") };
	auto_of(tree) struct tree *tree = NULL;

	assert_int_equal(tree_from_names(names, NULL, 2, &tree), 0);
	assert_int_equal(make("{\"rules\": [{\"key\": \"x/(.*)\", \"original_key\": \"b/\\\\1\"}]}",
			      &tree),
			 0);
	for (uint32_t i = 0; i < tree->made_of->n_nodes; i++)
		assert_true(tree->made_of->nodes[i]->id >= tree->n_nodes);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(rules_are_turned_around_where_that_is_clear),
		cmocka_unit_test(an_empty_subject_is_matched_by_empty_groups),
		cmocka_unit_test(files_that_are_cut_or_changed_are_refused_or_mean_something),
		cmocka_unit_test(a_rule_is_written_out_for_each_index),
		cmocka_unit_test(a_leaf_cannot_hold_another),
		cmocka_unit_test(ids_of_both_trees_differ),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
