/*
 * signals.c - the handler of signals, and the thread that does what they ask for.
 */
#include "fs/signals.h"

#include <errno.h>
#include <semaphore.h>
#include <signal.h>
#include <string.h>
#include <sys/statvfs.h>
#include <time.h>

#include "core/base/err.h"
#include "core/base/mem.h"
#include "core/base/thread.h"

#define AGAIN_NS 10000000

static const int ends[] = { SIGHUP, SIGINT, SIGTERM };
static sem_t told;			/* all that a handler may touch */

static void tell(int number)
{
	int e = errno;

	sem_post(&told);
	errno = e;
}

/* Whoever took `from` as its way with a signal takes `to`; others keep theirs. */
static void change_handlers(void (*from)(int), void (*to)(int))
{
	struct sigaction now, then = { .sa_handler = to, .sa_flags = SA_RESTART };

	sigemptyset(&then.sa_mask);
	for (unsigned i = 0; i < ARRAY_LEN(ends); i++)
		if (sigaction(ends[i], NULL, &now) == 0 && now.sa_handler == from)
			sigaction(ends[i], &then, NULL);
}

static void *end_the_loop(void *arg)
{
	const struct timespec again = { .tv_nsec = AGAIN_NS };
	struct signals *s = arg;
	struct statvfs st;

	while (sem_wait(&told) < 0)
		;
	if (!atomic_load(&s->ended))
		fuse_session_exit(s->se);
	/* Threads look whether they are to go on after each request, and sleep until there is one. */
	while (!atomic_load(&s->ended)) {
		statvfs(s->mountpoint, &st);
		nanosleep(&again, NULL);
	}
	return NULL;
}

int signals_start(struct signals *s, struct fuse_session *se, const char *mountpoint)
{
	int r;

	s->se = se;
	s->mountpoint = mountpoint;
	atomic_init(&s->ended, false);
	sem_init(&told, 0, 0);
	r = thread_start(&s->thread, "signals", end_the_loop, s);
	if (r < 0)
		return fail(r, "cannot start a thread: %s", strerror(-r));
	change_handlers(SIG_DFL, tell);
	return 0;
}

void signals_stop(struct signals *s)
{
	change_handlers(tell, SIG_DFL);
	atomic_store(&s->ended, true);
	sem_post(&told);
	pthread_join(s->thread, NULL);
}
