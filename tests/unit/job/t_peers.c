/* SPDX-License-Identifier: Apache-2.0 */
/*
 * t_peers.c - messages and requests between ranks, and lists of ranks.
 */
#include "core/base/clock.h"
#include "tests/unit/lib/unit.h"

#include "tests/unit/lib/peers_hub.h"

#include "core/job/collective.h"

#define MS ((int64_t)1000000)
#define LONG (60 * SECOND_NS) /* so long that no rank is late */

static const struct peers_head hello = { .kind = PEERS_ANSWER, .code = 1, .id = 7 };

static void a_head_is_packed_and_parsed(void **state)
{
	const struct peers_head head = { PEERS_CHUNK, -ETIMEDOUT, 0x123456789abcdef0 };
	uint8_t bytes[PEERS_HEAD_BYTES];
	struct peers_head back;

	peers_head_pack(&head, bytes);
	peers_head_parse(bytes, &back);
	assert_memory_equal(&head, &back, sizeof(head));
}

static void a_message_is_stored_until_it_is_received(void **state)
{
	auto_of(peers_msg) struct peers_msg *m = NULL, *none = NULL;

	hub_open(2);
	assert_int_equal(peers_send(&hub.rank[0], 1, &hello, span_str("first")), 0);
	assert_int_equal(peers_send(&hub.rank[0], 1, &hello, span_str("second")), 0);
	assert_int_equal(peers_recv(&hub.rank[1], PEERS_ANSWER, 8, 0, clock_ns() + 5 * MS, &none),
			 -ETIMEDOUT);
	assert_int_equal(peers_recv(&hub.rank[1], PEERS_ANSWER, 7, 1, clock_ns() + 5 * MS, &none),
			 -ETIMEDOUT);
	assert_null(none);
	assert_int_equal(peers_recv(&hub.rank[1], PEERS_ANSWER, 7, -1, clock_ns() + LONG, &m), 0);
	assert_true(span_eq(buf_span(&m->body), span_str("first")));
	assert_int_equal(m->from, 0);
	assert_int_equal(peers_send(&hub.rank[0], 2, &hello, span_str("")), -EINVAL);
	hub_close();
}

static void unwanted_messages_are_dropped(void **state)
{
	static const uint64_t left[] = { 1, 2, 6 };

	hub_open(2);
	for (uint64_t id = 1; id <= 6; id++) {
		const struct peers_head head = { .kind = PEERS_VOTE, .id = id };

		assert_int_equal(peers_send(&hub.rank[0], 1, &head, span_str("x")), 0);
	}
	assert_int_equal(peers_send(&hub.rank[0], 1, &hello, span_str("another kind")), 0);
	peers_drop(&hub.rank[1], PEERS_VOTE, 3, 5);
	peers_drop(&hub.rank[1], PEERS_ANSWER, 8, UINT64_MAX);
	peers_drop(&hub.rank[0], PEERS_VOTE, 0, UINT64_MAX);
	for (size_t i = 0; i < ARRAY_LEN(left); i++) {
		auto_of(peers_msg) struct peers_msg *m = NULL;

		assert_int_equal(peers_recv(&hub.rank[1], PEERS_VOTE, left[i], 0, 0, &m), 0);
	}
	for (uint64_t id = 3; id <= 5; id++) {
		struct peers_msg *m;

		assert_int_equal(peers_recv(&hub.rank[1], PEERS_VOTE, id, 0, 0, &m), -ETIMEDOUT);
	}
	/* After the last message of the box was dropped, the next one is still found. */
	peers_drop(&hub.rank[1], PEERS_ANSWER, 0, UINT64_MAX);
	assert_null(hub.rank[1].box);
	assert_int_equal(peers_send(&hub.rank[0], 1, &hello, span_str("next")), 0);
	{
		auto_of(peers_msg) struct peers_msg *m = NULL;

		assert_int_equal(peers_recv(&hub.rank[1], PEERS_ANSWER, 7, 0, 0, &m), 0);
		assert_true(span_eq(buf_span(&m->body), span_str("next")));
	}
	hub_close();
}

static void echo(void *arg, const struct peers_msg *m)
{
	struct peers *p = arg;

	if (m->body.n == 0)
		peers_reply(p, m, fail(-EDOM, "nothing was said"), span_of(NULL, 0));
	else
		peers_reply(p, m, 0, buf_span(&m->body));
}

static void a_request_is_answered_or_refused(void **state)
{
	auto_buf answer = { 0 };
	int64_t soon = clock_ns() + LONG;

	hub_open(2);
	assert_int_equal(peers_call(&hub.rank[0], 1, PEERS_CHUNK, span_str("x"), soon, &answer),
			 -ENOTCONN);
	assert_int_equal(peers_serve(&hub.rank[1], 2, echo, &hub.rank[1]), 0);
	assert_int_equal(peers_call(&hub.rank[0], 1, PEERS_CHUNK, span_str("x"), soon, &answer), 0);
	assert_true(span_eq(buf_span(&answer), span_str("x")));
	assert_int_equal(peers_call(&hub.rank[0], 1, PEERS_CHUNK, span_str(""), soon, &answer),
			 -EDOM);
	assert_string_equal(err_text(-EDOM), "nothing was said");
	assert_true(span_eq(buf_span(&answer), span_str("x")));
	peers_serve_end(&hub.rank[1]);
	hub.dead[1] = true;
	assert_int_equal(peers_call(&hub.rank[0], 1, PEERS_CHUNK, span_str("x"),
				    clock_ns() + 5 * MS, &answer),
			 -ETIMEDOUT);
	hub_close();
}

