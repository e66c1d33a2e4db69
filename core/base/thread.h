/*
 * thread.h - threads that get no signals.
 *
 * Signals are for whoever asked for them: a thread of the program that happens to get
 * one would have its waiting interrupted and nobody else's.
 */
#ifndef PYTREEFS_CORE_BASE_THREAD_H
#define PYTREEFS_CORE_BASE_THREAD_H

#include <pthread.h>

/*
 * Start a thread that has all signals blocked, and what it starts too. name: as in ps(1), at most 15
 * characters; NULL for the name of the caller's. The caller joins or detaches it. -EAGAIN without a message
 * when there can be no more.
 */
int thread_start(pthread_t *ret, const char *name, void *(*run)(void *), void *arg);

#endif
