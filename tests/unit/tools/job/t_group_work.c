/* SPDX-License-Identifier: Apache-2.0 */
/* t_group_work.c - meetings of ranks, what stops them, and how work is shared. */
#include "tests/unit/lib/unit.h"

#include <unistd.h>

#include "tests/unit/lib/peers_hub.h"

#include "tools/cli/interrupt.h"
#include "tools/job/group_work.h"

static struct rank_group *group[HUB_MAX];
static struct progress bar[HUB_MAX];

static void groups_open(int size)
{
	hub_open(size);
	/* The one that begins last is asked by interrupt_check(): rank 0. */
	for (int i = size - 1; i >= 0; i--) {
		assert_int_equal(group_new(&hub.rank[i], &group[i]), 0);
		progress_begin(&bar[i], "work", true);
		group_work_begin(group[i], &bar[i]);
	}
}

static int end_one(int rank, void *arg)
{
	group_work_end(group[rank]);
	progress_end(&bar[rank]);
	return group_end(group[rank], 0);
}

static void groups_close(void)
{
	int status[HUB_MAX];

	hub_run(end_one, NULL, status);
	hub_close();
}

/* ---- meetings ---- */

static int meet_with(int rank, void *arg)
{
	int r = ((const int *)arg)[rank];

	return group_reduce(group[rank], r < 0 ? fail(r, "rank %d is unhappy", rank) : r);
}

static void the_worst_result_is_that_of_all(void **state)
{
	static const struct {
		int mine[3], all;
	} cases[] = {
		{ { 0, 0, 0 }, 0 },
		{ { 0, 0, -EIO }, -EIO },
		{ { -ENOSPC, 0, 0 }, -ENOSPC },
		{ { -ECANCELED, 0, -EIO }, -EIO },
		{ { -ECANCELED, -EIO, -ECANCELED }, -EIO },
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		int got[HUB_MAX];

		groups_open(3);
		hub_run(meet_with, (void *)cases[i].mine, got);
		for (int rank = 0; rank < 3; rank++) {
			assert_int_equal(got[rank], cases[i].all);
			assert_int_equal(group[rank]->agreed, cases[i].all < 0);
		}
		groups_close();
	}
}

static int receive_from_rank_0(int rank, void *arg)
{
	const int *lead = arg;
	auto_buf text = { 0 };
	int r = rank == 0 ? *lead : -EDOM;

	if (rank == 0 && r >= 0)
		assert_int_equal(buf_add_str(&text, "a name"), 0);
	r = group_broadcast(group[rank], r < 0 ? fail(r, "no name") : r, &text);
	if (r >= 0)
		assert_string_equal(buf_str(&text), "a name");
	return r;
}

static void a_text_of_rank_0_reaches_all(void **state)
{
	static const int results[] = { 0, -EEXIST };

	for (size_t i = 0; i < ARRAY_LEN(results); i++) {
		int got[HUB_MAX];

		groups_open(4);
		hub_run(receive_from_rank_0, (void *)&results[i], got);
		for (int rank = 0; rank < 4; rank++)
			assert_int_equal(got[rank], results[i]);
		groups_close();
	}
}

static int gather_names(int rank, void *arg)
{
	struct buf from[HUB_MAX] = { { 0 } };
	char mine[16];
	int r;

	snprintf(mine, sizeof(mine), "rank %d", rank);
	r = group_gather(group[rank], 0, span_str(mine), rank ? NULL : from);
	for (int i = 1; i < hub.size && rank == 0; i++) {
		snprintf(mine, sizeof(mine), "rank %d", i);
		assert_true(span_eq(buf_span(&from[i]), span_str(mine)));
		buf_release(&from[i]);
	}
	return r;
}

static void rank_0_receives_the_text_of_each(void **state)
{
	int got[HUB_MAX];

	groups_open(4);
	hub_run(gather_names, NULL, got);
	for (int rank = 0; rank < 4; rank++)
		assert_int_equal(got[rank], 0);
	groups_close();
}

/* ---- who is not there any more ---- */

static int end_instead(int rank, void *arg)
{
	int r = rank == *(const int *)arg ? fail(-EDOM, "had enough") :
					    group_reduce(group[rank], 0);

	group_work_end(group[rank]);
	progress_end(&bar[rank]);
	assert_true(r == -EDOM || r == -EIO);
	return group_end(group[rank], r);
}

