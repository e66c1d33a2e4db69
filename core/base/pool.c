/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pool.c - worker threads: pool_run() first, posted jobs after it.
 *
 * A run is a counter from which its caller and idle workers take item numbers, so it needs no queue
 * entries of its own and ends as soon as the last item does.
 */
#include "core/base/pool.h"

#include <pthread.h>
#include <stdio.h>

#include "core/base/err.h"
#include "core/base/limits.h"
#include "core/base/lock.h"
#include "core/base/thread.h"

/* One pool_run(), on its caller's stack. The pool's lock protects all fields. */
struct run {
	struct run *next;
	pool_fn *fn;
	char *args;
	size_t size, n;
	size_t taken, ended;
	size_t failed_at;     /* index of the lowest failed item; n when none failed */
	struct err_note note; /* of that item */
	pthread_cond_t done;
};

struct pool {
	pthread_mutex_t lock;
	pthread_cond_t work;
	struct run *runs; /* runs that have items left; protected by lock */
	struct queue {
		struct pool_job *head, **tail; /* oldest first */
	} posted, idle;                        /* protected by lock */
	unsigned pending;                      /* jobs queued or running; protected by lock */
	bool stop;                             /* protected by lock */
	unsigned n;
	pthread_t thread[LIMIT_THREADS];
};

/* Run the next item; there is one. Called with the lock held, which is released while fn runs. */
static void run_item(struct pool *pool, struct run *run)
{
	size_t i = run->taken++;
	struct run **at = &pool->runs;
	int r;

	if (run->taken == run->n) {
		while (*at != run)
			at = &(*at)->next;
		*at = run->next;
	}
	pthread_mutex_unlock(&pool->lock);
	r = run->fn(run->args + i * run->size);
	pthread_mutex_lock(&pool->lock);
	if (r < 0 && i < run->failed_at) {
		run->failed_at = i;
		err_save(r, &run->note);
	}
	if (++run->ended == run->n)
		pthread_cond_signal(&run->done);
}

/* Called with the lock held. */
static void queue_add(struct pool *pool, struct queue *q, struct pool_job *job)
{
	job->next = NULL;
	*q->tail = job;
	q->tail = &job->next;
	pthread_cond_signal(&pool->work);
}

/* Called with the lock held. NULL when the queue is empty. */
static struct pool_job *queue_take(struct queue *q)
{
	struct pool_job *job = q->head;

	if (!job)
		return NULL;
	q->head = job->next;
	if (!q->head)
		q->tail = &q->head;
	return job;
}

static void *worker(void *arg)
{
	struct pool *pool = arg;
	struct pool_job *job;

	pthread_mutex_lock(&pool->lock);
	for (;;) {
		if (pool->runs) {
			run_item(pool, pool->runs);
		} else if ((job = queue_take(&pool->posted)) || (job = queue_take(&pool->idle))) {
			pthread_mutex_unlock(&pool->lock);
			job->run(job);
			pthread_mutex_lock(&pool->lock);
			pool->pending--;
		} else if (pool->stop) {
			break;
		} else {
			pthread_cond_wait(&pool->work, &pool->lock);
		}
	}
	pthread_mutex_unlock(&pool->lock);
	return NULL;
}

int pool_new(unsigned threads, struct pool **ret)
{
	struct pool *pool = calloc(1, sizeof(*pool));

	if (!pool)
		return fail(-ENOMEM, "cannot start %u threads", threads);
	pthread_mutex_init(&pool->lock, NULL);
	pthread_cond_init(&pool->work, NULL);
	pool->posted.tail = &pool->posted.head;
	pool->idle.tail = &pool->idle.head;
	threads = MAX(1u, MIN(threads, (unsigned)LIMIT_THREADS));
	for (; pool->n < threads; pool->n++) {
		char name[16];
		int r;

		snprintf(name, sizeof(name), "worker-%u", pool->n);
		r = thread_start(&pool->thread[pool->n], name, worker, pool);
		if (r < 0) {
			r = fail(r, "cannot start thread %u of %u", pool->n + 1, threads);
			pool_free(pool);
			return r;
		}
	}
	*ret = pool;
	return 0;
}

void pool_free(struct pool *pool)
{
	if (!pool)
		return;
	pthread_mutex_lock(&pool->lock);
	pool->stop = true;
	pthread_cond_broadcast(&pool->work);
	pthread_mutex_unlock(&pool->lock);
	for (unsigned i = 0; i < pool->n; i++)
		pthread_join(pool->thread[i], NULL);
	pthread_cond_destroy(&pool->work);
	pthread_mutex_destroy(&pool->lock);
	free(pool);
}

unsigned pool_threads(const struct pool *pool)
{
	return pool ? pool->n : 0;
}

int pool_run(struct pool *pool, pool_fn *fn, void *args, size_t size, size_t n)
{
	struct run run = { .fn = fn, .args = args, .size = size, .n = n, .failed_at = n };

	if (!pool || n <= 1) {
		struct err_note first = { 0 };

		for (size_t i = 0; i < n; i++) {
			int r = fn(args + i * size);

			if (r < 0 && !first.code)
				err_save(r, &first);
		}
		return first.code ? err_restore(&first) : 0;
	}
	pthread_cond_init(&run.done, NULL);
	pthread_mutex_lock(&pool->lock);
	run.next = pool->runs;
	pool->runs = &run;
	pthread_cond_broadcast(&pool->work);
	while (run.taken < n)
		run_item(pool, &run);
	while (run.ended < n)
		pthread_cond_wait(&run.done, &pool->lock);
	pthread_mutex_unlock(&pool->lock);
	pthread_cond_destroy(&run.done);
	return run.failed_at < n ? err_restore(&run.note) : 0;
}

void pool_post(struct pool *pool, struct pool_job *job)
{
	auto_unlock pthread_mutex_t *held = lock_hold(&pool->lock);

	pool->pending++;
	queue_add(pool, &pool->posted, job);
}

void pool_post_idle(struct pool *pool, struct pool_job *job)
{
	auto_unlock pthread_mutex_t *held = lock_hold(&pool->lock);

	pool->pending++;
	queue_add(pool, &pool->idle, job);
}

void pool_resume_idle(struct pool *pool, struct pool_job *job)
{
	auto_unlock pthread_mutex_t *held = lock_hold(&pool->lock);
	struct queue *q = &pool->idle;

	pool->pending++;
	job->next = q->head;
	if (!q->head)
		q->tail = &job->next;
	q->head = job;
	pthread_cond_signal(&pool->work);
}

void pool_hurry(struct pool *pool, struct pool_job *job)
{
	auto_unlock pthread_mutex_t *held = lock_hold(&pool->lock);
	struct queue *q = &pool->idle;

	for (struct pool_job **at = &q->head; *at; at = &(*at)->next)
		if (*at == job) {
			*at = job->next;
			if (!*at)
				q->tail = at;
			queue_add(pool, &pool->posted, job);
			return;
		}
}

bool pool_is_wanted(struct pool *pool)
{
	auto_unlock pthread_mutex_t *held = lock_hold(&pool->lock);

	return pool->runs || pool->posted.head;
}

unsigned pool_pending(struct pool *pool)
{
	auto_unlock pthread_mutex_t *held = NULL;

	if (!pool)
		return 0;
	held = lock_hold(&pool->lock);
	return pool->pending;
}
