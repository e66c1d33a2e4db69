/* SPDX-License-Identifier: Apache-2.0 */
/*
 * t_commit.c - commits that fail and are repeated, drafts that are abandoned or aborted, and the
 * locks of their directories.
 *
 * t_crash.c tests power losses, and t_save_faults.c errors of the disk and of memory.
 */
#include "tests/unit/lib/draft_make.h"
#include "tests/unit/lib/tmp_dir.h"

#include "core/commit/commit.h"
#include "core/commit/gc.h"

static char root[TMP_DIR_MAX];
static struct options options;
static struct ns *ns;

static int setup(void **state)
{
	static const char *const none[] = { "io=sync", NULL };

	assert_int_equal(tmp_dir_make(root, "t_commit"), 0);
	made_options(&options, none);
	assert_int_equal(ns_open(root, &options, &ns), 0);
	return 0;
}

static int teardown(void **state)
{
	ns_close(take(ns));
	options_release(&options);
	return tmp_dir_remove(root);
}

static bool exists(const char *name)
{
	char path[400];

	snprintf(path, sizeof(path), "%s/%s", root, name);
	return access(path, F_OK) == 0;
}

/* ---- commit_run() alone ---- */

struct look {
	int code; /* the code that the check of the draft returns */
	unsigned times;
};

static int check_it(void *arg)
{
	struct look *l = arg;

	l->times++;
	assert_true(exists(".7.pytreefs-draft/metrics/metrics"));
	assert_false(exists("7"));
	return l->code ? fail(l->code, "not as it should be") : 0;
}

static struct commit_file one_file = { .name = { (const uint8_t *)"metrics", 7 },
				       .text = { (const uint8_t *)"{}", 2 } };
static struct commit_item one_item = { .name = { (const uint8_t *)"metrics", 7 },
				       .handler = { (const uint8_t *)"handler", 7 },
				       .files = &one_file,
				       .n_files = 1 };

static struct draft_dir *begin(void)
{
	struct draft_dir *d;

	assert_int_equal(
		draft_dir_begin(ns->ckpt->source, ".7.pytreefs-draft", "7", 0777, false, &d), 0);
	return d;
}

static void an_error_of_the_check_stops_the_commit(void **state)
{
	auto_of(draft_dir) struct draft_dir *d = begin();
	struct look l = { .code = -EUCLEAN };
	struct commit c = { .ckpt = ns->ckpt,
			    .publisher = &publish_by_rename,
			    .draft = d,
			    .items = &one_item,
			    .n_items = 1,
			    .finish = check_it,
			    .finish_arg = &l };

	for (unsigned i = 1; i < 3; i++) {
		assert_int_equal(commit_run(&c), -EUCLEAN);
		assert_non_null(strstr(err_text(-EUCLEAN), "not as it should be"));
		assert_int_equal(l.times, i);
		assert_true(exists(".7.pytreefs-draft/.pytreefs-draft") && !exists("7"));
		assert_false(exists(".7.pytreefs-draft/commit_success.txt"));
	}
	l.code = 0;
	assert_int_equal(commit_run(&c), 0);
	assert_true(exists("7/commit_success.txt") && exists("7/metrics/commit_success.txt"));
	assert_false(exists("7/.pytreefs-draft") || exists(".7.pytreefs-draft"));
}

static void the_deadline_is_met_before_the_rename(void **state)
{
	auto_of(draft_dir) struct draft_dir *d = begin();
	struct commit c = {
		.ckpt = ns->ckpt,
		.publisher = &publish_by_rename,
		.draft = d,
		.items = &one_item,
		.n_items = 1,
		.deadline_ns = 1,
	};

	for (int i = 0; i < 2; i++) {
		assert_int_equal(commit_run(&c), -ETIMEDOUT);
		assert_non_null(strstr(err_text(-ETIMEDOUT), "commit_timeout"));
		assert_true(exists(".7.pytreefs-draft/.pytreefs-draft") && !exists("7"));
	}
	c.deadline_ns = 0;
	assert_int_equal(commit_run(&c), 0);
	assert_true(exists("7"));
}

