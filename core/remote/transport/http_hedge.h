/* SPDX-License-Identifier: Apache-2.0 */
/*
 * http_hedge.h - hedged requests: when a range that is far slower than others of its size is
 * requested a second time while the first request continues.
 *
 * The thresholds follow from recent ranges: the time to the first byte, and the total time of
 * ranges of about that size. The share of hedges is bounded, so that a server that is slow for
 * every request gets little more load. Not thread-safe.
 */
#ifndef PYTREEFS_CORE_HTTP_HTTP_HEDGE_H
#define PYTREEFS_CORE_HTTP_HTTP_HEDGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HEDGE_SAMPLES 64
#define HEDGE_KINDS 10 /* size classes: up to 16 KiB, 32 KiB, ... */

/* The last durations of a size class, and their 90th percentile. */
struct hedge_times {
	int64_t ns[HEDGE_SAMPLES], slow_ns;
	unsigned n, next, since; /* n: at most HEDGE_SAMPLES; since slow_ns was computed */
};

struct hedging {
	struct hedge_times first, whole[HEDGE_KINDS];
	int64_t unknown_ns; /* limit of silence while too few ranges are known */
	double allowed;     /* hedges that may be made now */
};

/* progress_ms: a try fails after so long without a byte. */
void hedging_init(struct hedging *h, unsigned progress_ms);
/* Record a range of n bytes: its first byte came after first_ns, its last one after whole_ns. */
void hedging_note(struct hedging *h, uint64_t n, int64_t first_ns, int64_t whole_ns);
/* A range that has had no byte for longer than this is slow. */
int64_t hedging_silence_ns(struct hedging *h);
/* A range of n bytes that takes longer than this in all is slow; INT64_MAX: not known yet. */
int64_t hedging_whole_ns(struct hedging *h, uint64_t n);
/* Whether the share allows another hedge; hedging_take() counts one that was made. */
bool hedging_allows(const struct hedging *h);
void hedging_take(struct hedging *h);

#endif
