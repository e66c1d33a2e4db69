/* SPDX-License-Identifier: Apache-2.0 */
/*
 * http_outage.c - a table of ranges for which a request was given up.
 */
#include "core/remote/transport/http_outage.h"

#include <stdbool.h>
#include <stddef.h>

#include "core/base/clock.h"
#include "core/base/mem.h"

/* Longer than a caller needs to ask again, also on a busy machine. */
#define WHILE (5 * SECOND_NS)

static bool outage_overlap(const struct outage_of *a, const struct outage_of *b)
{
	return a->name == b->name && a->from < b->to && b->from < a->to;
}

void outage_note(struct outages *o, struct outage_of of, int64_t since, int64_t now)
{
	size_t at = 0;

	for (size_t i = 0; i < OUTAGES; i++) {
		if (now - o->one[i].last <= WHILE && outage_overlap(&o->one[i].of, &of)) {
			of.from = MIN(of.from, o->one[i].of.from);
			of.to = MAX(of.to, o->one[i].of.to);
			since = MIN(since, o->one[i].since);
			o->one[i].last = 0;
		}
		if (o->one[i].last < o->one[at].last)
			at = i;
	}
	o->one[at].of = of;
	o->one[at].since = since;
	o->one[at].last = now;
}

void outage_end(struct outages *o, struct outage_of of)
{
	for (size_t i = 0; i < OUTAGES; i++) {
		struct outage_of *a = &o->one[i].of;

		if (!outage_overlap(a, &of))
			continue;
		/* The rest may be what stalls. */
		if (of.from <= a->from)
			a->from = MIN(of.to, a->to);
		else if (of.to >= a->to)
			a->to = of.from;
		if (a->from == a->to)
			o->one[i].last = 0;
	}
}

int64_t outage_since(const struct outages *o, struct outage_of of, int64_t now)
{
	int64_t since = now;

	for (size_t i = 0; i < OUTAGES; i++)
		if (o->one[i].last && now - o->one[i].last <= WHILE &&
		    outage_overlap(&o->one[i].of, &of))
			since = MIN(since, o->one[i].since);
	return since;
}
