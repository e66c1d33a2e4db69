/* SPDX-License-Identifier: Apache-2.0 */
/*
 * t_attempts.c - which attempt at a commit the ranks of a job take part in: whoever called without
 * the others before, ranks that call together commit by the second try; and a rank whose mount is
 * being ended does not wait.
 *
 * Ranks are threads, each with a namespace of its own. Deadlines are given by the test, in place of
 * commit_timeout.
 */
#include "tests/unit/lib/draft_make.h"

#include <semaphore.h>

#include "core/base/clock.h"
#include "handlers/job/draft_collective.h"
#include "tests/unit/lib/peers_hub.h"
#include "tests/unit/lib/tmp_dir.h"

#define MS ((int64_t)1000000)
#define RANKS_MAX 3
#define NOT_CALLED 1 /* of a rank, instead of a result */

static char root[TMP_DIR_MAX];
static int64_t patience; /* of a commit */

struct job {
	struct options o[RANKS_MAX];
	struct ns *ns[RANKS_MAX];
	unsigned ranks; /* a bit for each that calls */
};

static int setup(void **state)
{
	return tmp_dir_make(root, "t_attempts");
}

static int teardown(void **state)
{
	return tmp_dir_remove(root);
}

static int commit_within_patience(struct draft *d, struct sealing_item *item, size_t n,
				  struct span custom, int r, int64_t deadline)
{
	return job_directory_commit(d, item, n, custom, r, clock_ns() + patience);
}

static int make(int rank, void *arg)
{
	struct job *job = arg;

	return make_draft(job->ns[rank], "101.tmp");
}

static void open_job(struct job *job, int n)
{
	static const char *const set[] = { "shape=root", "io=sync", NULL };
	static struct commit_driver driver;
	int r[HUB_MAX];

	driver = job_directory_driver;
	driver.commit = commit_within_patience;
	assert_int_equal(tmp_dir_remove(root), 0);
	assert_int_equal(mkdir(root, 0700), 0);
	hub_open(n);
	for (int i = 0; i < n; i++) {
		made_options(&job->o[i], set);
		assert_int_equal(ns_open(root, &job->o[i], &job->ns[i]), 0);
		assert_int_equal(ns_share(job->ns[i], &hub.rank[i]), 0);
		job->ns[i]->drafts.driver = &driver;
	}
	hub_run(make, job, r);
	for (int i = 0; i < n; i++)
		assert_int_equal(r[i], 0);
}

static void close_job(struct job *job)
{
	for (int i = hub.size - 1; i >= 0; i--) {
		ns_close(job->ns[i]);
		options_release(&job->o[i]);
	}
	hub_close();
}

static int commit(int rank, void *arg)
{
	struct job *job = arg;

	return job->ranks & 1u << rank ? commit_draft(job->ns[rank], "101.tmp", "101") : NOT_CALLED;
}

/* These ranks call at once. */
static void call(struct job *job, unsigned ranks, int64_t within, int *ret)
{
	patience = within;
	job->ranks = ranks;
	hub_run(commit, job, ret);
}

static bool all_are(const int *r, unsigned ranks, int wanted)
{
	for (int i = 0; i < hub.size; i++)
		if (ranks & 1u << i && r[i] != wanted)
			return false;
	return true;
}

/* Calls of some ranks (a bit for each) before all call together. */
static const struct {
	int n;
	unsigned alone[4];
} histories[] = {
	{ 2, { 1 } },       { 2, { 2 } },          { 2, { 1, 1, 1 } }, { 2, { 1, 2 } },
	{ 2, { 2, 1 } },    { 2, { 2, 2, 1, 1 } }, { 3, { 1 } },       { 3, { 2 } },
	{ 3, { 3 } },       { 3, { 6 } },          { 3, { 5, 2, 1 } }, { 3, { 2, 2, 4, 1 } },
	{ 3, { 6, 1, 1 } }, { 3, { 4, 3 } },
};

