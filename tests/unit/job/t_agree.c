/* SPDX-License-Identifier: Apache-2.0 */
/*
 * t_agree.c - ranks agree on one decision: the worst result, missing ranks, late and repeated
 * votes, and answers that belong to one agreement.
 */
#include "tests/unit/lib/unit.h"

#include <unistd.h>

#include "core/base/clock.h"
#include "core/job/agree.h"
#include "tests/unit/lib/peers_hub.h"

#define MS ((int64_t)1000000)
#define LONG (60 * SECOND_NS) /* so long that no rank is late */
#define NOTHING span_of(NULL, 0)
#define ABSENT 1 /* in place of a vote */
#define NOT_ACTIVE 2

struct vote_case {
	int size, root, vote[4], result;
	const char *says; /* a part of the note on all ranks, or NULL */
};

/* Waits until this many messages have arrived at a rank. */
static void await_messages(struct peers *p, int n)
{
	for (int found = -1; found < n;) {
		if (found >= 0)
			usleep(1000);
		found = 0;
		pthread_mutex_lock(&p->lock);
		for (const struct peers_msg *m = p->box; m; m = m->next)
			found++;
		pthread_mutex_unlock(&p->lock);
	}
}

/*
 * If a rank is absent, the root begins to wait when all others have voted, so no other rank can be
 * late.
 */
static int vote(int rank, void *arg)
{
	const struct vote_case *c = arg;
	bool active[HUB_MAX], all_come = true;
	int others = 0;
	struct agreement a = {
		.peers = &hub.rank[rank], .root = c->root, .active = active, .id = 3
	};
	bool answered = false;
	int r;

	for (int i = 0; i < c->size; i++) {
		active[i] = c->vote[i] != NOT_ACTIVE;
		all_come &= c->vote[i] != ABSENT;
		others += i != c->root && c->vote[i] <= 0;
	}
	if (c->vote[rank] > 0)
		return 0;
	if (!all_come && rank == c->root)
		await_messages(&hub.rank[rank], others);
	/* The other ranks wait for the root as long as it takes. */
	a.deadline = clock_ns() + (all_come || rank != c->root ? LONG : 100 * MS);
	r = c->vote[rank] < 0 ? fail(c->vote[rank], "reason of %d", rank) : 0;
	r = agree(&a, r, NOTHING, NULL, &answered);
	assert_true(answered);
	assert_int_equal(r, c->result);
	if (c->says)
		assert_non_null(strstr(err_text(r), c->says));
	return r;
}

static void all_ranks_get_the_worst_result(void **state)
{
	static const struct vote_case cases[] = {
		{ 3, 0, { 0, 0, 0 }, 0, NULL },
		{ 3, 0, { 0, 0, -ENOSPC }, -ENOSPC, "rank 2: reason of 2" },
		{ 3, 0, { -EIO, 0, 0 }, -EIO, "reason of 0" },
		{ 3, 0, { 0, -EIO, -ENOSPC }, -EIO, "rank 1: reason of 1" },
		{ 3, 0, { -EPERM, -EIO, 0 }, -EPERM, "reason of 0" },
		/* Another root; its own error comes first. */
		{ 3, 2, { 0, -EIO, 0 }, -EIO, "rank 1: reason of 1" },
		{ 3, 2, { -EIO, 0, -EPERM }, -EPERM, "reason of 2" },
		/* A rank that stopped because of another one is not the cause. */
		{ 3, 0, { -ECANCELED, 0, -EIO }, -EIO, "rank 2: reason of 2" },
		{ 3, 0, { 0, -ECANCELED, -EIO }, -EIO, "rank 2: reason of 2" },
		{ 3, 0, { 0, -ECANCELED, 0 }, -ECANCELED, "rank 1: reason of 1" },
		/* A vote of -ETIMEDOUT is a vote. */
		{ 3, 0, { 0, -ETIMEDOUT, 0 }, -ETIMEDOUT, "rank 1: reason of 1" },
		/* A missing rank is reported before the errors of others. */
		{ 3, 0, { 0, ABSENT, 0 }, -ETIMEDOUT, "rank 1 did not respond in time" },
		{ 4, 0, { -EIO, ABSENT, -EIO, ABSENT }, -ETIMEDOUT, "rank 1, 3 did not respond" },
		{ 4, 3, { ABSENT, -ECANCELED, 0, 0 }, -ETIMEDOUT, "rank 0 did not respond" },
		/* An inactive rank is not waited for. */
		{ 4, 1, { NOT_ACTIVE, 0, 0, NOT_ACTIVE }, 0, NULL },
		{ 4, 1, { NOT_ACTIVE, 0, -EIO, NOT_ACTIVE }, -EIO, "rank 2: reason of 2" },
		{ 1, 0, { 0 }, 0, NULL },
		{ 1, 0, { -EPERM }, -EPERM, "reason of 0" },
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		int result[HUB_MAX];

		hub_open(cases[i].size);
		hub_run(vote, (void *)(uintptr_t)&cases[i], result);
		for (int k = 0; k < cases[i].size; k++)
			assert_int_equal(result[k], cases[i].vote[k] > 0 ? 0 : cases[i].result);
		hub_close();
	}
}