static void a_request_after_serving_ended_is_refused(void **state)
{
	auto_buf answer = { 0 };
	struct peers *p;

	hub_open(2);
	p = &hub.rank[1];
	assert_int_equal(peers_serve(p, 2, echo, p), 0);
	/* The threads are being stopped, but peers_serve_end() has not returned. */
	pthread_mutex_lock(&p->lock);
	p->stopping = true;
	pthread_cond_broadcast(&p->changed);
	pthread_mutex_unlock(&p->lock);
	for (int i = 0; i < 100; i++)
		assert_int_equal(peers_call(&hub.rank[0], 1, PEERS_CHUNK, span_str("x"),
					    clock_ns() + LONG, &answer),
				 -ENOTCONN);
	peers_serve_end(p);
	hub_close();
}

/* ---- a suspended machine ---- */

static int64_t ahead_ns; /* how far this clock is ahead of the kernel's */
static unsigned waits, still_at, sent_at;

int __real_clock_gettime(clockid_t id, struct timespec *ret);
int __wrap_clock_gettime(clockid_t id, struct timespec *ret);
int __real_pthread_cond_timedwait(pthread_cond_t *c, pthread_mutex_t *m, const struct timespec *t);
int __wrap_pthread_cond_timedwait(pthread_cond_t *c, pthread_mutex_t *m, const struct timespec *t);

int __wrap_clock_gettime(clockid_t id, struct timespec *ret)
{
	int r = __real_clock_gettime(id, ret);

	if (r == 0 && id == CLOCK_MONOTONIC)
		*ret = clock_timespec(clock_ns_of(*ret) + ahead_ns);
	return r;
}

/*
 * The machine is suspended during wait number still_at; rank 1 sends a message before wait number
 * sent_at.
 */
int __wrap_pthread_cond_timedwait(pthread_cond_t *c, pthread_mutex_t *m, const struct timespec *t)
{
	struct timespec until = clock_timespec(clock_ns_of(*t) - ahead_ns);
	int r;

	if (++waits == sent_at) {
		pthread_mutex_unlock(m);
		assert_int_equal(peers_send(&hub.rank[1], 0, &hello, span_str("at last")), 0);
		pthread_mutex_lock(m);
		return 0;
	}
	r = __real_pthread_cond_timedwait(c, m, &until);
	if (waits == still_at)
		ahead_ns += 3600 * SECOND_NS;
	return r;
}

static void a_suspended_rank_was_not_silent(void **state)
{
	auto_of(peers_msg) struct peers_msg *m = NULL;

	hub_open(2);
	waits = 0;
	still_at = 1;
	sent_at = 3;
	assert_int_equal(peers_wait(&hub.rank[0], PEERS_ANSWER, 7, 1, &m), 0);
	assert_true(span_eq(buf_span(&m->body), span_str("at last")));
	assert_int_equal(waits, 3);
	still_at = sent_at = 0;
	hub_close();
}

static void lists_of_ranks(void **state)
{
	static const struct {
		const char *active;
		int primary, r;
		unsigned n;
		int first;
	} cases[] = {
		{ NULL, 0, 0, 4, 0 },         { "0-3", -1, 0, 4, 0 },
		{ "1:3", -1, 0, 2, 1 },       { "2-3", 3, 0, 2, 3 },
		{ "0-4", -1, -EINVAL, 0, 0 }, { "", -1, -EINVAL, 0, 0 },
		{ "3-1", -1, -EINVAL, 0, 0 }, { "1,2", -1, -EINVAL, 0, 0 },
		{ "1:", -1, -EINVAL, 0, 0 },  { "1-2", 0, -EINVAL, 0, 0 },
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct collective *j = NULL;
		struct collective_opts o;

		hub_open(4);
		o = (struct collective_opts){ .peers = &hub.rank[2],
					      .active = cases[i].active,
					      .primary = cases[i].primary };
		assert_int_equal(collective_new(&o, NULL, NULL, &j), cases[i].r);
		if (cases[i].r == 0) {
			assert_int_equal(j->n_active, cases[i].n);
			assert_int_equal(j->primary, cases[i].first);
			assert_int_equal(j->peers->rank, 2);
		}
		collective_free(j);
		hub_close();
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_head_is_packed_and_parsed),
		cmocka_unit_test(a_message_is_stored_until_it_is_received),
		cmocka_unit_test(unwanted_messages_are_dropped),
		cmocka_unit_test(a_request_is_answered_or_refused),
		cmocka_unit_test(a_request_after_serving_ended_is_refused),
		cmocka_unit_test(a_suspended_rank_was_not_silent),
		cmocka_unit_test(lists_of_ranks),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
