/* SPDX-License-Identifier: Apache-2.0 */
/*
 * refusal.c - remember errors for some time.
 */
#include "core/base/refusal.h"

#include "core/base/clock.h"
#include "core/base/mem.h"
#include "core/base/meter.h"

/* When this much more memory is free, a retry is worthwhile. */
#define ROOM_STEP METER_RESERVED

int refusal_ask(const struct refusal *f, uint64_t mark)
{
	if (!f->hold || f->mark != mark || clock_ns() >= f->until)
		return 0;
	if (f->note.code == -ENOMEM && meter_room() > f->room &&
	    meter_room() - f->room >= ROOM_STEP)
		return 0;
	return err_restore(&f->note);
}

static bool pays(int r, int64_t began)
{
	return r < 0 && (r == -ENOMEM || !err_is_transient(r)) &&
	       clock_ns() - began >= REFUSAL_COST_NS;
}

int refusal_keep(struct refusal *f, uint64_t mark, int64_t began, int r)
{
	bool again = f->hold && f->mark == mark && r == -EFBIG;

	if (!pays(r, began))
		return r;
	err_save(r, &f->note);
	f->hold = again ? MIN(2 * f->hold, REFUSAL_MOST_NS) : REFUSAL_NS;
	f->mark = mark;
	f->until = clock_ns() + f->hold;
	f->room = meter_room();
	return err_restore(&f->note);
}

/* ---- errors of many objects ---- */

struct refused_key {
	struct buf key;
	struct refusal refusal;
};

void refusals_init(struct refusals *t, unsigned max)
{
	*t = (struct refusals){ .max = max };
	pthread_mutex_init(&t->lock, NULL);
}

void refusals_release(struct refusals *t)
{
	for (unsigned i = 0; t->at && i < t->max; i++)
		buf_release(&t->at[i].key);
	free(take(t->at));
	pthread_mutex_destroy(&t->lock);
}

bool refusals_any(struct refusals *t)
{
	bool any;

	pthread_mutex_lock(&t->lock);
	any = t->at;
	pthread_mutex_unlock(&t->lock);
	return any;
}

/* Called with the lock held. */
static struct refusal *refusal_find(struct refusals *t, struct span key)
{
	for (unsigned i = 0; t->at && i < t->max; i++)
		if (t->at[i].refusal.hold && span_eq(buf_span(&t->at[i].key), key))
			return &t->at[i].refusal;
	return NULL;
}

/* Called with the lock held. NULL when memory is short; the error is then not remembered. */
static struct refusal *make_room(struct refusals *t, struct span key)
{
	struct refused_key *k;

	if (!t->at)
		t->at = calloc(t->max, sizeof(*t->at));
	if (!t->at)
		return NULL;
	k = &t->at[t->next++ % t->max];
	k->refusal = (struct refusal){ 0 };
	buf_clear(&k->key);
	return buf_add_span(&k->key, key) < 0 ? NULL : &k->refusal;
}

bool refusals_have(struct refusals *t, struct span key)
{
	bool have;

	pthread_mutex_lock(&t->lock);
	have = refusal_find(t, key);
	pthread_mutex_unlock(&t->lock);
	return have;
}

int refusals_ask(struct refusals *t, struct span key, uint64_t mark)
{
	const struct refusal *f;
	int r = 0;

	pthread_mutex_lock(&t->lock);
	f = refusal_find(t, key);
	if (f)
		r = refusal_ask(f, mark);
	pthread_mutex_unlock(&t->lock);
	return r;
}

int refusals_keep(struct refusals *t, struct span key, uint64_t mark, int64_t began, int r)
{
	struct refusal *f;

	if (!pays(r, began))
		return r;
	pthread_mutex_lock(&t->lock);
	f = refusal_find(t, key);
	if (!f)
		f = make_room(t, key);
	if (f)
		refusal_keep(f, mark, began, r);
	pthread_mutex_unlock(&t->lock);
	return r;
}
