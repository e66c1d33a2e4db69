/* SPDX-License-Identifier: Apache-2.0 */
/*
 * http_hedge.h - when a range that is far slower than its kind is asked for a second time, beside
 * the request that is under way (a hedge).
 *
 * What is slow follows from ranges that came before: how long the first byte took, and how long the
 * whole of one of that size took. The share of hedges is bounded, so that a server that is slow
 * for everybody is not asked for more. Not thread-safe.
 */
#ifndef PYTREEFS_CORE_HTTP_HTTP_HEDGE_H
#define PYTREEFS_CORE_HTTP_HTTP_HEDGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HEDGE_SAMPLES 64
#define HEDGE_KINDS 10 /* by size: up to 16 KiB, 32 KiB, ... */

/* The last durations of a kind, and their 90th percentile. */
struct hedge_times {
	int64_t ns[HEDGE_SAMPLES], slow_ns;
	unsigned n, next, since; /* n: at most HEDGE_SAMPLES; since slow_ns was computed */
};

struct hedging {
	struct hedge_times first, whole[HEDGE_KINDS];
	int64_t unknown_ns; /* silence, before anything is known */
	double allowed;     /* hedges */
};

/* progress_ms: after so long without a byte a try has failed. */
void hedging_init(struct hedging *h, unsigned progress_ms);
/* A range of n bytes came: its first byte after first_ns, its last one after whole_ns. */
void hedging_note(struct hedging *h, uint64_t n, int64_t first_ns, int64_t whole_ns);
/* Without a byte for so long, a range is slow. */
int64_t hedging_silence_ns(struct hedging *h);
/* After so long a range of n bytes is slow, whatever has come of it; INT64_MAX: not known. */
int64_t hedging_whole_ns(struct hedging *h, uint64_t n);
/* Whether another hedge is within the share; take: it is made. */
bool hedging_allows(const struct hedging *h);
void hedging_take(struct hedging *h);

#endif
