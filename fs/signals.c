/* SPDX-License-Identifier: Apache-2.0 */
/*
 * signals.c - the signal handler, and the thread that acts on signals.
 */
#include "fs/signals.h"

#include <errno.h>
#include <semaphore.h>
#include <signal.h>
#include <string.h>
#include <time.h>

#include "core/base/err.h"
#include "core/base/log.h"
#include "core/base/mem.h"
#include "core/base/thread.h"
#include "core/sandbox/sandbox.h"

#define AGAIN_NS 10000000

static const int ends[] = { SIGHUP, SIGINT, SIGTERM };
/* The only variables that the handler accesses. */
static sem_t signalled;
static atomic_int came; /* number of the signal */
static atomic_bool hup_came, hup_reopens;

static void on_signal(int number)
{
	int e = errno;

	if (number == SIGHUP && atomic_load(&hup_reopens))
		atomic_store(&hup_came, true);
	else
		atomic_store(&came, number);
	sem_post(&signalled);
	errno = e;
}

void signals_end(void)
{
	on_signal(SIGTERM);
}

/* For the signals whose handler is `from`, install `to`. */
static void change_handlers(void (*from)(int), void (*to)(int))
{
	struct sigaction now, then = { .sa_handler = to, .sa_flags = SA_RESTART };

	sigemptyset(&then.sa_mask);
	for (unsigned i = 0; i < ARRAY_LEN(ends); i++)
		if (sigaction(ends[i], NULL, &now) == 0 && now.sa_handler == from)
			sigaction(ends[i], &then, NULL);
}

/*
 * The main thread sleeps in the loop until a worker has ended, and workers sleep until a request
 * arrives. A signal interrupts both, so handled signals are sent until the end of the loop is
 * noticed.
 */
static void interrupt_main(struct signals *s)
{
	const struct timespec again = { .tv_nsec = AGAIN_NS };
	const struct sigaction interrupting = { .sa_handler = on_signal };
	int number = atomic_load(&came);

	sigaction(number, &interrupting, NULL);
	while (!atomic_load(&s->ended)) {
		if (atomic_load(&s->looping))
			pthread_kill(s->main, number);
		nanosleep(&again, NULL);
	}
}

void signals_refused(void)
{
	sem_post(&signalled);
}

void signals_hold(sigset_t *ret_old)
{
	sigset_t held;

	sigemptyset(&held);
	for (unsigned i = 0; i < ARRAY_LEN(ends); i++)
		sigaddset(&held, ends[i]);
	pthread_sigmask(SIG_BLOCK, &held, ret_old);
}

int signals_which(void)
{
	return atomic_load(&came);
}

static void *act_on_signals(void *arg)
{
	struct signals *s = arg;

	while (!atomic_load(&s->ended) && !atomic_load(&came)) {
		if (sem_wait(&signalled) != 0)
			continue;
		sandbox_log_refused();
		if (atomic_exchange(&hup_came, false))
			s->hung_up(s->arg);
	}
	if (!atomic_load(&s->ended)) {
		fuse_session_exit(s->se);
		s->ending(s->arg);
		log_info("SIG%s: ending when the requests in progress are answered",
			 sigabbrev_np(signals_which()));
		interrupt_main(s);
	}
	return NULL;
}

int signals_start(struct signals *s)
{
	int r;

	s->main = pthread_self();
	atomic_init(&s->looping, true);
	atomic_init(&s->ended, false);
	atomic_store(&came, 0);
	atomic_store(&hup_came, false);
	atomic_store(&hup_reopens, s->hung_up != NULL);
	sem_init(&signalled, 0, 0);
	r = thread_start(&s->thread, "signals", act_on_signals, s);
	if (r < 0)
		return fail(r, "cannot start a thread: %s", strerror(-r));
	/* nohup(1) lets a program ignore what ends it, but not a request to open its log again. */
	if (s->hung_up)
		signal(SIGHUP, SIG_DFL);
	change_handlers(SIG_DFL, on_signal);
	return 0;
}

void signals_loop_ended(struct signals *s)
{
	atomic_store(&s->looping, false);
}

void signals_stop(struct signals *s)
{
	atomic_store(&s->ended, true);
	sem_post(&signalled);
	pthread_join(s->thread, NULL);
	change_handlers(on_signal, SIG_DFL);
}
