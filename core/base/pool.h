/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pool.h - worker threads, used in two ways.
 *
 * pool_run() runs n tasks and returns when all are done. The caller works too, so it cannot
 * deadlock, however busy the pool is. pool_post() queues a job that runs some time later:
 * decode-ahead, prefetch, and encoding while a writer continues. Tasks of pool_run() go first.
 * pool_post_idle() queues speculative work, which runs only when nothing else is queued.
 *
 * A task or job may do its own I/O (each thread has its own ring) and may wait for a cache entry
 * that another thread is filling. It never waits for a posted job.
 */
#ifndef PYTREEFS_POOL_H
#define PYTREEFS_POOL_H

#include "core/base/mem.h"

struct pool;

/* threads: 1 to LIMIT_THREADS. The threads start here, so call it after any fork. */
int pool_new(unsigned threads, struct pool **ret);
/* Run the jobs that are still queued, then end the threads. Accepts NULL. */
void pool_free(struct pool *pool);
unsigned pool_threads(const struct pool *pool);

/* One task. Returns 0, or a negative errno with a note. */
typedef int pool_fn(void *arg);
/*
 * Call fn for each of the n items of `size` bytes at args. Returns after all have ended, with the
 * error and note of the failed item of lowest index. pool may be NULL: the caller then runs all.
 */
int pool_run(struct pool *pool, pool_fn *fn, void *args, size_t size, size_t n);

/*
 * Embedded in a larger struct, which the poster owns until run() is called, and run() afterwards.
 */
struct pool_job {
	struct pool_job *next; /* protected by the pool's lock */
	void (*run)(struct pool_job *job);
};
void pool_post(struct pool *pool, struct pool_job *job);
/*
 * Queue a job that runs after all tasks and posted jobs. A long job polls pool_is_wanted(); when
 * that is true, it stops and queues itself again with pool_resume_idle(), as the first of the idle
 * jobs.
 */
void pool_post_idle(struct pool *pool, struct pool_job *job);
void pool_resume_idle(struct pool *pool, struct pool_job *job);
/* If the job is still queued as idle, make it an ordinary posted job. */
void pool_hurry(struct pool *pool, struct pool_job *job);
/* Whether a task or an ordinary job waits for a thread. */
bool pool_is_wanted(struct pool *pool);
/* The number of posted jobs of both kinds that have not ended; 0 when pool is NULL. */
unsigned pool_pending(struct pool *pool);

#endif
