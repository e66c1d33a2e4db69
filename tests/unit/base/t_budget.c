/* SPDX-License-Identifier: Apache-2.0 */
/*
 * t_budget.c - a budget never gives more than the total, serves in order, and refuses too large
 * requests.
 */
#include "tests/unit/lib/unit.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <unistd.h>

#include "core/base/budget.h"
#include "core/base/mem.h"

static void taken_bytes_are_counted(void **state)
{
	struct budget b;

	budget_init(&b, "read_budget", 100);
	assert_int_equal(budget_take(&b, 60), 0);
	assert_true(budget_try(&b, 40));
	assert_false(budget_try(&b, 1));
	assert_false(budget_has_room(&b, 1));
	budget_give(&b, 40);
	assert_true(budget_has_room(&b, 40));
	assert_false(budget_has_room(&b, 41));
	assert_int_equal(b.used, 60);
	assert_true(budget_try(&b, 1));
	budget_give(&b, 1);
	budget_give(&b, 60);
	assert_int_equal(budget_take(&b, 0), 0);
	assert_int_equal(budget_take(&b, 100), 0);
	budget_give(&b, 100);
	assert_int_equal(b.used, 0);
	assert_int_equal(b.peak, 100);
	assert_int_equal(budget_total(&b), 100);
	budget_release(&b);
	budget_release(&b);
}

static void more_than_all_is_refused_by_name(void **state)
{
	struct budget b;

	budget_init(&b, "read_budget", 100);
	assert_int_equal(budget_take(&b, 101), -EFBIG);
	assert_non_null(strstr(err_text(-EFBIG), "read_budget allows 100"));
	assert_int_equal(budget_take(&b, UINT64_MAX), -EFBIG);
	/* A refused request does not keep its turn. */
	assert_int_equal(budget_take(&b, 100), 0);
	budget_resize(&b, 50);
	assert_false(budget_try(&b, 0));
	budget_give(&b, 100);
	assert_int_equal(budget_take(&b, 51), -EFBIG);
	budget_release(&b);
}

static void take_most_gets_the_whole_budget_if_that_is_less(void **state)
{
	struct budget b;

	budget_init(&b, "x", 100);
	assert_int_equal(budget_take_most(&b, 60), 60);
	budget_give(&b, 60);
	assert_int_equal(budget_take_most(&b, 101), 100);
	assert_false(budget_try(&b, 1));
	budget_give(&b, 100);
	budget_resize(&b, 10);
	assert_int_equal(budget_take_most(&b, UINT64_MAX), 10);
	budget_give(&b, 10);
	assert_int_equal(b.used, 0);
	budget_release(&b);
}

struct taker {
	struct budget *b;
	uint64_t n;
	atomic_int *order;
	int turn;
};

static void *take_once(void *arg)
{
	struct taker *t = arg;

	assert_int_equal(budget_take(t->b, t->n), 0);
	t->turn = atomic_fetch_add(t->order, 1);
	budget_give(t->b, t->n);
	return NULL;
}

/* Wait until n takers wait. */
static void await_takers(struct budget *b, uint64_t n)
{
	bool wait = true;

	while (wait) {
		pthread_mutex_lock(&b->lock);
		wait = b->next != b->serving + n;
		pthread_mutex_unlock(&b->lock);
		if (wait)
			usleep(1000);
	}
}

static void a_large_taker_is_not_overtaken(void **state)
{
	struct budget b;
	atomic_int order = 0;
	struct taker large = { &b, 100, &order, -1 }, small = { &b, 1, &order, -1 };
	pthread_t lt, st;

	budget_init(&b, "x", 100);
	assert_int_equal(budget_take(&b, 10), 0);
	pthread_create(&lt, NULL, take_once, &large);
	await_takers(&b, 1);
	/* There would be room for it, but it came later. */
	pthread_create(&st, NULL, take_once, &small);
	await_takers(&b, 2);
	assert_false(budget_try(&b, 1));
	budget_give(&b, 10);
	pthread_join(lt, NULL);
	pthread_join(st, NULL);
	assert_int_equal(large.turn, 0);
	assert_int_equal(small.turn, 1);
	budget_release(&b);
}

struct churner {
	struct budget *b;
	atomic_ullong *held, *most;
	unsigned seed;
};