/* ---- the single functions ---- */

static struct agreement of(int rank, uint64_t id)
{
	return (struct agreement){ .peers = &hub.rank[rank],
				   .id = id,
				   .deadline = clock_ns() + LONG,
				   .within = "some_option" };
}

static void release(struct buf *b, size_t n)
{
	for (size_t i = 0; i < n; i++)
		buf_release(&b[i]);
}

static void the_root_gets_bytes_of_each_rank_and_answers_each(void **state)
{
	struct agreement root, one, two;
	struct buf got[3] = { { 0 } };
	auto_buf answer = { 0 };
	bool answered = false;

	hub_open(3);
	root = of(0, 5);
	one = of(1, 5);
	two = of(2, 5);
	assert_int_equal(agree_vote(&one, 0, span_str("of one")), 0);
	assert_int_equal(agree_vote(&two, 0, NOTHING), 0);
	assert_int_equal(agree_collect(&root, 0, got), 0);
	assert_int_equal(got[0].n, 0);
	assert_true(span_eq(buf_span(&got[1]), span_str("of one")));
	assert_int_equal(got[2].n, 0);
	assert_int_equal(agree_answer(&root, 1, 1, span_str("go on")), 0);
	assert_int_equal(agree_answer(&root, 2, fail(-EXDEV, "not you"), NOTHING), 0);
	assert_int_equal(agree_await(&one, &answer, &answered), 1);
	assert_true(answered);
	assert_true(span_eq(buf_span(&answer), span_str("go on")));
	assert_int_equal(agree_await(&two, &answer, &answered), -EXDEV);
	assert_string_equal(err_text(-EXDEV), "not you");
	assert_true(span_eq(buf_span(&answer), span_str("go on")));
	/* No other answer was sent. */
	one.deadline = two.deadline = 0;
	assert_int_equal(agree_await(&two, NULL, &answered), -ETIMEDOUT);
	assert_false(answered);
	release(got, 3);
	hub_close();
}

static void rounds_and_agreements_are_not_mixed_up(void **state)
{
	struct agreement root, one;
	struct buf got[2] = { { 0 } };

	hub_open(2);
	root = of(0, 5);
	one = of(1, 5);
	/* The vote of the second round arrives first, and that of another agreement before both. */
	one.id = 6;
	assert_int_equal(agree_vote(&one, fail(-EDOM, "of another"), NOTHING), 0);
	one.id = 5;
	one.round = 1;
	assert_int_equal(agree_vote(&one, fail(-ERANGE, "in the second"), NOTHING), 0);
	one.round = 0;
	assert_int_equal(agree_vote(&one, 0, span_str("first")), 0);
	assert_int_equal(agree_collect(&root, 0, got), 0);
	assert_true(span_eq(buf_span(&got[1]), span_str("first")));
	root.round = 1;
	assert_int_equal(agree_collect(&root, 0, NULL), -ERANGE);
	root.deadline = 0;
	root.round = 2;
	assert_int_equal(agree_collect(&root, 0, NULL), -ETIMEDOUT);
	assert_string_equal(err_text(-ETIMEDOUT), "rank 1 did not respond within some_option");
	/* An answer is for all rounds of its agreement. */
	root.id = 7;
	assert_int_equal(agree_answer(&root, -1, 2, NOTHING), 0);
	root.id = 5;
	assert_int_equal(agree_answer(&root, -1, 3, NOTHING), 0);
	assert_int_equal(agree_await(&one, NULL, NULL), 3);
	release(got, 2);
	hub_close();
}

