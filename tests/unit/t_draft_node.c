/*
 * t_draft_node.c - names of a draft: who holds a node may read its name, whatever becomes of it.
 */
#include "tests/unit/draft_make.h"

static char root[64];
static struct options options;
static struct ns *ns;
static struct draft *draft;

static int setup(void **state)
{
	static const char *const none[] = { "io=sync", NULL };

	snprintf(root, sizeof(root), "/tmp/t_draft_node.XXXXXX");
	assert_non_null(mkdtemp(root));
	made_options(&options, none);
	assert_int_equal(ns_open(root, &options, &ns), 0);
	assert_int_equal(draft_begin(ns, span_str("7.tmp"), &draft), 0);
	return 0;
}

static int teardown(void **state)
{
	char cmd[128];

	draft_unref(take(draft));
	ns_close(take(ns));
	options_release(&options);
	snprintf(cmd, sizeof(cmd), "rm -rf %s", root);
	return system(cmd);
}

/* A listing is looked at without the lock, and anyone may rename meanwhile: `ls -l` beside an rsync. */
static void a_name_outlives_its_rename(void **state)
{
	static const char *const names[] = { "one.npy", ".a-longer-name.npy.Xy12ab", "two.npy", "one.npy" };
	const char *read[ARRAY_LEN(names)];
	struct draft_node *item, *file;

	assert_int_equal(draft_mkdir(draft->root, span_str("default"), &item), 0);
	assert_int_equal(draft_create(item, span_str(names[0]), &file), 0);
	read[0] = file->name;
	for (size_t i = 1; i < ARRAY_LEN(names); i++) {
		assert_int_equal(draft_rename(item, span_str(names[i - 1]), item, span_str(names[i]), false), 0);
		read[i] = file->name;
	}
	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		assert_string_equal(read[i], names[i]);
	assert_int_equal(draft_unlink(item, span_str("one.npy")), 0);
	assert_string_equal(file->name, "one.npy");
	draft_node_unref(file);
	draft_node_unref(item);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_name_outlives_its_rename),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
