/*
 * t_pool.c - runs, errors of the lowest item, posted jobs, and the byte budget.
 */
#include "tests/unit/unit.h"

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "core/base/budget.h"
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

static void a_budget_refuses_what_never_fits(void **state)
{
	struct budget b;

	budget_init(&b, "read_budget", 100);
	assert_int_equal(budget_take(&b, 101), -EFBIG);
	assert_string_equal(err_text(-EFBIG), "an operation needs 101 bytes, read_budget allows 100");
	assert_int_equal(budget_take(&b, 60), 0);
	assert_false(budget_try(&b, 41));
	assert_true(budget_try(&b, 40));
	budget_give(&b, 100);
	assert_int_equal(b.used, 0);
	assert_int_equal(b.peak, 100);
	budget_release(&b);
}

struct taker {
	struct budget *b;
	uint64_t n;
	atomic_int *order;
	int place;
};

static void *take_some(void *arg)
{
	struct taker *t = arg;

	assert_int_equal(budget_take(t->b, t->n), 0);
	t->place = atomic_fetch_add(t->order, 1);
	budget_give(t->b, t->n);
	return NULL;
}

static void a_budget_serves_in_order(void **state)
{
	struct budget b;
	struct taker t[3];
	pthread_t th[3];
	atomic_int order = 0;

	budget_init(&b, "write_budget", 100);
	assert_int_equal(budget_take(&b, 50), 0);
	for (int i = 0; i < 3; i++) {
		/* The first needs everything; the small ones behind it do not overtake it. */
		t[i] = (struct taker){ &b, i ? 10 : 100, &order, -1 };
		pthread_create(&th[i], NULL, take_some, &t[i]);
		usleep(20000);
	}
	assert_int_equal(t[1].place, -1);
	budget_give(&b, 50);
	for (int i = 0; i < 3; i++)
		pthread_join(th[i], NULL);
	assert_int_equal(t[0].place, 0);
	budget_release(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_run_does_every_item_once),
		cmocka_unit_test(a_task_may_run_tasks),
		cmocka_unit_test(posted_jobs_run_before_the_end),
		cmocka_unit_test(a_budget_refuses_what_never_fits),
		cmocka_unit_test(a_budget_serves_in_order),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
