/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lock.h - a mutex that is held until the end of a scope, so that functions can return early:
 *
 *     auto_unlock pthread_mutex_t *held = lock_hold(&f->lock);
 *
 * What is declared after it is released before the mutex is. NULL: no mutex is held yet.
 */
#ifndef PYTREEFS_LOCK_H
#define PYTREEFS_LOCK_H

#include <pthread.h>

static inline pthread_mutex_t *lock_hold(pthread_mutex_t *lock)
{
	pthread_mutex_lock(lock);
	return lock;
}

static inline void lock_release_cleanup(pthread_mutex_t **held)
{
	if (*held)
		pthread_mutex_unlock(*held);
}

#define auto_unlock __attribute__((cleanup(lock_release_cleanup)))

#endif
