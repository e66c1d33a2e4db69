/* SPDX-License-Identifier: Apache-2.0 */
/*
 * parallel_for.h - jobs that are done by a few threads, one after the other each.
 *
 * Not the pool's threads: a job may wait for what the pool decodes and encodes for it.
 */
#ifndef PYTREEFS_WORKERS_H
#define PYTREEFS_WORKERS_H

#include <stddef.h>
#include <stdint.h>

#define WORKER_BYTES ((size_t)4 << 20)

struct worker {
	void *buf; /* WORKER_BYTES of its own */
};

/* Job number i. A failure ends the run. */
typedef int worker_fn(void *arg, size_t i, struct worker *worker);
/*
 * Jobs 0 to n - 1, begun in that order by that many threads. Returns the error of the first that
 * failed, with its note, after all have ended; -EINTR when the user wants to end.
 */
int parallel_for(unsigned threads, size_t n, worker_fn *fn, void *arg);

#endif
