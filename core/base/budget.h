/* SPDX-License-Identifier: Apache-2.0 */
/*
 * budget.h - a number of bytes that operations share.
 *
 * An operation takes all that it needs once, before it starts, and gives it
 * back at its end; first come, first served, so a large taker is not starved.
 * Never nested: an operation that holds some takes no more of the same budget.
 */
#ifndef PYTREEFS_BUDGET_H
#define PYTREEFS_BUDGET_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

struct budget {
	pthread_mutex_t lock;
	pthread_cond_t freed;
	const char *name;           /* the option that sets it, for messages */
	uint64_t total, used, peak; /* protected by lock */
	uint64_t next, serving;     /* tickets; protected by lock */
};

void budget_init(struct budget *b, const char *name, uint64_t total);
void budget_release(struct budget *b);
/* Waits its turn. -EFBIG, naming the option, when n exceeds the whole budget. */
int budget_take(struct budget *b, uint64_t n);
/* Waits its turn for n, or for the whole budget when that is less: what was taken. */
uint64_t budget_take_most(struct budget *b, uint64_t n);
/* Like budget_take, but false instead of waiting. */
bool budget_try(struct budget *b, uint64_t n);
void budget_give(struct budget *b, uint64_t n);
uint64_t budget_total(struct budget *b);
/* The most that was ever taken at once. */
uint64_t budget_peak(struct budget *b);
/* A new total; takers that no longer fit wait until enough is given back. */
void budget_resize(struct budget *b, uint64_t total);

#endif