static void *churn(void *arg)
{
	struct churner *c = arg;

	for (int i = 0; i < 2000; i++) {
		uint64_t n = (c->seed = c->seed * 1103515245 + 12345) / 65536 % 60, now;
		unsigned long long most;

		assert_int_equal(budget_take(c->b, n), 0);
		now = atomic_fetch_add(c->held, n) + n;
		most = atomic_load(c->most);
		while (now > most && !atomic_compare_exchange_weak(c->most, &most, now))
			;
		atomic_fetch_sub(c->held, n);
		budget_give(c->b, n);
	}
	return NULL;
}

static void never_more_than_the_total(void **state)
{
	struct budget b;
	atomic_ullong held = 0, most = 0;
	struct churner c[5];
	pthread_t t[5];

	budget_init(&b, "x", 100);
	for (unsigned i = 0; i < 5; i++) {
		c[i] = (struct churner){ &b, &held, &most, i };
		pthread_create(&t[i], NULL, churn, &c[i]);
	}
	for (unsigned i = 0; i < 5; i++)
		pthread_join(t[i], NULL);
	assert_true(most <= 100);
	assert_int_equal(b.used, 0);
	assert_true(b.peak <= 100 && b.peak >= most);
	budget_release(&b);
}

/* Bytes that an owner took and does not use. */
struct idle {
	struct budget b;
	uint64_t bytes[3];
	unsigned calls;
	atomic_bool in_use;
};

static bool give_one_back(void *arg)
{
	struct idle *i = arg;

	i->calls++;
	for (size_t k = 0; k < ARRAY_LEN(i->bytes) && !i->in_use; k++)
		if (i->bytes[k]) {
			budget_give(&i->b, i->bytes[k]);
			i->bytes[k] = 0;
			return true;
		}
	return false;
}

static void idle_begin(struct idle *i)
{
	budget_init(&i->b, "half of read_budget", 100);
	i->b.reclaim = give_one_back;
	i->b.reclaim_arg = i;
	for (size_t k = 0; k < ARRAY_LEN(i->bytes); k++) {
		i->bytes[k] = 30;
		assert_true(budget_try(&i->b, 30));
	}
	assert_int_equal(i->calls, 0);
}

static void idle_bytes_are_reclaimed_one_by_one(void **state)
{
	struct idle i = { 0 };

	idle_begin(&i);
	assert_int_equal(budget_take(&i.b, 10), 0);
	assert_int_equal(i.calls, 0);
	assert_false(budget_has_room(&i.b, 10));
	assert_true(budget_try(&i.b, 40));
	assert_int_equal(i.calls, 2);
	assert_int_equal(i.b.used, 80);
	assert_int_equal(budget_take(&i.b, 101), -EFBIG);
	assert_false(budget_try(&i.b, 101));
	assert_int_equal(i.calls, 2);
	assert_int_equal(budget_take(&i.b, 30), 0);
	assert_int_equal(i.calls, 3);
	assert_false(budget_try(&i.b, 50));
	assert_int_equal(i.calls, 4);
	budget_give(&i.b, 80);
	assert_int_equal(budget_used(&i.b), 0);
	budget_release(&i.b);
}

static void *take_all(void *arg)
{
	struct idle *i = arg;

	assert_int_equal(budget_take(&i->b, 100), 0);
	return NULL;
}

static void waiting_threads_reclaim_bytes_that_become_idle(void **state)
{
	struct idle i = { .in_use = true };
	pthread_t thread;

	idle_begin(&i);
	assert_int_equal(pthread_create(&thread, NULL, take_all, &i), 0);
	while (budget_has_room(&i.b, 0))
		sched_yield();
	i.in_use = false;
	budget_idle(&i.b);
	assert_int_equal(pthread_join(thread, NULL), 0);
	assert_int_equal(budget_used(&i.b), 100);
	budget_give(&i.b, 100);
	budget_release(&i.b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(taken_bytes_are_counted),
		cmocka_unit_test(idle_bytes_are_reclaimed_one_by_one),
		cmocka_unit_test(waiting_threads_reclaim_bytes_that_become_idle),
		cmocka_unit_test(more_than_all_is_refused_by_name),
		cmocka_unit_test(take_most_gets_the_whole_budget_if_that_is_less),
		cmocka_unit_test(a_large_taker_is_not_overtaken),
		cmocka_unit_test(never_more_than_the_total),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
