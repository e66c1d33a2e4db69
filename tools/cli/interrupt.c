/* SPDX-License-Identifier: Apache-2.0 */
/*
 * interrupt.c - the signal handler of commands that write.
 */
#include "tools/cli/interrupt.h"

#include <signal.h>
#include <string.h>

#include "core/base/err.h"
#include "core/base/mem.h"

static volatile sig_atomic_t caught;

static void remember(int signal)
{
	caught = signal;
}

void interrupt_catch(void)
{
	/* Restart system calls: a write that has begun is finished. */
	struct sigaction sa = { .sa_handler = remember,
				.sa_flags = (int)(SA_RESETHAND | SA_RESTART) };
	static const int signals[] = { SIGINT, SIGTERM, SIGHUP };

	sigemptyset(&sa.sa_mask);
	for (unsigned i = 0; i < ARRAY_LEN(signals); i++) {
		struct sigaction old;

		/* nohup wants the signal to be ignored. */
		if (sigaction(signals[i], NULL, &old) == 0 && old.sa_handler != SIG_IGN)
			sigaction(signals[i], &sa, NULL);
	}
}

static int (*other_check)(void *arg);
static void *other_arg;

void interrupt_also(int (*check)(void *arg), void *arg)
{
	other_check = check;
	other_arg = arg;
}

int interrupt_check(void)
{
	if (caught)
		return fail(-EINTR, "interrupted; nothing is left behind");
	return other_check ? other_check(other_arg) : 0;
}

int interrupt_check_arg(void *unused)
{
	return interrupt_check();
}
