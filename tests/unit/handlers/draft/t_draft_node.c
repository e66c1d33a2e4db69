/* SPDX-License-Identifier: Apache-2.0 */
/*
 * t_draft_node.c - names of a draft: who holds a node may read its name, whatever becomes of it;
 * how deep they go.
 */
#include "tests/unit/lib/one_draft.h"

#include "core/base/err.h"
#include "core/base/limits.h"

static int setup(void **state)
{
	static const char *const none[] = { "io=sync", NULL };

	one_draft_begin("t_draft_node", none);
	return 0;
}

static int teardown(void **state)
{
	one_draft_end();
	return 0;
}

/* A listing is looked at without the lock, and anyone may rename meanwhile: `ls -l` beside an
 * rsync. */
static void a_name_outlives_its_rename(void **state)
{
	static const char *const names[] = { "one.npy", ".a-longer-name.npy.Xy12ab", "two.npy",
					     "one.npy" };
	const char *read[ARRAY_LEN(names)];
	struct draft_node *item, *file;

	assert_int_equal(draft_mkdir(draft->root, span_str("default"), &item), 0);
	assert_int_equal(draft_create(item, span_str(names[0]), &file), 0);
	read[0] = file->name;
	for (size_t i = 1; i < ARRAY_LEN(names); i++) {
		assert_int_equal(draft_rename(item, span_str(names[i - 1]), item,
					      span_str(names[i]), false),
				 0);
		read[i] = file->name;
	}
	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		assert_string_equal(read[i], names[i]);
	assert_int_equal(draft_unlink(item, span_str("one.npy")), 0);
	assert_string_equal(file->name, "one.npy");
	draft_node_unref(file);
	draft_node_unref(item);
}

/* n directories in dir, one inside the other: the failure of the last, which is not made then. */
static int nest(struct draft_node *dir, unsigned n)
{
	struct draft_node *at = draft_node_ref(dir), *next;
	int r = 0;

	for (unsigned i = 0; i < n && r >= 0; i++) {
		r = draft_mkdir(at, span_str("d"), &next);
		if (r >= 0) {
			draft_node_unref(at);
			at = next;
		}
	}
	draft_node_unref(at);
	return r;
}

/* Walks are as deep as directories are, and the stack of a thread is not without end. */
static void directories_are_not_deeper_than_a_tree(void **state)
{
	struct draft_node *a, *b;

	assert_int_equal(draft_mkdir(draft->root, span_str("a"), &a), 0);
	assert_int_equal(draft_mkdir(draft->root, span_str("b"), &b), 0);
	assert_int_equal(nest(a, LIMIT_TREE_DEPTH), 0);
	assert_int_equal(draft_rename(draft->root, span_str("a"), b, span_str("a"), false), -EFBIG);
	assert_non_null(strstr(err_text(-EFBIG), "200 directories"));
	assert_int_equal(
		draft_rename(draft->root, span_str("a"), draft->root, span_str("c"), false), 0);
	assert_int_equal(nest(b, LIMIT_TREE_DEPTH + 1), -EFBIG);
	draft_node_unref(a);
	draft_node_unref(b);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_name_outlives_its_rename),
		TEST(directories_are_not_deeper_than_a_tree),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