static int pass_the_deadline(void *arg)
{
	((struct commit *)arg)->deadline_ns = 1;
	return 0;
}

/* At this point everything is written, including the metadata of the step. */
static void a_late_deadline_keeps_written_files(void **state)
{
	auto_of(draft_dir) struct draft_dir *d = begin();
	struct commit c = { .ckpt = ns->ckpt,
			    .publisher = &publish_by_rename,
			    .draft = d,
			    .items = &one_item,
			    .n_items = 1,
			    .finish = pass_the_deadline };

	c.finish_arg = &c;
	assert_int_equal(commit_run(&c), -ETIMEDOUT);
	assert_true(exists(".7.pytreefs-draft/_CHECKPOINT_METADATA") && !exists("7"));
	c.finish = NULL;
	c.deadline_ns = 0;
	assert_int_equal(commit_run(&c), 0);
	assert_true(exists("7/_CHECKPOINT_METADATA"));
}

static void an_existing_step_is_not_replaced(void **state)
{
	auto_of(draft_dir) struct draft_dir *d = begin();
	struct commit c = { .ckpt = ns->ckpt,
			    .publisher = &publish_by_rename,
			    .draft = d,
			    .items = &one_item,
			    .n_items = 1 };

	assert_int_equal(io_dirop(ns->ckpt->source, IO_MKDIR, "7", NULL, 0777), 0);
	assert_int_equal(commit_run(&c), -EEXIST);
	assert_int_equal(io_dirop(ns->ckpt->source, IO_RMDIR, "7", NULL, 0), 0);
	assert_int_equal(commit_run(&c), 0);
}

/* ---- drafts in a mount ---- */

static int remove_data_file(const char *path, const struct stat *st, int type, struct FTW *at)
{
	return type == FTW_F && strstr(path, "/d/") ? unlink(path) : 0;
}

static void lost_values_are_found_by_verification(void **state)
{
	char draft[TMP_DIR_MAX + 32];
	auto_node *item = NULL, *top = NULL;

	assert_int_equal(make_draft(ns, "8.tmp"), 0);
	/* Remove the data files that the draft has written. */
	snprintf(draft, sizeof(draft), "%s/.8.pytreefs-draft", root);
	assert_int_equal(nftw(draft, remove_data_file, 16, FTW_PHYS), 0);
	assert_int_equal(commit_draft(ns, "8.tmp", "8"), -EUCLEAN);
	assert_non_null(strstr(err_text(-EUCLEAN), "verify_commit: item 'default'"));
	assert_false(exists("8"));
	/* The values are also missing after the item was renamed. */
	assert_int_equal(node_walk(ns->root, "8.tmp", &top), 0);
	assert_int_equal(node_rename(top, span_str("default"), top, span_str("gone"), 0), 0);
	assert_int_equal(commit_draft(ns, "8.tmp", "8"), -EUCLEAN);
	assert_non_null(strstr(err_text(-EUCLEAN), "item 'gone'"));
}

static void a_leaf_open_for_writing_refuses_the_commit(void **state)
{
	struct file *f;
	auto_node *n = NULL;

	assert_int_equal(make_draft(ns, "8.tmp"), 0);
	assert_int_equal(node_walk(ns->root, "8.tmp/default/params/w.npy", &n), 0);
	assert_int_equal(node_open(n, O_WRONLY, &f), 0);
	assert_int_equal(commit_draft(ns, "8.tmp", "8"), -EBUSY);
	assert_non_null(strstr(err_text(-EBUSY), "'w.npy' is open for writing"));
	file_close(f);
	assert_int_equal(commit_draft(ns, "8.tmp", "8"), 0);
	assert_null(check_saved(ns, "8", true));
}

