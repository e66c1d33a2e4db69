/* SPDX-License-Identifier: Apache-2.0 */
/*
 * t_crash.c - the power goes at every change of a save. Afterwards, there is the old state or the
 * whole new step, and the new one if rename had returned 0.
 *
 * Every point at which the power can go is tried for the first set of options, and a part of them
 * for the others, unless TEST_EVERY_CRASH is set.
 */
#include "tests/engine/io_crash.h"
#include "tests/unit/lib/draft_make.h"
#include "tests/unit/lib/points.h"
#include "tests/unit/lib/tmp_dir.h"

#include "core/commit/commit.h"
#include "core/commit/gc.h"

#define MAX_SET 6

struct set {
	const char *const opt[MAX_SET];
	bool all; /* every point, each in one of the modes; with TEST_LONG in all of them */
};

static const struct set sets[] = {
	{ { "compression=none", NULL }, true },
	{ { "zarr=3", "chunk_byte_size=600", "target_data_file_size=2000", NULL } },
	{ { "ocdbt=off", NULL } },
	{ { "ocdbt=off", "zarr=3", "compression=none", "chunk_byte_size=600", NULL } },
	{ { "leaf_type=jax.Array", "rich_types=on", "store_fill_value=off", NULL } },
	{ { "atomicity=commit_file", NULL } },
	{ { "atomicity=commit_file", "ocdbt=off", "leaf_type=jax.Array", NULL } },
};

static const char *const modes[] = { "keep", "drop", "tear" };

static char root[TMP_DIR_MAX];
static unsigned long points, begun, again;
static unsigned changes[ARRAY_LEN(sets)]; /* of a save, about */

static struct ns *open_ns(struct options *o, const struct set *s, const char *io)
{
	char text[128];
	struct ns *ns;

	made_options(o, s->opt);
	snprintf(text, sizeof(text), "io=%s", io);
	assert_int_equal(option_set(o, text, false), 0);
	assert_int_equal(ns_open(root, o, &ns), 0);
	return ns;
}

static void close_ns(struct ns *ns, struct options *o)
{
	ns_close(ns);
	options_release(o);
}

static void remove_from_source(const char *name)
{
	char pattern[64];

	snprintf(pattern, sizeof(pattern), "%s*", name);
	assert_true(tmp_dir_matching(root, pattern, true) >= 0);
}

static int setup(void **state)
{
	struct options o;
	struct ns *ns;

	assert_int_equal(tmp_dir_make(root, "t_crash"), 0);
	ns = open_ns(&o, &sets[0], "sync");
	assert_int_equal(make_draft(ns, "100.tmp"), 0);
	assert_int_equal(commit_draft(ns, "100.tmp", "100"), 0);
	close_ns(ns, &o);
	return 0;
}

static int teardown(void **state)
{
	print_message("%lu crash points tried; %lu drafts begun again, %lu committed again\n",
		      points, begun, again);
	return tmp_dir_remove(root);
}

/* Files that no leaf shows. */
static const char *check_stored(struct ns *ns, const struct set *s)
{
	static const char *const of_arrays[] = { "_sharding", "array_metadatas/process_0" };

	for (size_t i = 0; i < 2 * ARRAY_LEN(of_arrays); i++) {
		const char *name = of_arrays[i / 2];
		char path[200];
		struct stat st;

		snprintf(path, sizeof(path), "101/%s/%s", i % 2 ? "state" : "default", name);
		for (size_t k = 0; s->opt[k]; k++)
			if (!strcmp(s->opt[k], "leaf_type=jax.Array") &&
			    (io_stat(ns->ckpt->source, path, &st) < 0 || st.st_size == 0))
				return name;
	}
	return NULL;
}

/* A lock file in a step in place that is empty may be about to be locked. */
static bool is_young(const struct gc_found *f)
{
	char path[TMP_DIR_MAX + 100];
	struct stat st;

	snprintf(path, sizeof(path), "%s/%s/" DRAFT_LOCK_FILE, root, f->path);
	return f->path[0] != '.' && stat(path, &st) == 0 && st.st_size == 0;
}

static void count_failure(void *arg, const struct gc_found *f)
{
	*(unsigned *)arg += f->failed != 0 || (f->kind == GC_LIVE && !is_young(f)) ||
			    f->kind == GC_FOREIGN;
}

static int not_a_step(void *arg, const char *name, unsigned char type)
{
	/* Too young for gc, since it may belong to a writer that is just beginning. */
	if (strstr(name, "-begun-") || !strcmp(name, "100") || !strcmp(name, "101"))
		return 0;
	snprintf(arg, 100, "%s", name);
	return 1;
}

/* gc removes everything that a crash leaves: afterwards, there are only steps. */
static void collect(struct ns *ns, const char *io)
{
	unsigned failed = 0;
	const struct gc_opts o = { .each = count_failure, .arg = &failed };
	char left[100] = "";

	assert_int_equal(gc_run(ns->ckpt->source, &o), 0);
	assert_int_equal(io_list(ns->ckpt->source, ".", not_a_step, left), left[0] ? 1 : 0);
	if (failed || left[0])
		fail_msg("%s: gc left '%s', %u failures", io, left, failed);
}

