/* SPDX-License-Identifier: Apache-2.0 */
/*
 * meter.c - one account for the process.
 *
 * Invariants: while there is a user, `used` never exceeds the limit; reclaim() is called without
 * the lock of the account, since the memory that it frees is released here.
 */
#include "core/base/meter.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/lock.h"
#include "core/base/mem.h"
#include "core/base/thread.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* protects all but `users` */
static pthread_cond_t released;                          /* initialized by clock_cond_init() */
static struct meter_stats stats = { .limit = UINT64_MAX };
static uint64_t free_bytes = METER_FREE;
static uint64_t expected = UINT64_MAX; /* bytes of caches to come */
static uint64_t wanted;                /* bytes of charges that wait */
static int64_t hurried_until;
static atomic_ullong taken;

/* The operations of this thread. */
static __thread struct {
	unsigned n;    /* begun and not ended */
	uint64_t held; /* charged since the first of them began */
} operations;

static pthread_rwlock_t users_lock = PTHREAD_RWLOCK_INITIALIZER; /* taken before `lock` */
static struct meter_user *users;

__attribute__((constructor)) static void begin(void)
{
	clock_cond_init(&released);
}

/*
 * A fork during meter_join() or meter_leave() leaves the child a valid list of users; `limit` may
 * not yet reflect the change.
 */
static void meter_forked(void)
{
	pthread_rwlock_init(&users_lock, NULL);
	clock_cond_init(&released);
	lock_was_held(&lock);
	wanted = 0;
}
AT_FORK_CHILD(meter_forked);

/* Called with the lock held. */
static void count_taken(void)
{
	uint64_t all = stats.used + wanted;

	atomic_store(&taken, stats.limit == UINT64_MAX || all < free_bytes ? 0 : all - free_bytes);
}

/* Called with the users' lock held for writing. */
static void set_limit(void)
{
	uint64_t caches = users ? 0 : expected;

	for (const struct meter_user *u = users; u; u = u->next)
		caches += MIN(u->bytes, UINT64_MAX - caches);
	pthread_mutex_lock(&lock);
	stats.limit = free_bytes + MIN(caches, UINT64_MAX - free_bytes);
	count_taken();
	pthread_cond_broadcast(&released);
	pthread_mutex_unlock(&lock);
}

void meter_join(struct meter_user *u)
{
	pthread_rwlock_wrlock(&users_lock);
	u->next = users;
	users = u;
	set_limit();
	pthread_rwlock_unlock(&users_lock);
}

void meter_bound(uint64_t more, uint64_t cache)
{
	pthread_rwlock_wrlock(&users_lock);
	pthread_mutex_lock(&lock);
	free_bytes = METER_FREE + more;
	expected = cache;
	pthread_mutex_unlock(&lock);
	set_limit();
	pthread_rwlock_unlock(&users_lock);
}

void meter_leave(struct meter_user *u)
{
	pthread_rwlock_wrlock(&users_lock);
	for (struct meter_user **at = &users; *at; at = &(*at)->next)
		if (*at == u) {
			*at = u->next;
			break;
		}
	set_limit();
	pthread_rwlock_unlock(&users_lock);
}

static void reclaim(void)
{
	pthread_rwlock_rdlock(&users_lock);
	for (struct meter_user *u = users; u; u = u->next)
		u->reclaim(u->arg);
	pthread_rwlock_unlock(&users_lock);
}

/* Called with the lock held. */
static bool fits(uint64_t n, uint64_t most)
{
	return n <= most && stats.used <= most - n;
}

/* Called with the lock held, which is released meanwhile. */
static void wait_until_it_fits(uint64_t n, uint64_t most)
{
	bool hurry = n >= METER_SMALL && clock_ns() < hurried_until;
	const struct timespec until =
		clock_timespec(clock_ns() + (hurry ? METER_HURRY_NS : METER_WAIT_NS));
	int r = 0;

	stats.waits++;
	stats.hurried += hurry;
	wanted += n;
	count_taken();
	pthread_mutex_unlock(&lock);
	reclaim();
	pthread_mutex_lock(&lock);
	while (!fits(n, most) && r == 0)
		r = pthread_cond_timedwait(&released, &lock, &until);
	if (r != 0 && !hurry && n >= METER_SMALL)
		hurried_until = clock_ns() + METER_HURRIED_NS;
	wanted -= n;
	count_taken();
}

void meter_begin(void)
{
	if (operations.n++ == 0)
		operations.held = 0;
}

void meter_end(void)
{
	operations.n--;
}

static int refuse(uint64_t n, uint64_t most, uint64_t used)
{
	uint64_t own = operations.n ? operations.held : 0;

	if (n > most)
		return fail(-EFBIG,
			    "metadata needs %llu bytes of memory at once, the option cache and the "
			    "%llu beside it allow %llu",
			    (unsigned long long)n, (unsigned long long)free_bytes,
			    (unsigned long long)most);
	if (own > most - n)
		return fail(-EFBIG,
			    "metadata needs %llu more bytes of memory beside %llu of its own, the "
			    "option cache and the %llu beside it allow %llu",
			    (unsigned long long)n, (unsigned long long)own,
			    (unsigned long long)free_bytes, (unsigned long long)most);
	return fail(-ENOMEM,
		    "metadata needs %llu more bytes of memory, %llu of %llu are in use (see the "
		    "option cache)",
		    (unsigned long long)n, (unsigned long long)used, (unsigned long long)most);
}

int meter_charge(uint64_t n)
{
	uint64_t most, used, own = operations.n ? operations.held : 0;
	bool ok;

	pthread_mutex_lock(&lock);
	most = stats.limit - (n < METER_SMALL || stats.limit == UINT64_MAX ? 0 : METER_RESERVED);
	if (!fits(n, most) && n <= most && own <= most - n)
		wait_until_it_fits(n, most);
	ok = fits(n, most);
	used = stats.used;
	if (ok) {
		stats.used += n;
		stats.peak = MAX(stats.peak, stats.used);
		count_taken();
	} else {
		stats.refusals++;
	}
	pthread_mutex_unlock(&lock);
	if (!ok)
		return refuse(n, most, used);
	operations.held += n;
	if (atomic_load(&taken))
		reclaim();
	return 0;
}

void meter_release(uint64_t n)
{
	if (n == 0)
		return;
	operations.held -= MIN(n, operations.held);
	pthread_mutex_lock(&lock);
	stats.used -= n;
	count_taken();
	if (wanted)
		pthread_cond_broadcast(&released);
	pthread_mutex_unlock(&lock);
}

uint64_t meter_taken(void)
{
	return atomic_load(&taken);
}

uint64_t meter_most(void)
{
	auto_unlock pthread_mutex_t *held = lock_hold(&lock);

	return stats.limit == UINT64_MAX ? UINT64_MAX : stats.limit - METER_RESERVED;
}

void meter_stats(struct meter_stats *ret)
{
	pthread_mutex_lock(&lock);
	*ret = stats;
	pthread_mutex_unlock(&lock);
}