static void malformed_leaves_are_named(void **state)
{
	static const struct made bad = { "default/params/bad.npy", .text = "no array" };
	auto_node *top = NULL, *dir = NULL;

	assert_int_equal(make_draft(ns, "8.tmp"), 0);
	assert_int_equal(node_walk(ns->root, "8.tmp", &top), 0);
	assert_int_equal(make_one(top, &bad), 0);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(commit_draft(ns, "8.tmp", "8"), -ECANCELED);
		assert_non_null(strstr(err_text(-ECANCELED), "bad.npy"));
		assert_null(check_saved(ns, "8.tmp", false));
	}
	assert_int_equal(node_walk(top, "default/params", &dir), 0);
	assert_int_equal(node_unlink(dir, span_str("bad.npy")), 0);
	assert_int_equal(commit_draft(ns, "8.tmp", "8"), 0);
	assert_null(check_saved(ns, "8", true));
}

static void an_aborted_draft_is_gone_at_once(void **state)
{
	struct draft *d;

	assert_int_equal(make_draft(ns, "8.tmp"), 0);
	assert_int_equal(commit_draft(ns, "8.tmp", "no step"), -EPERM);
	d = draft_find(&ns->drafts, span_str("8.tmp"));
	assert_non_null(d);
	assert_int_equal(draft_abort(d, false), -ENOTEMPTY);
	assert_int_equal(draft_abort(d, true), 0);
	draft_unref(d);
	assert_string_equal(root_names(ns), "");
	assert_false(exists(".8.pytreefs-draft"));
	/* The draft can be begun again. */
	assert_int_equal(make_draft(ns, "8.tmp"), 0);
	assert_int_equal(commit_draft(ns, "8.tmp", "8"), 0);
	assert_null(check_saved(ns, "8", true));
}

/* ---- between two mounts ---- */

static void retained_live(void *arg, const struct gc_found *f)
{
	assert_int_equal(f->kind, GC_LIVE);
	assert_false(f->removed);
	++*(unsigned *)arg;
}

static void a_live_draft_is_not_taken(void **state)
{
	struct draft_dir *d = begin(), *other;
	unsigned found = 0;
	const struct gc_opts o = { .foreign = true, .each = retained_live, .arg = &found };

	assert_int_equal(draft_dir_begin(ns->ckpt->source, ".7.pytreefs-draft", "7", 0777, false,
					 &other),
			 -EBUSY);
	assert_int_equal(draft_dir_remove_abandoned(ns->ckpt->source, ".7.pytreefs-draft"), -EBUSY);
	assert_int_equal(gc_run(ns->ckpt->source, &o), 0);
	assert_int_equal(found, 1);
	/* Its writer ends. */
	draft_dir_free(d);
	assert_true(exists(".7.pytreefs-draft"));
	other = begin();
	assert_int_equal(draft_dir_remove(other), 0);
	draft_dir_free(other);
	assert_false(exists(".7.pytreefs-draft"));
}

static void another_programs_directory_is_not_taken(void **state)
{
	struct draft_dir *d;

	assert_int_equal(io_dirop(ns->ckpt->source, IO_MKDIR, ".7.pytreefs-draft", NULL, 0777), 0);
	assert_int_equal(draft_dir_begin(ns->ckpt->source, ".7.pytreefs-draft", "7", 0777, false,
					 &d),
			 -EBUSY);
	assert_int_equal(draft_dir_remove_abandoned(ns->ckpt->source, ".7.pytreefs-draft"), 0);
	assert_true(exists(".7.pytreefs-draft"));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(an_error_of_the_check_stops_the_commit),
		TEST(the_deadline_is_met_before_the_rename),
		TEST(a_late_deadline_keeps_written_files),
		TEST(an_existing_step_is_not_replaced),
		TEST(lost_values_are_found_by_verification),
		TEST(a_leaf_open_for_writing_refuses_the_commit),
		TEST(malformed_leaves_are_named),
		TEST(an_aborted_draft_is_gone_at_once),
		TEST(a_live_draft_is_not_taken),
		TEST(another_programs_directory_is_not_taken),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
