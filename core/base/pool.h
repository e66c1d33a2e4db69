/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pool.h - worker threads, in two ways of use.
 *
 * pool_run() runs n tasks and returns when all are done; the caller works too,
 * so it cannot deadlock, however busy the pool is. pool_post() hands over a job
 * that runs some time later: decode-ahead, prefetch, and encoding while a
 * writer goes on. Tasks of pool_run() go first. pool_post_idle() hands over what is
 * worth doing only while a thread has nothing else to do: guesses.
 *
 * A task or job may do its own I/O (each thread has its own ring) and may take a
 * cache entry that another thread is filling; it never waits for a posted job.
 */
#ifndef PYTREEFS_POOL_H
#define PYTREEFS_POOL_H

#include "core/base/mem.h"

struct pool;

/* threads: 1 to LIMIT_THREADS. Creates them: call after any fork. */
int pool_new(unsigned threads, struct pool **ret);
/* Runs what is still posted, then ends the threads. Accepts NULL. */
void pool_free(struct pool *pool);
unsigned pool_threads(const struct pool *pool);

/* One task: 0, or a negative errno with a note. */
typedef int pool_fn(void *arg);
/*
 * Call fn for each of the n items of size bytes at args. Returns the error of the lowest failed
 * item, with its note, after all have ended. pool may be NULL: the caller does all.
 */
int pool_run(struct pool *pool, pool_fn *fn, void *args, size_t size, size_t n);

/* Embedded in what the job needs; owned by the poster until run() is called, by run() after. */
struct pool_job {
	struct pool_job *next; /* protected by the pool's lock */
	void (*run)(struct pool_job *job);
};
void pool_post(struct pool *pool, struct pool_job *job);
/* After all that is posted or run. A long one asks pool_is_wanted() now and then, and is posted
 * again, by pool_resume_idle(): the first of its kind. */
void pool_post_idle(struct pool *pool, struct pool_job *job);
void pool_resume_idle(struct pool *pool, struct pool_job *job);
/* It is idle work no more, if it was posted so and has not begun. */
void pool_hurry(struct pool *pool, struct pool_job *job);
/* Whether something waits for a thread that is not idle work. */
bool pool_is_wanted(struct pool *pool);
/* Posted jobs, of either kind, that have not ended. Of no pool, 0. */
unsigned pool_pending(struct pool *pool);

#endif