static void a_rank_that_has_ended_fails_the_meeting(void **state)
{
	for (int who = 0; who < 3; who++) {
		int got[HUB_MAX];

		groups_open(3);
		hub_run(end_instead, &who, got);
		for (int rank = 0; rank < 3; rank++)
			assert_true(got[rank] < 0 || got[rank] == 1);
		hub_close();
	}
}

static int fail_or_watch(int rank, void *arg)
{
	int r = 0;

	if (rank)
		return group_reduce(group[rank], fail(-ENOSPC, "the disk is full"));
	for (int i = 0; i < 10000 && r >= 0; i++) {
		r = interrupt_check();
		usleep(5000);
	}
	assert_int_equal(r, -ECANCELED);
	assert_non_null(strstr(err_text(r), "the disk is full"));
	return group_reduce(group[rank], r);
}

static void a_failure_reaches_a_working_rank_before_the_next_call(void **state)
{
	int got[HUB_MAX];

	groups_open(2);
	assert_int_equal(interrupt_check(), 0);
	hub_run(fail_or_watch, NULL, got);
	assert_int_equal(got[0], -ENOSPC);
	assert_int_equal(got[1], -ENOSPC);
	/* It was said of that meeting, not of the next one. */
	usleep(200000);
	assert_int_equal(interrupt_check(), 0);
	groups_close();
	assert_int_equal(interrupt_check(), 0);
}

/* ---- work ---- */

static int do_some(int rank, void *arg)
{
	progress_add(&bar[rank], 100 + (unsigned)rank);
	return group_reduce(group[rank], 0);
}

static void the_bar_of_rank_0_shows_what_all_have_done(void **state)
{
	int got[HUB_MAX];

	groups_open(3);
	hub_run(do_some, NULL, got);
	assert_int_equal(atomic_load(&bar[0].done), 303);
	hub_run(do_some, NULL, got);
	assert_int_equal(atomic_load(&bar[0].done), 606);
	groups_close();
}

static void shares_are_about_equal_and_alike_on_all_ranks(void **state)
{
	enum { N = 100 };
	uint64_t bytes[N], load[4] = { 0 }, total = 0;
	int first[N];

	for (int i = 0; i < N; i++)
		total += bytes[i] = (uint64_t)(i * 7919 % 101) << 20;
	groups_open(4);
	for (int rank = 0; rank < 4; rank++) {
		int owner[N];

		for (int i = 0; i < N; i++)
			owner[i] = i == 50 ? 3 : -1;
		assert_int_equal(group_split(group[rank], N, bytes, owner), 0);
		assert_int_equal(owner[50], 3);
		if (rank == 0)
			memcpy(first, owner, sizeof(first));
		assert_memory_equal(first, owner, sizeof(first));
	}
	for (int i = 0; i < N; i++) {
		assert_in_range(first[i], 0, 3);
		load[first[i]] += bytes[i];
	}
	for (int rank = 0; rank < 4; rank++)
		assert_in_range(load[rank], total / 4 - ((uint64_t)8 << 20),
				total / 4 + ((uint64_t)8 << 20));
	groups_close();
}

static void one_process_meets_nobody(void **state)
{
	int owner[2] = { -1, -1 };
	const uint64_t bytes[2] = { 5, 0 };

	assert_int_equal(group_reduce(NULL, -EIO), -EIO);
	assert_int_equal(group_broadcast(NULL, 3, NULL), 3);
	assert_int_equal(group_split(NULL, 2, bytes, owner), 0);
	assert_int_equal(owner[0] | owner[1], 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_worst_result_is_that_of_all),
		cmocka_unit_test(a_text_of_rank_0_reaches_all),
		cmocka_unit_test(rank_0_receives_the_text_of_each),
		cmocka_unit_test(a_rank_that_has_ended_fails_the_meeting),
		cmocka_unit_test(a_failure_reaches_a_working_rank_before_the_next_call),
		cmocka_unit_test(the_bar_of_rank_0_shows_what_all_have_done),
		cmocka_unit_test(shares_are_about_equal_and_alike_on_all_ranks),
		cmocka_unit_test(one_process_meets_nobody),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
