/* SPDX-License-Identifier: Apache-2.0 */
/*
 * refusal.h - remember errors that were expensive to find, so that the next request fails at once:
 * for one object (struct refusal, not thread-safe), or for a few of many (struct refusals,
 * thread-safe).
 *
 * An error is remembered while the caller's mark of the object (a fingerprint of its files) is
 * unchanged, and for a few seconds only, since files that the mark does not cover may change. An
 * error that says that an object needs too much memory depends on the marked files alone, so it is
 * remembered twice as long each time it occurs again. An error that says that memory was short at
 * the time is remembered until more memory is free.
 */
#ifndef PYTREEFS_REFUSAL_H
#define PYTREEFS_REFUSAL_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/base/buf.h"
#include "core/base/err.h"

#define REFUSAL_COST_NS 50000000L /* only errors that took this long are remembered */
#define REFUSAL_NS 10000000000L   /* how long they are remembered */
#define REFUSAL_MOST_NS 320000000000L

struct refusal {
	uint64_t mark;
	int64_t until, hold; /* 0: no error is remembered */
	uint64_t room;       /* meter_room() when the error was -ENOMEM */
	struct err_note note;
};

/* The error that is remembered for that mark, with its note restored, or 0. */
int refusal_ask(const struct refusal *f, uint64_t mark);
/*
 * Remember the error r of an operation that began at that time (clock_ns()), if that is worthwhile,
 * and return r. An error that was found quickly is not remembered, nor one that a retry may
 * overcome (except -ENOMEM); with began 0, the time does not matter. Call after the memory of the
 * operation has been released.
 */
int refusal_keep(struct refusal *f, uint64_t mark, int64_t began, int r);

/* Errors of up to max objects, by a key of the caller's; a new key replaces the oldest. */
struct refusals {
	pthread_mutex_t lock; /* protects all below */
	unsigned max, next;
	struct refused_key *at; /* NULL until the first error */
};
void refusals_init(struct refusals *t, unsigned max);
void refusals_release(struct refusals *t);
/* False when no error at all is remembered, so that the caller need not compute a mark. */
bool refusals_any(struct refusals *t);
/* False when no error is remembered for that key. */
bool refusals_have(struct refusals *t, struct span key);
/* refusal_ask() and refusal_keep() for a key. */
int refusals_ask(struct refusals *t, struct span key, uint64_t mark);
int refusals_keep(struct refusals *t, struct span key, uint64_t mark, int64_t began, int r);

#endif
