/* SPDX-License-Identifier: Apache-2.0 */
/*
 * t_crash_collective.c - the power goes at every change that one of two ranks makes for a step that
 * they commit together: what is found afterwards is either no step or the whole one, and the whole
 * one when rename has returned 0 on both.
 *
 * Ranks are threads, each with a namespace and an engine of its own; one engine loses what it has
 * not synced. Of all points a part is tried, unless TEST_EVERY_CRASH is set.
 */
#include "tests/engine/io_crash.h"
#include "tests/unit/lib/draft_make.h"

#include "tests/unit/lib/peers_hub.h"
#include "tests/unit/lib/points.h"
#include "tests/unit/lib/tmp_dir.h"

#define RANKS 2
#define KEEPS_POWER "fault(crash:keep@1000000000):sync"

static const struct made part[RANKS] = {
	{ "default/both[0:8,0:3]@16x3.npy", DTYPE_UINT8, 2, { 8, 3 } },
	{ "default/both[8:16,0:3]@16x3.npy", DTYPE_UINT8, 2, { 8, 3 } },
};
/* Irregular: put together by the primary. */
static const struct made odd[RANKS] = {
	{ "default/odd[0:5,0:3]@16x3.npy", DTYPE_UINT8, 2, { 5, 3 } },
	{ "default/odd[5:16,0:3]@16x3.npy", DTYPE_UINT8, 2, { 11, 3 } },
};

struct set {
	const char *const opt[4];
	bool odd;
};

static const struct set sets[] = {
	{ { "compression=none", NULL } },
	{ { "ocdbt=off", NULL } },
	{ { "zarr=3", "chunk_byte_size=600", NULL }, true },
};
static const char *const modes[] = { "keep", "drop", "tear" };

static char root[TMP_DIR_MAX];
static unsigned long points, committed_points;

struct run {
	const struct set *set;
	const char *io[RANKS];
	struct options o[RANKS];
	struct ns *ns[RANKS];
};

static int setup(void **state)
{
	return tmp_dir_make(root, "t_crash_collective");
}

static int teardown(void **state)
{
	print_message("%lu crash points tried, of which %lu have the step\n", points,
		      committed_points);
	return tmp_dir_remove(root);
}

static void clear_root(void)
{
	assert_int_equal(tmp_dir_remove(root), 0);
	assert_int_equal(mkdir(root, 0700), 0);
}

static void open_rank(struct run *run, int rank)
{
	char text[128];

	made_options(&run->o[rank], run->set->opt);
	snprintf(text, sizeof(text), "io=%s", run->io[rank]);
	assert_int_equal(option_set(&run->o[rank], text, false), 0);
	assert_int_equal(option_set(&run->o[rank], "shape=root", false), 0);
	assert_int_equal(option_set(&run->o[rank], "commit_timeout=2", false), 0);
	assert_int_equal(ns_open(root, &run->o[rank], &run->ns[rank]), 0);
	assert_int_equal(ns_share(run->ns[rank], &hub.rank[rank]), 0);
}

static int make(int rank, void *arg)
{
	struct run *run = arg;
	auto_node *top = NULL;
	int r = make_draft(run->ns[rank], "101.tmp");

	if (r >= 0)
		r = node_walk(run->ns[rank]->root, "101.tmp", &top);
	if (r >= 0)
		r = make_one(top, &part[rank]);
	return r < 0 || !run->set->odd ? r : make_one(top, &odd[rank]);
}

static int commit(int rank, void *arg)
{
	struct run *run = arg;

	return commit_draft(run->ns[rank], "101.tmp", "101");
}

