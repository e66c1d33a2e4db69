/* SPDX-License-Identifier: Apache-2.0 */
/*
 * http_hedge.c - statistics of how long ranges of each size take, and the allowance of hedges.
 */
#include "core/remote/transport/http_hedge.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/mem.h"

#define MS_NS 1000000
#define KNOWN 8          /* so many durations are needed before a class has a limit */
#define SLOWER 3         /* the limit is so many times the 90th percentile ... */
#define LEAST_MS 100     /* ... plus this, so that a short pause of this machine is not enough */
#define SHARE 0.05       /* each range allows so many more hedges */
#define ALLOWED_FIRST 2  /* hedges allowed at the start */
#define ALLOWED_MOST 4   /* the allowance never grows beyond this */
#define SMALLEST_KIND 14 /* log2 of the bytes of the smallest class */

void hedging_init(struct hedging *h, unsigned progress_ms)
{
	*h = (struct hedging){ .unknown_ns = (int64_t)progress_ms * MS_NS / 5,
			       .allowed = ALLOWED_FIRST };
}

static int hedge_by_value(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

	return (x > y) - (x < y);
}

static void hedge_add(struct hedge_times *t, int64_t ns)
{
	t->ns[t->next] = ns;
	t->next = (t->next + 1) % HEDGE_SAMPLES;
	t->n = MIN(t->n + 1, (unsigned)HEDGE_SAMPLES);
	t->since++;
}

/* INT64_MAX: not known. */
static int64_t hedge_limit_of(struct hedge_times *t)
{
	int64_t sorted[HEDGE_SAMPLES];

	if (t->n < KNOWN)
		return INT64_MAX;
	if (t->since >= KNOWN || !t->slow_ns) {
		memcpy(sorted, t->ns, t->n * sizeof(*sorted));
		qsort(sorted, t->n, sizeof(*sorted), hedge_by_value);
		t->slow_ns = MAX(sorted[t->n * 9 / 10], 1);
		t->since = 0;
	}
	return SLOWER * t->slow_ns + (int64_t)LEAST_MS * MS_NS;
}

static struct hedge_times *hedge_kind_of(struct hedging *h, uint64_t n)
{
	unsigned kind = 0;

	while (kind < HEDGE_KINDS - 1 && n > (uint64_t)1 << (SMALLEST_KIND + kind))
		kind++;
	return &h->whole[kind];
}

void hedging_note(struct hedging *h, uint64_t n, int64_t first_ns, int64_t whole_ns)
{
	hedge_add(&h->first, first_ns);
	hedge_add(hedge_kind_of(h, n), whole_ns);
	h->allowed = MIN(h->allowed + SHARE, ALLOWED_MOST);
}

int64_t hedging_silence_ns(struct hedging *h)
{
	int64_t limit = hedge_limit_of(&h->first);

	return limit == INT64_MAX ? h->unknown_ns : limit;
}

int64_t hedging_whole_ns(struct hedging *h, uint64_t n)
{
	return hedge_limit_of(hedge_kind_of(h, n));
}

bool hedging_allows(const struct hedging *h)
{
	return h->allowed >= 1;
}

void hedging_take(struct hedging *h)
{
	h->allowed -= 1;
}
