/* SPDX-License-Identifier: Apache-2.0 */
/*
 * thread.c - starting threads.
 */
#include "core/base/thread.h"

#include <signal.h>

int thread_start(pthread_t *ret, const char *name, void *(*run)(void *), void *arg)
{
	sigset_t all, old;
	int e;

	sigfillset(&all);
	/* A system call that the sandbox refuses raises it; blocked, it would end the process. */
	sigdelset(&all, SIGSYS);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	e = pthread_create(ret, NULL, run, arg);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (e == 0 && name)
		pthread_setname_np(*ret, name);
	return -e;
}

bool lock_was_held(pthread_mutex_t *lock)
{
	if (pthread_mutex_trylock(lock) == 0) {
		pthread_mutex_unlock(lock);
		return false;
	}
	pthread_mutex_init(lock, NULL);
	return true;
}
