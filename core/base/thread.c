/* SPDX-License-Identifier: Apache-2.0 */
/*
 * thread.c - start threads.
 */
#include "core/base/thread.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

struct start {
	void *(*run)(void *arg);
	void *arg;
	char name[16];
};

/* The thread names itself: a confined process may not open the file that names another thread. */
static void *begin(void *arg)
{
	struct start s = *(struct start *)arg;

	free(arg);
	if (s.name[0])
		pthread_setname_np(pthread_self(), s.name);
	return s.run(s.arg);
}

int thread_start(pthread_t *ret, const char *name, void *(*run)(void *), void *arg)
{
	struct start *s = calloc(1, sizeof(*s));
	sigset_t all, old;
	int e;

	if (!s)
		return -ENOMEM;
	s->run = run;
	s->arg = arg;
	snprintf(s->name, sizeof(s->name), "%s", name ? name : "");
	sigfillset(&all);
	/*
	 * The sandbox raises SIGSYS for system calls that it refuses. Blocked, it would end the
	 * process.
	 */
	sigdelset(&all, SIGSYS);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	e = pthread_create(ret, NULL, begin, s);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (e)
		free(s);
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
