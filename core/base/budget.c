/* SPDX-License-Identifier: Apache-2.0 */
/*
 * budget.c - tickets: requests are served in order, so that smaller ones cannot overtake a large
 * one for ever.
 */
#include "core/base/budget.h"

#include "core/base/err.h"
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

int budget_take(struct budget *b, uint64_t n)
{
	uint64_t ticket;
	int r = 0;

	pthread_mutex_lock(&b->lock);
	ticket = b->next++;
	while (ticket != b->serving || (b->used + n > b->total && n <= b->total))
		pthread_cond_wait(&b->freed, &b->lock);
	if (n > b->total)
		r = fail(-EFBIG, "an operation needs %llu bytes, %s allows %llu",
			 (unsigned long long)n, b->name, (unsigned long long)b->total);
	else
		taken(b, n);
	b->serving++;
	pthread_cond_broadcast(&b->freed);
	pthread_mutex_unlock(&b->lock);
	return r;
}

uint64_t budget_take_most(struct budget *b, uint64_t n)
{
	uint64_t ticket;

	pthread_mutex_lock(&b->lock);
	ticket = b->next++;
	/* The total may change during the wait. */
	while (ticket != b->serving || b->used + MIN(n, b->total) > b->total)
		pthread_cond_wait(&b->freed, &b->lock);
	n = MIN(n, b->total);
	taken(b, n);
	b->serving++;
	pthread_cond_broadcast(&b->freed);
	pthread_mutex_unlock(&b->lock);
	return n;
}

static bool has_room(const struct budget *b, uint64_t n)
{
	return b->next == b->serving && b->used + n <= b->total;
}

bool budget_try(struct budget *b, uint64_t n)
{
	bool ok;

	pthread_mutex_lock(&b->lock);
	ok = has_room(b, n);
	if (ok)
		taken(b, n);
	pthread_mutex_unlock(&b->lock);
	return ok;
}

bool budget_has_room(struct budget *b, uint64_t n)
{
	bool ok;

	pthread_mutex_lock(&b->lock);
	ok = has_room(b, n);
	pthread_mutex_unlock(&b->lock);
	return ok;
}

void budget_give(struct budget *b, uint64_t n)
{
	pthread_mutex_lock(&b->lock);
	b->used -= n;
	pthread_cond_broadcast(&b->freed);
	pthread_mutex_unlock(&b->lock);
}

uint64_t budget_peak(struct budget *b)
{
	uint64_t peak;

	pthread_mutex_lock(&b->lock);
	peak = b->peak;
	pthread_mutex_unlock(&b->lock);
	return peak;
}

uint64_t budget_total(struct budget *b)
{
	uint64_t total;

	pthread_mutex_lock(&b->lock);
	total = b->total;
	pthread_mutex_unlock(&b->lock);
	return total;
}

void budget_resize(struct budget *b, uint64_t total)
{
	pthread_mutex_lock(&b->lock);
	b->total = total;
	pthread_cond_broadcast(&b->freed);
	pthread_mutex_unlock(&b->lock);
}
