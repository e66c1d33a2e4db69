/* SPDX-License-Identifier: Apache-2.0 */
/*
 * meter.h - how many bytes of decoded and parsed metadata the process holds, and may hold.
 *
 * A file of a few kilobytes can decode to gigabytes. So everything that is decoded, parsed or read
 * as a whole is charged here before it is allocated: by arenas and buffers that are `metered`
 * (arena.h, buf.h), and by hand for memory that libraries allocate. Chunks of arrays are not
 * charged here; the cache and the budgets count them.
 *
 * METER_FREE bytes are reserved for metadata. Any charge beyond them is taken from the caches of
 * the process, each of which shrinks by that much meanwhile. So the sum of caches, budgets and
 * METER_FREE bounds the memory.
 *
 * A charge that does not fit now waits for up to METER_WAIT_NS, because another operation may
 * release memory. After such a wait has failed, large charges wait for only METER_HURRY_NS during
 * the next METER_HURRIED_NS: when many opens block each other, they then fail within seconds, not
 * minutes (twelve steps with a `_strings.json` of 20 MB: 9 s, and 74 s without). A charge that can
 * never fit is refused at once; so is one that cannot fit beside the charges of its own operation
 * (meter_begin()).
 *
 * It is not a budget (budget.h), since whoever is charged may hold other charges, and must not wait
 * for long.
 *
 * Any thread may call, but must not hold a lock that is needed to release memory.
 */
#ifndef PYTREEFS_METER_H
#define PYTREEFS_METER_H

#include <stdint.h>

#include "core/base/limits.h"

#define METER_FREE (32 * MiB)
#define METER_SMALL (256 * KiB)   /* smaller charges may use METER_RESERVED */
#define METER_RESERVED (8 * MiB)  /* keeps small items readable while large ones are read */
#define METER_WAIT_NS 2000000000L /* the wait of one charge */
#define METER_HURRY_NS 50000000L
#define METER_HURRIED_NS 10000000000L

/* A cache that gives memory to metadata. Without any, nothing is refused. */
struct meter_user {
	uint64_t bytes; /* the most that it can give */
	/* Free memory until the cache is within its limit less meter_taken(). */
	void (*reclaim)(void *arg);
	void *arg;
	struct meter_user *next; /* private */
};
void meter_join(struct meter_user *u);
/* Accepts a user that never joined. */
void meter_leave(struct meter_user *u);

/*
 * For a command that holds much metadata and caches little: add to METER_FREE, and, while there is
 * no cache, limit charges as if there were one of that many bytes.
 */
void meter_bound(uint64_t more, uint64_t cache);

/* -EFBIG: n can never fit; -ENOMEM: n does not fit now. Both notes give both numbers. */
int meter_charge(uint64_t n);
void meter_release(uint64_t n);
/*
 * The calling thread begins to read something as a whole, and keeps what it charges until
 * meter_end(). A charge that does not fit beside these is refused at once with -EFBIG, since a
 * retry would fail again. Calls may nest.
 */
void meter_begin(void);
void meter_end(void);
/* The number of bytes by which each cache must shrink. */
uint64_t meter_taken(void);
/* The largest charge that is not refused outright. */
uint64_t meter_most(void);

struct meter_stats {
	uint64_t limit, used, peak, waits, hurried, refusals;
};
void meter_stats(struct meter_stats *ret);

#endif
