/* SPDX-License-Identifier: Apache-2.0 */
/*
 * t_pool.c - runs, the error of the lowest item, posted jobs.
 */
#include "tests/unit/lib/unit.h"

#include <semaphore.h>
#include <stdatomic.h>
#include <unistd.h>

#include "core/base/pool.h"

struct item {
	int in, out;
};

static int square(void *arg)
{
	struct item *i = arg;

	i->out = i->in * i->in;
	return i->in % 100 == 77 ? fail(-EIO, "item %d", i->in) : 0;
}

static void a_run_does_every_item_once(void **state)
{
	static struct item items[5000];
	struct pool *pools[2] = { NULL, NULL };

	assert_int_equal(pool_new(3, &pools[1]), 0);
	for (int p = 0; p < 2; p++) {
		for (int i = 0; i < 5000; i++)
			items[i] = (struct item){ i, -1 };
		assert_int_equal(pool_run(pools[p], square, items, sizeof(*items), 5000), -EIO);
		/* The lowest failed item decides, whatever the order of the threads. */
		assert_string_equal(err_text(-EIO), "item 77");
		for (int i = 0; i < 5000; i++)
			assert_int_equal(items[i].out, i * i);
	}
	pool_free(pools[1]);
}

struct nested {
	struct pool *pool;
	struct item items[20];
};

static int run_inside(void *arg)
{
	struct nested *n = arg;

	return pool_run(n->pool, square, n->items, sizeof(*n->items), 20);
}

static void a_task_may_run_tasks(void **state)
{
	static struct nested n[50];
	struct pool *pool;

	assert_int_equal(pool_new(2, &pool), 0);
	for (int i = 0; i < 50; i++) {
		n[i].pool = pool;
		for (int k = 0; k < 20; k++)
			n[i].items[k] = (struct item){ k, -1 };
	}
	assert_int_equal(pool_run(pool, run_inside, n, sizeof(*n), 50), 0);
	assert_int_equal(n[49].items[19].out, 361);
	pool_free(pool);
}

struct job {
	struct pool_job job;
	atomic_int *count;
};

static void job_run(struct pool_job *j)
{
	usleep(1000);
	atomic_fetch_add(container_of(j, struct job, job)->count, 1);
}

static void posted_jobs_run_before_the_end(void **state)
{
	static struct job jobs[50];
	atomic_int count = 0;
	struct pool *pool;

	assert_int_equal(pool_new(2, &pool), 0);
	for (int i = 0; i < 50; i++) {
		jobs[i] = (struct job){ { NULL, job_run }, &count };
		pool_post(pool, &jobs[i].job);
	}
	pool_free(pool);
	assert_int_equal(count, 50);
}

struct ordered {
	struct pool_job job;
	struct pool *pool;
	atomic_int *turn;
	int at; /* its position in the order in which jobs ran */
	bool wanted;
};

static void ordered_run(struct pool_job *j)
{
	struct ordered *o = container_of(j, struct ordered, job);

	o->wanted = pool_is_wanted(o->pool);
	o->at = atomic_fetch_add(o->turn, 1);
}

static sem_t all_posted;

static void first_run(struct pool_job *j)
{
	while (sem_wait(&all_posted) < 0)
		;
	ordered_run(j);
}

static void idle_jobs_come_last(void **state)
{
	struct ordered first, idle[3], urgent;
	atomic_int turn = 0;
	struct pool *pool;

	assert_int_equal(pool_new(1, &pool), 0);
	assert_int_equal(sem_init(&all_posted, 0, 0), 0);
	first = (struct ordered){ { NULL, first_run }, pool, &turn, -1, false };
	urgent = (struct ordered){ { NULL, ordered_run }, pool, &turn, -1, false };
	for (int i = 0; i < 3; i++)
		idle[i] = urgent;
	assert_int_equal(pool_pending(pool), 0);
	pool_post(pool, &first.job);
	pool_post_idle(pool, &idle[0].job);
	pool_post_idle(pool, &idle[1].job);
	pool_resume_idle(pool, &idle[2].job);
	pool_post(pool, &urgent.job);
	/* Hurry the last one of the queue twice; the second time it is no longer an idle job. */
	pool_hurry(pool, &idle[1].job);
	pool_hurry(pool, &idle[1].job);
	assert_int_equal(pool_pending(pool), 5);
	sem_post(&all_posted);
	while (pool_pending(pool))
		usleep(1000);
	pool_free(pool);
	sem_destroy(&all_posted);
	assert_int_equal(pool_pending(NULL), 0);
	assert_int_equal(first.at, 0);
	assert_true(first.wanted);
	assert_int_equal(urgent.at, 1);
	assert_int_equal(idle[1].at, 2);
	assert_int_equal(idle[2].at, 3);
	assert_int_equal(idle[0].at, 4);
	assert_false(idle[0].wanted);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_run_does_every_item_once),
		cmocka_unit_test(a_task_may_run_tasks),
		cmocka_unit_test(posted_jobs_run_before_the_end),
		cmocka_unit_test(idle_jobs_come_last),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
