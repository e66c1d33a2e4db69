/* SPDX-License-Identifier: Apache-2.0 */
/*
 * refusal.h - errors that took long to find, remembered, so that whoever asks again has them at
 * once: of one thing (struct refusal, not thread-safe), or of the last few of many (struct
 * refusals, thread-safe).
 *
 * One counts for as long as what was refused has the same mark, and for some seconds only, since
 * other files that have no part in the mark may have changed. What needs too much memory is refused
 * by the bytes of the marked files, so it counts twice as long each time that it is refused again.
 * What did not fit beside others counts until there is more room than there was.
 */
#ifndef PYTREEFS_REFUSAL_H
#define PYTREEFS_REFUSAL_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/base/buf.h"
#include "core/base/err.h"

#define REFUSAL_COST_NS 50000000L /* only errors that took so long are remembered */
#define REFUSAL_NS 10000000000L   /* for so long */
#define REFUSAL_MOST_NS 320000000000L

struct refusal {
	uint64_t mark;
	int64_t until, hold; /* 0: none */
	uint64_t room;       /* of the meter, when the error was -ENOMEM */
	struct err_note note;
};

/* The error that is remembered of that mark, or 0. */
int refusal_ask(const struct refusal *f, uint64_t mark);
/*
 * The error r of something that began at that time: remember it when that pays, and return r. It
 * does not when it was found soon (began 0: never mind), or when the next try may succeed (but for
 * -ENOMEM). Called after the memory has been given back.
 */
int refusal_keep(struct refusal *f, uint64_t mark, int64_t began, int r);

/* By keys of the caller's; the oldest one makes room. */
struct refusals {
	pthread_mutex_t lock; /* protects all below */
	unsigned max, next;
	struct refused_key *at; /* NULL until there is one */
};
void refusals_init(struct refusals *t, unsigned max);
void refusals_release(struct refusals *t);
/* False: none is remembered, so no mark has to be made to ask for one. */
bool refusals_any(struct refusals *t);
/* False: none is remembered of that key. */
bool refusals_have(struct refusals *t, struct span key);
/* The same two, of a key. */
int refusals_ask(struct refusals *t, struct span key, uint64_t mark);
int refusals_keep(struct refusals *t, struct span key, uint64_t mark, int64_t began, int r);

#endif
