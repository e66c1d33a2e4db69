/* SPDX-License-Identifier: Apache-2.0 */
/*
 * t_save_faults.c - each change of the disk, read, open and allocation of a save fails once: the
 * caller gets the error, old steps can be read, written data reads back, and the same draft commits
 * afterwards.
 *
 * All operations fail with TEST_EVERY_FAULT (and TEST_EVERY_ALLOCATION), else a part of them.
 */
#include "tests/unit/lib/draft_make.h"
#include "tests/unit/lib/fault_rules.h"
#include "tests/unit/lib/nomem.h"
#include "tests/unit/lib/points.h"
#include "tests/unit/lib/tmp_dir.h"

#include <glob.h>

#define MAX_SET 6

static const char *const sets[][MAX_SET] = {
	{ "compression=none", NULL },
	{ "zarr=3", "chunk_byte_size=600", "target_data_file_size=2000", NULL },
	{ "ocdbt=off", "leaf_type=jax.Array", NULL },
	{ "ocdbt=off", "zarr=3", "atomicity=commit_file", NULL },
};

static char root[TMP_DIR_MAX];
static unsigned long points, hits, reported_by_rename, allocations;

static void pause_faults(bool begins)
{
	static unsigned saved;

	if (begins)
		saved = fail_at;
	fail_at = begins ? 0 : saved;
}

static int setup(void **state)
{
	struct options o;
	struct ns *ns;

	own_business = pause_faults;
	assert_int_equal(tmp_dir_make(root, "t_faults"), 0);
	made_options(&o, sets[0]);
	assert_int_equal(option_set(&o, "io=sync", false), 0);
	assert_int_equal(ns_open(root, &o, &ns), 0);
	assert_int_equal(make_draft(ns, "100.tmp"), 0);
	assert_int_equal(commit_draft(ns, "100.tmp", "100"), 0);
	ns_close(ns);
	options_release(&o);
	return 0;
}

static int teardown(void **state)
{
	print_message(
		"%lu faults tried, %lu came, %lu of them reported by rename, %lu were allocations\n",
		points, hits, reported_by_rename, allocations);
	return tmp_dir_remove(root);
}

/* The present attempt, for messages. */
static char trying[300];

/* Try once, and again if the first attempt met the fault. */
static int twice(int r, int code, bool *hit)
{
	if (r >= 0)
		return 0;
	if (*hit || r != code)
		fail_msg("%s: %d, not %d: %s", trying, r, code, err_text(r));
	*hit = true;
	return 1;
}

/* Save while one operation fails. Returns true if it did. */
static bool save(struct ns *ns, int code)
{
	auto_node *top = NULL;
	const char *wrong;
	bool hit = false;

	if (twice(node_mkdir(ns->root, span_str("101.tmp"), 0777, &top), code, &hit))
		assert_int_equal(node_mkdir(ns->root, span_str("101.tmp"), 0777, &top), 0);
	for (size_t i = 0; i < ARRAY_LEN(made); i++)
		while (twice(make_one(top, &made[i]), code, &hit))
			;
	while (twice(commit_draft(ns, "101.tmp", "101"), code, &hit)) {
		reported_by_rename++;
		/* A rename that did not become durable was undone. */
		if (strcmp(root_names(ns), "100 101.tmp "))
			fail_msg("%s: after rename failed the root has '%s'", trying,
				 root_names(ns));
		wrong = check_saved(ns, "101.tmp", false);
		if (wrong)
			fail_msg("%s: the draft that was not committed: %s", trying, wrong);
	}
	return hit;
}

static void check(struct ns *ns)
{
	const char *wrong = check_saved(ns, "100", true);

	if (wrong)
		fail_msg("%s: the old step: %s", trying, wrong);
	wrong = check_saved(ns, "101", true);
	if (wrong)
		fail_msg("%s: the new step: %s", trying, wrong);
	if (strcmp(root_names(ns), "100 101 "))
		fail_msg("%s: the root has '%s'", trying, root_names(ns));
}

