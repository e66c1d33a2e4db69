/*
 * lanes.h - jobs that are done by a few threads, one after the other each.
 *
 * Not the pool's threads: a job may wait for what the pool decodes and encodes for it.
 */
#ifndef PYTREEFS_LANES_H
#define PYTREEFS_LANES_H

#include <stddef.h>
#include <stdint.h>

#define LANE_BYTES ((size_t)4 << 20)

struct lane {
	void *buf;			/* LANE_BYTES of its own */
};

/* Job number i. A failure ends the run. */
typedef int lane_fn(void *arg, size_t i, struct lane *lane);
/*
 * Jobs 0 to n - 1, begun in that order by that many threads. Returns the error of the first that
 * failed, with its note, after all have ended; -EINTR when the user wants to end.
 */
int lanes_run(unsigned threads, size_t n, lane_fn *fn, void *arg);

#endif