static void the_newest_vote_counts_and_late_ones_are_forgotten(void **state)
{
	struct agreement root, one;
	struct buf got[2] = { { 0 } };

	hub_open(2);
	root = of(0, 5);
	one = of(1, 5);
	assert_int_equal(agree_vote(&one, fail(-EIO, "a try before"), NOTHING), 0);
	assert_int_equal(agree_vote(&one, 0, span_str("old")), 0);
	assert_int_equal(agree_vote(&one, 0, span_str("new")), 0);
	assert_int_equal(agree_collect(&root, 0, got), 0);
	assert_true(span_eq(buf_span(&got[1]), span_str("new")));
	for (one.id = 4; one.id <= 7; one.id++)
		for (one.round = 0; one.round < 4; one.round++)
			assert_int_equal(agree_vote(&one, 0, span_str("late")), 0);
	agree_forget(&hub.rank[0], 5, 6);
	root.deadline = 0;
	for (root.id = 4; root.id <= 7; root.id++)
		for (root.round = 0; root.round < 4; root.round++)
			assert_int_equal(agree_collect(&root, 0, NULL),
					 root.id == 5 || root.id == 6 ? -ETIMEDOUT : 0);
	assert_null(hub.rank[0].box);
	release(got, 2);
	hub_close();
}

static void an_interrupted_rank_does_not_wait(void **state)
{
	struct agreement root, one;
	bool answered = true;

	hub_open(3);
	root = of(0, 5);
	one = of(1, 5);
	assert_int_equal(agree_vote(&one, fail(-EIO, "of one"), NOTHING), 0);
	peers_interrupt(&hub.rank[0]);
	peers_interrupt(&hub.rank[1]);
	/*
	 * A vote that has arrived counts, since its error is a better reason than the interruption.
	 */
	assert_int_equal(agree_collect(&root, 0, NULL), -EIO);
	assert_int_equal(agree_collect(&root, 0, NULL), -ECANCELED);
	assert_int_equal(agree_await(&one, NULL, &answered), -ECANCELED);
	assert_false(answered);
	assert_int_equal(agree_answer(&root, -1, fail(-ECANCELED, "by the root"), NOTHING), 0);
	assert_int_equal(agree_await(&one, NULL, &answered), -ECANCELED);
	assert_true(answered);
	assert_string_equal(err_text(-ECANCELED), "by the root");
	hub_close();
}

static int wait_in_vain(void *arg, enum peers_kind kind, uint64_t id, int from,
			struct peers_msg **ret)
{
	struct peers *p = arg;

	return from == 2 ? fail(-ETIMEDOUT, "rank 2 is lost") :
			   peers_recv(p, kind, id, from, 0, ret);
}

static void an_error_of_wait_is_the_result_of_that_rank(void **state)
{
	struct agreement root, one;

	hub_open(3);
	root = of(0, 5);
	one = of(1, 5);
	root.wait = wait_in_vain;
	root.arg = root.peers;
	assert_int_equal(agree_vote(&one, fail(-EIO, "of one"), NOTHING), 0);
	assert_int_equal(agree_collect(&root, 0, NULL), -EIO);
	assert_int_equal(agree_vote(&one, 0, NOTHING), 0);
	assert_int_equal(agree_collect(&root, 0, NULL), -ETIMEDOUT);
	assert_string_equal(err_text(-ETIMEDOUT), "rank 2 is lost");
	hub_close();
}

static int send_to_all_but_1(struct peers *p, int to, const struct peers_head *head,
			     struct span body)
{
	return to == 1 ? fail(-EPIPE, "rank 1 is unreachable") : hub_send(p, to, head, body);
}

static void an_answer_that_cannot_be_sent_is_an_error_and_the_others_get_theirs(void **state)
{
	static const struct peers_ops ops = { .send = send_to_all_but_1, .free = hub_free };
	struct agreement root, two;

	hub_open(3);
	hub.rank[0].ops = &ops;
	root = of(0, 5);
	two = of(2, 5);
	assert_int_equal(agree_answer(&root, -1, 3, NOTHING), -EPIPE);
	assert_int_equal(agree_await(&two, NULL, NULL), 3);
	hub_close();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(all_ranks_get_the_worst_result),
		cmocka_unit_test(the_root_gets_bytes_of_each_rank_and_answers_each),
		cmocka_unit_test(rounds_and_agreements_are_not_mixed_up),
		cmocka_unit_test(the_newest_vote_counts_and_late_ones_are_forgotten),
		cmocka_unit_test(an_interrupted_rank_does_not_wait),
		cmocka_unit_test(an_error_of_wait_is_the_result_of_that_rank),
		cmocka_unit_test(
			an_answer_that_cannot_be_sent_is_an_error_and_the_others_get_theirs),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
