/* SPDX-License-Identifier: Apache-2.0 */
/*
 * thread.h - threads that receive no signals.
 *
 * Signals belong to the main thread: in any other thread a signal would interrupt a wait, and the
 * main thread would not learn of it.
 */
#ifndef PYTREEFS_CORE_BASE_THREAD_H
#define PYTREEFS_CORE_BASE_THREAD_H

#include <pthread.h>
#include <stdbool.h>

/*
 * Start a thread that has all signals but SIGSYS blocked; threads that it starts inherit this. name
 * is shown by ps(1), at most 15 characters; NULL for the name of the calling thread. The caller
 * joins or detaches the thread. Errors have no note: -EAGAIN when the limit of threads is reached,
 * -ENOMEM.
 */
int thread_start(pthread_t *ret, const char *name, void *(*run)(void *), void *arg);

/* Call fn in the child of every fork, for a file with process-wide locks. */
#define AT_FORK_CHILD(fn)                                           \
	__attribute__((constructor)) static void fn##_at_fork(void) \
	{                                                           \
		pthread_atfork(NULL, NULL, fn);                     \
	}                                                           \
	struct fn##_needs_semicolon
/*
 * For such a function: whether a thread that does not exist in the child held the lock. The lock is
 * free afterwards, but what it protects may be half changed.
 */
bool lock_was_held(pthread_mutex_t *lock);

#endif
