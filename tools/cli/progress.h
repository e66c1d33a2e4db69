/* SPDX-License-Identifier: Apache-2.0 */
/*
 * progress.h - a bar with rate and remaining time, on a terminal, for work that takes more than a
 * second.
 */
#ifndef PYTREEFS_PROGRESS_H
#define PYTREEFS_PROGRESS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct progress {
	const char *what;
	bool on;                   /* stderr is a terminal, and --quiet is not given */
	atomic_ullong total, done; /* bytes */
	pthread_mutex_t lock;      /* protects all members below, and the line on the terminal */
	double started, shown;     /* in seconds of the monotonic clock */
	bool is_drawn;
};

void progress_begin(struct progress *p, const char *what, bool quiet);
/* Add work that was not known before. */
void progress_expect(struct progress *p, uint64_t bytes);
/* Any thread may call this. */
void progress_add(struct progress *p, uint64_t bytes);
/* Clear the line, so that other output can be printed; the next progress_add() draws it again. */
void progress_clear(struct progress *p);
void progress_end(struct progress *p);
/* Returns the seconds since the start. */
double progress_seconds(const struct progress *p);

#endif
