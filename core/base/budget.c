/* SPDX-License-Identifier: Apache-2.0 */
/*
 * budget.c - tickets: requests are served in order, so that smaller ones cannot overtake a large
 * one for ever.
 */
#include "core/base/budget.h"

#include "core/base/err.h"
#include "core/base/lock.h"
#include "core/base/mem.h"

void budget_init(struct budget *b, const char *name, uint64_t total)
{
	*b = (struct budget){ .name = name, .total = total };
	pthread_mutex_init(&b->lock, NULL);
	pthread_cond_init(&b->freed, NULL);
}

void budget_release(struct budget *b)
{
	if (!b->name)
		return;
	pthread_cond_destroy(&b->freed);
	pthread_mutex_destroy(&b->lock);
	b->name = NULL;
}

static void taken(struct budget *b, uint64_t n)
{
	b->used += n;
	b->peak = MAX(b->peak, b->used);
}

/* Called with the lock held, and releases it meanwhile. False: nothing was idle. */
static bool budget_reclaim(struct budget *b)
{
	uint64_t changes = b->changes;
	bool freed;

	if (!b->reclaim)
		return false;
	pthread_mutex_unlock(&b->lock);
	freed = b->reclaim(b->reclaim_arg);
	pthread_mutex_lock(&b->lock);
	return freed || changes != b->changes;
}

/*
 * Wait for a turn, and for n bytes. When there are never so many: with `most` for all of the
 * budget, else no longer. Called with the lock held.
 */
static void budget_wait(struct budget *b, uint64_t n, bool most)
{
	uint64_t ticket = b->next++;

	/* The total may change during the wait. */
	while (ticket != b->serving ||
	       ((most || n <= b->total) && b->used + MIN(n, b->total) > b->total))
		if (ticket != b->serving || !budget_reclaim(b))
			pthread_cond_wait(&b->freed, &b->lock);
}

/* Let the next one have its turn. Called with the lock held, which is released. */
static void end_turn(struct budget *b)
{
	b->serving++;
	pthread_cond_broadcast(&b->freed);
	pthread_mutex_unlock(&b->lock);
}

int budget_take(struct budget *b, uint64_t n)
{
	int r = 0;

	pthread_mutex_lock(&b->lock);
	budget_wait(b, n, false);
	if (n > b->total)
		r = fail(-EFBIG, "an operation needs %llu bytes, %s allows %llu",
			 (unsigned long long)n, b->name, (unsigned long long)b->total);
	else
		taken(b, n);
	end_turn(b);
	return r;
}

uint64_t budget_take_most(struct budget *b, uint64_t n)
{
	pthread_mutex_lock(&b->lock);
	budget_wait(b, n, true);
	n = MIN(n, b->total);
	taken(b, n);
	end_turn(b);
	return n;
}

static bool has_room(const struct budget *b, uint64_t n)
{
	return b->next == b->serving && n <= b->total && b->used <= b->total - n;
}

bool budget_try(struct budget *b, uint64_t n)
{
	auto_unlock pthread_mutex_t *held = lock_hold(&b->lock);

	while (!has_room(b, n) && b->next == b->serving && n <= b->total && budget_reclaim(b))
		;
	if (!has_room(b, n))
		return false;
	taken(b, n);
	return true;
}

bool budget_has_room(struct budget *b, uint64_t n)
{
	auto_unlock pthread_mutex_t *held = lock_hold(&b->lock);

	return has_room(b, n);
}

void budget_give(struct budget *b, uint64_t n)
{
	pthread_mutex_lock(&b->lock);
	b->used -= n;
	b->changes++;
	pthread_cond_broadcast(&b->freed);
	pthread_mutex_unlock(&b->lock);
}

void budget_idle(struct budget *b)
{
	budget_give(b, 0);
}

static uint64_t budget_read(struct budget *b, const uint64_t *number)
{
	auto_unlock pthread_mutex_t *held = lock_hold(&b->lock);

	return *number;
}

uint64_t budget_peak(struct budget *b)
{
	return budget_read(b, &b->peak);
}

uint64_t budget_used(struct budget *b)
{
	return budget_read(b, &b->used);
}

uint64_t budget_total(struct budget *b)
{
	return budget_read(b, &b->total);
}

void budget_resize(struct budget *b, uint64_t total)
{
	pthread_mutex_lock(&b->lock);
	b->total = total;
	pthread_cond_broadcast(&b->freed);
	pthread_mutex_unlock(&b->lock);
}
