/* SPDX-License-Identifier: Apache-2.0 */
/*
 * parallel_for.h - jobs for a few threads, each of which runs one job after another.
 *
 * These are not threads of the pool, since a job may wait for data that the pool decodes and
 * encodes.
 */
#ifndef PYTREEFS_WORKERS_H
#define PYTREEFS_WORKERS_H

#include <stddef.h>
#include <stdint.h>

#define WORKER_BYTES ((size_t)4 << 20)

struct worker {
	void *buf; /* WORKER_BYTES of this worker */
};

/* Runs job i. An error ends the whole run. */
typedef int worker_fn(void *arg, size_t i, struct worker *worker);
/*
 * Run jobs 0 to n - 1, started in that order, in that many threads. Returns, after all have ended,
 * the error of the first failed job, with its note; -EINTR when the user interrupts.
 */
int parallel_for(unsigned threads, size_t n, worker_fn *fn, void *arg);

#endif
