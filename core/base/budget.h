/* SPDX-License-Identifier: Apache-2.0 */
/*
 * budget.h - a number of bytes that operations share.
 *
 * An operation takes all that it needs once, before it starts, and gives it
 * back at its end. Requests are served in the order of their arrival, so that a
 * large one is not starved. Budgets do not nest: an operation that holds part
 * of a budget takes no more of the same one. Any thread may call.
 *
 * What was taken may be left idle in the hands of its owner, for its next use:
 * then reclaim() takes it away when others need it. It is called without the
 * lock of the budget, and may wait for locks that are held by callers of
 * budget_give(), but not by those that take.
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
	uint64_t changes;           /* reasons to look again; protected by lock */
	/* Give something back that is idle; false: there is nothing. NULL: there never is. */
	bool (*reclaim)(void *arg);
	void *reclaim_arg;
};

void budget_init(struct budget *b, const char *name, uint64_t total);
void budget_release(struct budget *b);
/* Wait for a turn, then for n bytes. -EFBIG, naming the option, when n exceeds the whole budget. */
int budget_take(struct budget *b, uint64_t n);
/*
 * Wait for a turn, then for n bytes, or for the whole budget when that is less. Returns the number
 * of bytes taken.
 */
uint64_t budget_take_most(struct budget *b, uint64_t n);
/* Like budget_take(), but returns false instead of waiting for others. */
bool budget_try(struct budget *b, uint64_t n);
/* Whether budget_try() would take n bytes now, without reclaiming any. */
bool budget_has_room(struct budget *b, uint64_t n);
void budget_give(struct budget *b, uint64_t n);
/* Something may have become idle: those that wait call reclaim() again. */
void budget_idle(struct budget *b);
uint64_t budget_total(struct budget *b);
uint64_t budget_used(struct budget *b);
/* The highest number of bytes that was ever taken at once. */
uint64_t budget_peak(struct budget *b);
/* Set a new total. An operation that no longer fits waits until enough is given back. */
void budget_resize(struct budget *b, uint64_t total);

#endif