/* Remove the remains in the source; apart from them, there may only be the old step. */
static void clean(const char *left)
{
	if (tmp_dir_matching(root, left, true) < 0 || tmp_dir_matching(root, "*", false) != 1 ||
	    tmp_dir_matching(root, "100", false) != 1)
		fail_msg("%s: something was left in the source", trying);
}

/* Remove the remains of a deletion, or the step that was moved away. */
static void clean_deleted(void)
{
	assert_true(tmp_dir_matching(root, "away", true) >= 0);
	clean(".*-deleted-*");
}

/* Whether a path below the source matches a pattern. */
static bool is_there(const char *pattern)
{
	char path[256];
	glob_t found;
	bool yes;

	snprintf(path, sizeof(path), "%s/%s", root, pattern);
	yes = glob(path, 0, NULL, &found) == 0;
	globfree(&found);
	return yes;
}

/* Let the nth operation of a kind fail. Returns false if there are fewer. */
static bool one_fault(const char *const *set, const char *rule, int code, unsigned n)
{
	struct options o;
	char text[128];
	struct ns *ns;
	bool hit;
	int r;

	made_options(&o, set);
	snprintf(text, sizeof(text), "io=fault(%s:%u):sync", rule, n);
	snprintf(trying, sizeof(trying), "%s %s %s", set[0], set[1] ? set[1] : "", text);
	assert_int_equal(option_set(&o, text, false), 0);
	r = ns_open(root, &o, &ns);
	points++;
	if (r < 0) {
		options_release(&o);
		return r == code;
	}
	hit = save(ns, code);
	/* Otherwise, the fault has not occurred yet. */
	if (hit)
		check(ns);
	ns_close(ns);
	options_release(&o);
	clean("101");
	hits += hit;
	return hit;
}

static void operations_fail(void **state)
{
	for (size_t i = 0; i < ARRAY_LEN(sets); i++)
		for (size_t k = 0; k < ARRAY_LEN(fault_rules); k++) {
			/*
			 * Not every fault has an effect: for example, a lock file may remain, or a
			 * step may be looked up twice.
			 */
			unsigned quiet = 0, step = points_step("TEST_EVERY_FAULT", 5);

			for (unsigned n = 1; quiet < 60 / step; n += step)
				quiet = one_fault(sets[i], fault_rules[k].rule, fault_rules[k].code,
						  n) ?
						0 :
						quiet + 1;
		}
	assert_true(hits > 100 && reported_by_rename > 20);
}

static void write_one(struct ns *ns)
{
	assert_int_equal(make_draft(ns, "101.tmp"), 0);
	assert_int_equal(commit_draft(ns, "101.tmp", "101"), 0);
}

/* Delete a step while one change of the disk fails. */
static void one_deletion(const char *const *set, const char *what, unsigned n)
{
	char text[128];
	struct options o;
	struct ns *ns;
	int r;

	made_options(&o, set);
	assert_int_equal(option_set(&o, "io=sync", false), 0);
	assert_int_equal(ns_open(root, &o, &ns), 0);
	write_one(ns);
	ns_close(ns);
	snprintf(text, sizeof(text), "io=fault(%s:%u):sync", what, n);
	snprintf(trying, sizeof(trying), "deletion, %s, %s", set[1] ? set[1] : "", text);
	assert_int_equal(option_set(&o, text, false), 0);
	assert_int_equal(ns_open(root, &o, &ns), 0);
	points++;
	r = node_rmdir(ns->root, span_str("101"));
	if (r < 0) {
		/* The step is unchanged, and can be deleted. */
		if (r != -EIO)
			fail_msg("%s: %d: %s", trying, r, err_text(r));
		hits++;
		check(ns);
		if (node_rmdir(ns->root, span_str("101")) < 0)
			fail_msg("%s: once more: %s", trying, unit_last_note());
	}
	if (strcmp(root_names(ns), "100 "))
		fail_msg("%s: the root has '%s'", trying, root_names(ns));
	ns_close(ns);
	options_release(&o);
	clean_deleted();
}

