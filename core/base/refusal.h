/* SPDX-License-Identifier: Apache-2.0 */
/*
 * refusal.h - an error that took long to find, remembered, so that whoever asks again has it at
 * once.
 *
 * It counts for as long as what was refused has the same mark, and for some seconds only, since
 * other files that have no part in the mark may have changed. What needs too much memory is refused
 * by the bytes of the marked files, so it counts twice as long each time that it is refused again.
 * What did not fit beside others counts until there is more room than there was. Not thread-safe.
 */
#ifndef PYTREEFS_REFUSAL_H
#define PYTREEFS_REFUSAL_H

#include <stdbool.h>
#include <stdint.h>

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
/* Whether it is an error that is worth to be remembered, of something that began at that time. */
bool refusal_pays(int r, int64_t began);
/* The error r of something that began at that time: remember it when that pays, and return r.
 * Called after the memory has been given back. */
int refusal_keep(struct refusal *f, uint64_t mark, int64_t began, int r);

#endif
