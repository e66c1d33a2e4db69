/* SPDX-License-Identifier: Apache-2.0 */
/*
 * meter.h - how many bytes of decoded and parsed metadata the process holds, and how many it may.
 *
 * A file of a few kilobytes can decode to gigabytes, so what is decoded, parsed or read as a whole
 * is charged here before it is allocated: by arenas and buffers that are `metered` (arena.h,
 * buf.h), and by hand for what libraries allocate. Chunks of arrays are not: the cache and the
 * budgets count those.
 *
 * METER_FREE bytes are the process's own. What is charged beyond is taken from the caches of the
 * process: each holds so much less meanwhile. So all of them together bound the memory.
 *
 * A charge that does not fit now waits, at most METER_WAIT_NS: a caller may hold what others need.
 * When one has waited for so long in vain, large ones wait for METER_HURRY_NS only, for as long as
 * METER_HURRIED_NS: many openings at once that hold what each other needs take seconds, not
 * minutes. One that never fits is refused at once; so is one that cannot fit beside what its own
 * operation holds (meter_begin()). Any thread may call, without a lock that releasing memory takes.
 */
#ifndef PYTREEFS_METER_H
#define PYTREEFS_METER_H

#include <stdint.h>

#include "core/base/limits.h"

#define METER_FREE (32 * MiB)
#define METER_SMALL (256 * KiB)   /* charges below this may use what is reserved for them */
#define METER_RESERVED (8 * MiB)  /* so that small items open while large ones are read */
#define METER_WAIT_NS 2000000000L /* of one charge */
#define METER_HURRY_NS 50000000L
#define METER_HURRIED_NS 10000000000L

/* A cache that gives way. Without any of these nothing is refused. */
struct meter_user {
	uint64_t bytes; /* that it may give */
	/* Free what is beyond its limit less meter_taken(). */
	void (*reclaim)(void *arg);
	void *arg;
	struct meter_user *next; /* private */
};
void meter_join(struct meter_user *u);
/* Accepts one that never joined. */
void meter_leave(struct meter_user *u);

/*
 * The process may have that many bytes more before caches give way: a command that has to hold much
 * and caches little.
 */
void meter_grant(uint64_t bytes);

/* -EFBIG: it never fits; -ENOMEM: it does not fit now. Both name both numbers. */
int meter_charge(uint64_t n);
void meter_release(uint64_t n);
/*
 * The calling thread begins to read something as a whole, and keeps what it charges until
 * meter_end(): a charge that does not fit beside these is refused at once, with -EFBIG, since
 * another try would be in vain. May nest.
 */
void meter_begin(void);
void meter_end(void);
/* Bytes that no cache gives: METER_FREE and what was granted. */
uint64_t meter_free(void);
/* Bytes that each cache holds less. */
uint64_t meter_taken(void);
/* Bytes that fit now. */
uint64_t meter_room(void);
/* The largest charge that is not refused at once. */
uint64_t meter_most(void);

struct meter_stats {
	uint64_t limit, used, peak, waits, hurried, refusals;
};
void meter_stats(struct meter_stats *ret);

#endif