/* Check the source after the power loss: the old state (false) or the new one. */
static bool look(const struct set *s, const char *io, bool committed)
{
	struct options o;
	struct ns *ns = open_ns(&o, s, "sync");
	const char *names = root_names(ns), *wrong;
	bool is_new = !strcmp(names, "100 101 ");

	if (!is_new && (strcmp(names, "100 ") || committed))
		fail_msg("%s %s: the root has '%s' after rename returned %s", s->opt[0], io, names,
			 committed ? "0" : "an error");
	wrong = check_saved(ns, "100", true);
	if (wrong)
		fail_msg("%s %s: the old step: %s", s->opt[0], io, wrong);
	wrong = is_new ? check_saved(ns, "101", true) : NULL;
	if (is_new && !wrong)
		wrong = check_stored(ns, s);
	if (wrong)
		fail_msg("%s %s: the new step: %s", s->opt[0], io, wrong);
	/* The remains of the crash do not prevent a new save. */
	if (!is_new && points % 5 == 0) {
		int r = make_draft(ns, "101.tmp");

		begun++;
		if (r >= 0)
			r = commit_draft(ns, "101.tmp", "101");
		if (r < 0)
			fail_msg("%s %s: the same again: %s", s->opt[0], io, err_text(r));
		wrong = check_saved(ns, "101", true);
		if (wrong)
			fail_msg("%s %s: the same again: %s", s->opt[0], io, wrong);
	}
	if (points % 5)
		collect(ns, io);
	close_ns(ns, &o);
	return is_new;
}

/* Save once with a power loss at a change. Returns 0 when rename returned 0. */
static int save(const struct set *s, const char *io)
{
	struct options o;
	struct ns *ns = open_ns(&o, s, io);
	int r = make_draft(ns, "101.tmp");

	if (r >= 0)
		r = commit_draft(ns, "101.tmp", "101");
	close_ns(ns, &o);
	return r;
}

static unsigned step_of(const struct set *s)
{
	return points_step("TEST_EVERY_CRASH", s->all ? 1 : 7);
}

static void crash_everywhere(const struct set *s, unsigned *ret_changes)
{
	unsigned long before = points;

	for (size_t m = 0; m < ARRAY_LEN(modes); m++) {
		int r = -1;

		/*
		 * Continue until the power goes after the last change. The last points are tried in
		 * any case.
		 */
		for (unsigned n = 1 + (unsigned)m % step_of(s); r < 0; n += step_of(s)) {
			char io[64];

			snprintf(io, sizeof(io), "fault(crash:%s@%u):sync", modes[m], n);
			r = save(s, io);
			points++;
			assert_int_equal(io_crash_failures(), 0);
			look(s, io, r >= 0);
			remove_from_source("101");
			*ret_changes = n;
		}
	}
	print_message("%s %s: %lu points\n", s->opt[0], s->opt[1] ? s->opt[1] : "",
		      points - before);
	assert_true(points - before > 60 / step_of(s));
}

static void a_save_is_there_whole_or_not_at_all(void **state)
{
	for (size_t i = 0; i < ARRAY_LEN(sets); i++)
		crash_everywhere(&sets[i], &changes[i]);
}

/* A failed sync loses what it was to write: the same draft commits afterwards, and survives. */
static void bytes_that_a_failed_sync_lost_are_written_again(void **state)
{
	unsigned failures = 0;

	for (size_t i = 0; i < ARRAY_LEN(sets); i++) {
		for (unsigned n = 1; n <= changes[i] + 1; n += step_of(&sets[i])) {
			struct options o;
			struct ns *ns;
			char io[64];
			int r;

			snprintf(io, sizeof(io), "fault(crash:lose@%u):sync", n);
			ns = open_ns(&o, &sets[i], io);
			/* The program that makes the draft tries again if the beginning fails. */
			r = make_draft(ns, "101.tmp");
			if (r >= 0) {
				r = commit_draft(ns, "101.tmp", "101");
				if (r < 0) {
					const char *wrong;

					failures++;
					wrong = check_saved(ns, "101.tmp", false);
					if (wrong)
						fail_msg("%s: the draft afterwards: %s", io, wrong);
					r = commit_draft(ns, "101.tmp", "101");
					again += r >= 0;
				}
				if (r < 0)
					fail_msg("%s %s: not committed again: %s", sets[i].opt[0],
						 io, err_text(r));
			}
			close_ns(ns, &o);
			points++;
			look(&sets[i], io, r >= 0);
			remove_from_source("101");
		}
	}
	assert_true(failures > 10);
}

/* A step that is being deleted exists as a whole, or not at all. */
static void a_step_is_deleted_as_a_whole(void **state)
{
	const struct set s = { { "allow_delete", NULL } };

	for (size_t m = 0; m < ARRAY_LEN(modes); m++) {
		int r = -1;

		for (unsigned n = 1; r < 0; n++) {
			struct options o;
			struct ns *ns = open_ns(&o, &s, "sync");
			char io[64];

			assert_int_equal(make_draft(ns, "101.tmp"), 0);
			assert_int_equal(commit_draft(ns, "101.tmp", "101"), 0);
			close_ns(ns, &o);
			snprintf(io, sizeof(io), "fault(crash:%s@%u):sync", modes[m], n);
			ns = open_ns(&o, &s, io);
			r = commit_delete(ns->ckpt, "101");
			close_ns(ns, &o);
			points++;
			assert_false(look(&s, io, false) && r >= 0);
			remove_from_source("101");
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_save_is_there_whole_or_not_at_all),
		cmocka_unit_test(bytes_that_a_failed_sync_lost_are_written_again),
		cmocka_unit_test(a_step_is_deleted_as_a_whole),
	};

	io_crash_register();
	return cmocka_run_group_tests(tests, setup, teardown);
}
