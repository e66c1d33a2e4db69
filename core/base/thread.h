/* SPDX-License-Identifier: Apache-2.0 */
/*
 * thread.h - threads that get no signals.
 *
 * Signals belong to the main thread: in any other thread a signal would interrupt a
 * wait, and the main thread would not learn of it.
 */
#ifndef PYTREEFS_CORE_BASE_THREAD_H
#define PYTREEFS_CORE_BASE_THREAD_H

#include <pthread.h>
#include <stdbool.h>

/*
 * Start a thread that has all signals blocked, and what it starts too. name: as in ps(1), at most
 * 15 characters; NULL for the name of the caller's. The caller joins or detaches it. Without a
 * note: -EAGAIN when the limit of threads is reached, -ENOMEM.
 */
int thread_start(pthread_t *ret, const char *name, void *(*run)(void *), void *arg);

/* fn is called in the child of every fork: for a file whose locks are of the whole process. */
#define AT_FORK_CHILD(fn)                                           \
	__attribute__((constructor)) static void fn##_at_fork(void) \
	{                                                           \
		pthread_atfork(NULL, NULL, fn);                     \
	}                                                           \
	struct fn##_needs_semicolon
/*
 * There: whether a thread held the lock that is not in the child. It is free then, and what it
 * protects may be half changed.
 */
bool lock_was_held(pthread_mutex_t *lock);

#endif
