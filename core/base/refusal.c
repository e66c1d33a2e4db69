/* SPDX-License-Identifier: Apache-2.0 */
/*
 * refusal.c - a ring of errors, and their keys beside it, which every look-up compares.
 */
#include "core/base/refusal.h"

#include <pthread.h>

#include "core/base/clock.h"
#include "core/base/digest.h"
#include "core/base/err.h"
#include "core/base/lock.h"
#include "core/base/meter.h"
#include "core/base/thread.h"

/* When this much more memory is free, a retry is worthwhile. */
#define ROOM_STEP METER_RESERVED

struct refusal {
	uint64_t mark;
	int64_t until, hold;
	uint64_t room; /* memory that was free when the error was -ENOMEM */
	struct err_note note;
};

static struct {
	pthread_mutex_t lock; /* protects all below */
	unsigned n, next;
	struct refusal_key key[REFUSALS_MAX];
	struct refusal error[REFUSALS_MAX];
} refusals = { .lock = PTHREAD_MUTEX_INITIALIZER };

static void refusals_forked(void)
{
	if (lock_was_held(&refusals.lock))
		refusals.n = refusals.next = 0;
}
AT_FORK_CHILD(refusals_forked);

/* With a cryptographic hash, because hostile names could otherwise collide on purpose. */
struct refusal_key refusal_key(uint64_t owner, struct span name, uint64_t number)
{
	const uint64_t of[] = { owner, number };
	const struct span parts[] = { span_of(of, sizeof(of)), name };
	uint8_t digest[32];
	struct refusal_key key;

	sha256_parts(parts, ARRAY_LEN(parts), digest);
	memcpy(&key, digest, sizeof(key));
	return key;
}

/* Called with the lock held. */
static struct refusal *refusal_find(struct refusal_key key)
{
	for (unsigned i = 0; i < refusals.n; i++)
		if (!memcmp(&refusals.key[i], &key, sizeof(key)))
			return &refusals.error[i];
	return NULL;
}

bool refusal_is_likely(struct refusal_key key)
{
	auto_unlock pthread_mutex_t *held = lock_hold(&refusals.lock);

	return refusal_find(key);
}

/* The memory for metadata that is free now. */
static uint64_t room_now(void)
{
	struct meter_stats s;

	meter_stats(&s);
	return s.limit - MIN(s.limit, s.used);
}

int refusal_ask(struct refusal_key key, uint64_t mark)
{
	auto_unlock pthread_mutex_t *held = lock_hold(&refusals.lock);
	const struct refusal *f = refusal_find(key);
	uint64_t room;

	if (!f || f->mark != mark || clock_ns() >= f->until)
		return 0;
	room = f->note.code == -ENOMEM ? room_now() : 0;
	return room - MIN(room, f->room) < ROOM_STEP ? err_restore(&f->note) : 0;
}

int refusal_keep(struct refusal_key key, uint64_t mark, int64_t began, int r)
{
	struct refusal *f;
	unsigned i;
	bool again;

	if (r >= 0 || (r != -ENOMEM && err_is_transient(r)) || clock_ns() - began < REFUSAL_COST_NS)
		return r;
	pthread_mutex_lock(&refusals.lock);
	f = refusal_find(key);
	if (!f) {
		i = refusals.next++ % REFUSALS_MAX;
		refusals.n = MAX(refusals.n, i + 1);
		refusals.key[i] = key;
		f = &refusals.error[i];
		f->hold = 0;
	}
	again = f->hold && f->mark == mark && r == -EFBIG;
	err_save(r, &f->note);
	f->hold = again ? MIN(2 * f->hold, REFUSAL_MOST_NS) : REFUSAL_NS;
	f->mark = mark;
	f->until = clock_ns() + f->hold;
	f->room = room_now();
	pthread_mutex_unlock(&refusals.lock);
	return r;
}

void refusal_age(int64_t ns)
{
	pthread_mutex_lock(&refusals.lock);
	for (unsigned i = 0; i < refusals.n; i++)
		refusals.error[i].until -= ns;
	pthread_mutex_unlock(&refusals.lock);
}