static void ranks_that_call_together_commit_by_the_second_try(void **state)
{
	for (size_t h = 0; h < ARRAY_LEN(histories); h++) {
		const unsigned all = (1u << histories[h].n) - 1;
		struct job job = { 0 };
		int r[HUB_MAX];

		open_job(&job, histories[h].n);
		for (size_t i = 0; i < ARRAY_LEN(histories[h].alone) && histories[h].alone[i];
		     i++) {
			call(&job, histories[h].alone[i], 40 * MS, r);
			assert_true(all_are(r, histories[h].alone[i], -ETIMEDOUT));
		}
		/*
		 * A rank that is told that it has missed an attempt does not wait; the others do.
		 */
		call(&job, all, 2 * SECOND_NS, r);
		if (!all_are(r, all, 0)) {
			for (int i = 0; i < hub.size; i++)
				assert_int_not_equal(r[i], 0);
			call(&job, all, 60 * SECOND_NS, r);
		}
		if (!all_are(r, all, 0))
			fail_msg("history %zu: the second try: %d %d %d", h, r[0], r[1], r[2]);
		assert_string_equal(root_names(job.ns[0]), "101 ");
		close_job(&job);
	}
}

static void a_rank_that_never_comes_fails_every_attempt(void **state)
{
	struct job job = { 0 };
	int r[HUB_MAX];

	open_job(&job, 3);
	for (int i = 0; i < 4; i++) {
		call(&job, 3, 40 * MS, r);
		assert_true(all_are(r, 3, -ETIMEDOUT));
		assert_string_equal(root_names(job.ns[0]), "101.tmp ");
	}
	close_job(&job);
}

/* The rank beyond those that commit is the one that ends another's mount. */
struct ending {
	struct job *job;
	int victim;
};

static int commit_or_end(int rank, void *arg)
{
	struct ending *e = arg;
	const struct timespec tick = { .tv_nsec = 20 * MS };

	if (rank < 2)
		return commit(rank, e->job);
	/* Before, while or after it has begun to wait: it is the same. */
	nanosleep(&tick, NULL);
	ns_interrupt(e->job->ns[e->victim]);
	return NOT_CALLED;
}

static void a_rank_that_is_being_ended_does_not_wait(void **state)
{
	struct job job = { .ranks = 3 };
	struct ending e = { &job, 0 };
	int r[HUB_MAX];

	/* The primary waits for the third rank, and the second one for the primary. */
	patience = 3600 * SECOND_NS;
	open_job(&job, 3);
	hub_run(commit_or_end, &e, r);
	assert_int_equal(r[0], -ECANCELED);
	assert_int_equal(r[1], -ECANCELED);
	assert_string_equal(root_names(job.ns[0]), "101.tmp ");
	assert_null(check_saved(job.ns[1], "101.tmp", false));
	close_job(&job);
}

static sem_t ended; /* rank 1 has come back */

/* While the last rank does not come the primary answers nobody, so the one that is being ended
 * would have to wait. */
static int commit_after_the_end(int rank, void *arg)
{
	int r;

	if (rank == 2)
		sem_wait(&ended);
	r = commit(rank, arg);
	if (rank == 1)
		sem_post(&ended);
	return r;
}

static void the_others_learn_that_a_rank_is_being_ended(void **state)
{
	struct job job = { .ranks = 7 };
	int r[HUB_MAX];

	patience = 3600 * SECOND_NS;
	assert_int_equal(sem_init(&ended, 0, 0), 0);
	open_job(&job, 3);
	ns_interrupt(job.ns[1]);
	hub_run(commit_after_the_end, &job, r);
	for (int i = 0; i < 3; i++)
		assert_int_equal(r[i], -ECANCELED);
	assert_string_equal(root_names(job.ns[2]), "101.tmp ");
	assert_null(check_saved(job.ns[2], "101.tmp", false));
	close_job(&job);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ranks_that_call_together_commit_by_the_second_try),
		cmocka_unit_test(a_rank_that_never_comes_fails_every_attempt),
		cmocka_unit_test(a_rank_that_is_being_ended_does_not_wait),
		cmocka_unit_test(the_others_learn_that_a_rank_is_being_ended),
	};

	/* Two directories and an array. */
	n_made = 3;
	return cmocka_run_group_tests(tests, setup, teardown);
}
