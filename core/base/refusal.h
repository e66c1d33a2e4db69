/* SPDX-License-Identifier: Apache-2.0 */
/*
 * refusal.h - remember errors that were expensive to find, so that the next request fails at once.
 *
 * One table of the process has them: a new error replaces the oldest. An error is remembered while
 * the caller's mark of the object (a fingerprint of its files) is unchanged, and for a few seconds
 * only, since files that the mark does not cover may change. An error that says that an object
 * needs too much memory depends on the marked files alone, so it is remembered twice as long each
 * time it occurs again. An error that says that memory was short at the time is remembered until
 * more memory is free. Any thread may call.
 */
#ifndef PYTREEFS_REFUSAL_H
#define PYTREEFS_REFUSAL_H

#include <stdbool.h>

#include "core/base/buf.h"

#define REFUSALS_MAX 512
#define REFUSAL_COST_NS 50000000L /* only errors that took this long are remembered */
#define REFUSAL_NS 10000000000L   /* how long they are remembered */
#define REFUSAL_MOST_NS 320000000000L

/* The object of an error. */
struct refusal_key {
	uint64_t id[2];
};
/* owner: from cache_owner(), what the name and the number are unique in. */
struct refusal_key refusal_key(uint64_t owner, struct span name, uint64_t number);

/* False when no error of the object is remembered, so that the caller need not compute a mark. */
bool refusal_is_likely(struct refusal_key key);
/* The error that is remembered for that mark, with its note restored, or 0. */
int refusal_ask(struct refusal_key key, uint64_t mark);
/*
 * Remember the error r of an operation that began at that time (clock_ns()), if that is worthwhile,
 * and return r. An error that was found quickly is not remembered, nor one that a retry may
 * overcome (except -ENOMEM); with began 0, the time does not matter. Call after the memory of the
 * operation has been released.
 */
int refusal_keep(struct refusal_key key, uint64_t mark, int64_t began, int r);

/* For tests: let all errors be older by that much. */
void refusal_age(int64_t ns);

#endif