/* A step whose deletion failed exists; a deleted one does not. */
static void deletions_fail(void **state)
{
	static const char *const ways[][MAX_SET] = {
		{ "allow_delete", NULL },
		{ "allow_delete", "todelete=away", NULL },
	};
	unsigned long before = hits;

	for (size_t i = 0; i < ARRAY_LEN(ways); i++) {
		for (unsigned n = 1; n < 7; n++) {
			one_deletion(ways[i], "change:eio", n);
			one_deletion(ways[i], "rename:eio", n);
			one_deletion(ways[i], "syncdir:eio", n);
		}
	}
	assert_true(hits - before >= 2 * ARRAY_LEN(ways));
}

/*
 * The rename can neither be made durable nor undone: the deletion has failed, and the step is
 * complete under its other name.
 */
static void a_deletion_that_cannot_be_taken_back(void **state)
{
	static const char *const ways[][MAX_SET] = {
		{ "allow_delete", NULL },
		{ "allow_delete", "todelete=away", NULL },
	};

	for (size_t i = 0; i < ARRAY_LEN(ways); i++) {
		struct options o;
		struct ns *ns;

		made_options(&o, ways[i]);
		assert_int_equal(option_set(&o, "io=sync", false), 0);
		assert_int_equal(ns_open(root, &o, &ns), 0);
		write_one(ns);
		ns_close(ns);
		assert_int_equal(
			option_set(&o, "io=fault(syncdir:eio:1+;rename:eio:2+):sync", false), 0);
		assert_int_equal(ns_open(root, &o, &ns), 0);
		assert_int_equal(node_rmdir(ns->root, span_str("101")), -EIO);
		assert_non_null(strstr(err_text(-EIO), "could not be renamed back"));
		assert_string_equal(root_names(ns), "100 ");
		assert_true(is_there("away/101/default/_METADATA") ||
			    is_there(".101.*-deleted-*/default/_METADATA"));
		ns_close(ns);
		options_release(&o);
		clean_deleted();
	}
}

/* Interrupted operations are repeated by both engines, without an error. */
static void operations_are_interrupted(void **state)
{
	static const char *const stacks[] = { "io=fault(any:eintr:25%;any:eagain:5%):sync",
					      "io=fault(any:eintr:25%;any:eagain:5%):auto" };

	for (size_t i = 0; i < ARRAY_LEN(sets) * ARRAY_LEN(stacks); i++) {
		const char *const *set = sets[i / ARRAY_LEN(stacks)];
		const char *stack = stacks[i % ARRAY_LEN(stacks)];
		struct options o;
		struct ns *ns;

		made_options(&o, set);
		snprintf(trying, sizeof(trying), "%s %s", set[0], stack);
		assert_int_equal(option_set(&o, stack, false), 0);
		assert_int_equal(ns_open(root, &o, &ns), 0);
		assert_false(save(ns, 0));
		check(ns);
		ns_close(ns);
		options_release(&o);
		clean("101");
	}
}

static void allocations_fail(void **state)
{
	for (size_t i = 0; i < ARRAY_LEN(sets); i++) {
		bool over = false;

		for (unsigned n = 1; !over; n = after(n)) {
			struct options o;
			struct ns *ns;
			bool hit;

			made_options(&o, sets[i]);
			snprintf(trying, sizeof(trying), "%s allocation %u", sets[i][0], n);
			assert_int_equal(option_set(&o, "io=sync", false), 0);
			assert_int_equal(ns_open(root, &o, &ns), 0);
			count = 0;
			fail_at = n;
			hit = save(ns, -ENOMEM);
			over = count < fail_at;
			fail_at = 0;
			check(ns);
			ns_close(ns);
			options_release(&o);
			clean("101");
			points++;
			hits += hit;
			allocations += hit;
		}
	}
	assert_true(allocations > 100);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(operations_fail),
		cmocka_unit_test(deletions_fail),
		cmocka_unit_test(a_deletion_that_cannot_be_taken_back),
		cmocka_unit_test(operations_are_interrupted),
		cmocka_unit_test(allocations_fail),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