static const char *check_whole(struct ns *ns, const char *path, const struct made *of, size_t bytes)
{
	auto_buf want = { 0 }, got = { 0 };
	auto_node *n = NULL;
	const uint64_t shape[2] = { 16, 3 };

	assert_int_equal(npy_header(&(struct array_type){ DTYPE_UINT8, 2, shape }, &want), 0);
	for (int i = 0; i < RANKS; i++) {
		auto_buf one = { 0 };
		size_t n_one = of[i].shape[0] * of[i].shape[1];

		made_content(&of[i], &one);
		assert_int_equal(buf_add(&want, one.p + one.n - n_one, n_one), 0);
	}
	assert_int_equal(want.n % 64, bytes % 64);
	if (node_walk(ns->root, path, &n) < 0 || read_file(n, &got) < 0)
		return path;
	return span_eq(buf_span(&want), buf_span(&got)) ? NULL : path;
}

static void look(const struct run *run, bool committed)
{
	struct options o;
	struct ns *ns;
	const char *names, *wrong;
	bool is_there;

	made_options(&o, run->set->opt);
	assert_int_equal(option_set(&o, "shape=root", false), 0);
	assert_int_equal(ns_open(root, &o, &ns), 0);
	names = root_names(ns);
	is_there = !strcmp(names, "101 ");
	if ((!is_there && *names) || (committed && !is_there))
		fail_msg("%s %s: the root has '%s', and rename returned %s", run->io[0], run->io[1],
			 names, committed ? "0" : "an error");
	wrong = is_there ? check_saved(ns, "101", true) : NULL;
	if (is_there && !wrong)
		wrong = check_whole(ns, "101/default/both.npy", part, 48);
	if (is_there && !wrong && run->set->odd)
		wrong = check_whole(ns, "101/default/odd.npy", odd, 48);
	if (wrong)
		fail_msg("%s %s %s: the step: %s", run->set->opt[0], run->io[0], run->io[1], wrong);
	committed_points += is_there;
	ns_close(ns);
	options_release(&o);
}

/*
 * Run one commit of both ranks, with a power loss of one at its nth change. Returns true when there
 * are fewer changes.
 */
static bool crash_at(const struct set *set, int victim, const char *mode, unsigned n)
{
	/*
	 * The rank that keeps its power has an engine of the same kind, since all of these stop
	 * while the power of one goes.
	 */
	struct run run = { .set = set, .io = { KEEPS_POWER, KEEPS_POWER } };
	int made_r[HUB_MAX] = { 0 }, r[HUB_MAX] = { -1, -1 };
	char io[64];

	snprintf(io, sizeof(io), "fault(crash:%s@%u):sync", mode, n);
	run.io[victim] = io;
	clear_root();
	hub_open(RANKS);
	for (int i = 0; i < RANKS; i++)
		open_rank(&run, i);
	hub_run(make, &run, made_r);
	/* A rank that loses its power before the commit does not take part in it. */
	if (made_r[0] >= 0 && made_r[1] >= 0)
		hub_run(commit, &run, r);
	for (int i = RANKS - 1; i >= 0; i--) {
		ns_close(run.ns[i]);
		options_release(&run.o[i]);
	}
	hub_close();
	points++;
	assert_int_equal(io_crash_failures(), 0);
	look(&run, r[0] == 0 && r[1] == 0);
	if (r[0] >= 0 || r[1] >= 0)
		assert_int_equal(r[0], r[1]);
	return r[0] >= 0 && r[1] >= 0;
}

static void crash_everywhere(int victim)
{
	unsigned step = points_step("TEST_EVERY_CRASH", 4);

	for (size_t i = 0; i < ARRAY_LEN(sets); i++)
		for (size_t m = 0; m < ARRAY_LEN(modes); m++) {
			unsigned n = 1 + (unsigned)(i + 5 * m) % step;

			while (!crash_at(&sets[i], victim, modes[m], n))
				n += step;
			assert_true(n > 20);
		}
}

static void the_primary_loses_its_power(void **state)
{
	crash_everywhere(0);
}

static void another_rank_loses_its_power(void **state)
{
	crash_everywhere(1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_primary_loses_its_power),
		cmocka_unit_test(another_rank_loses_its_power),
	};

	/* Ranks cannot write such items. */
	n_made = N_MADE_SHARED;
	io_crash_register();
	return cmocka_run_group_tests(tests, setup, teardown);
}
