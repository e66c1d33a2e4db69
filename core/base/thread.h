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

/*
 * Start a thread that has all signals blocked, and what it starts too. name: as in ps(1), at most
 * 15 characters; NULL for the name of the caller's. The caller joins or detaches it. -EAGAIN
 * without a note when the limit of threads is reached.
 */
int thread_start(pthread_t *ret, const char *name, void *(*run)(void *), void *arg);

#endif
