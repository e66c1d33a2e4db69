/* SPDX-License-Identifier: Apache-2.0 */
/*
 * progress.h - a bar with rate and time left, on a terminal, for work longer than a second.
 */
#ifndef PYTREEFS_PROGRESS_H
#define PYTREEFS_PROGRESS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct progress {
	const char *what;
	bool on;                   /* stderr is a terminal, and nobody wants quiet */
	atomic_ullong total, done; /* bytes */
	pthread_mutex_t lock;      /* protects all below, and the line on the terminal */
	double started, shown;     /* seconds of the monotonic clock */
	bool is_drawn;
};

void progress_begin(struct progress *p, const char *what, bool quiet);
/* More work than was known so far. */
void progress_expect(struct progress *p, uint64_t bytes);
/* Any thread may call. */
void progress_add(struct progress *p, uint64_t bytes);
/* Take the line away, so that something can be printed; the next progress_add() draws it again. */
void progress_clear(struct progress *p);
void progress_end(struct progress *p);
/* Seconds since the beginning. */
double progress_seconds(const struct progress *p);

#endif
