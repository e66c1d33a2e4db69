/* SPDX-License-Identifier: Apache-2.0 */
/*
 * on_commit.c - runs a command and logs how it ended.
 *
 * The process of a mount may not start others, so its broker does. A command that commits starts
 * the process itself.
 */
#include "handlers/commit/on_commit.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/wait.h>

#include "core/sandbox/command.h"
#include "core/base/err.h"
#include "core/base/log.h"
#include "core/base/thread.h"

static void on_commit_report(int status)
{
	if (WIFSIGNALED(status))
		log_warn("on_commit was ended by signal %d", WTERMSIG(status));
	else if (WEXITSTATUS(status))
		log_warn("on_commit ended with status %d", WEXITSTATUS(status));
}

static void *on_commit_wait_for(void *arg)
{
	pid_t pid = (pid_t)(intptr_t)arg;
	int status = 0;

	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	on_commit_report(status);
	return NULL;
}

static void *wait_for_broker(void *arg)
{
	auto_close int fd = (int)(intptr_t)arg;
	struct broker_ended ended = { 0 };
	ssize_t n;

	do {
		n = read(fd, &ended, sizeof(ended));
	} while (n < 0 && errno == EINTR);
	if (n == sizeof(ended) && ended.error)
		log_warn("on_commit was not run: %s", strerror(-ended.error));
	else if (n == sizeof(ended))
		on_commit_report(ended.status);
	return NULL;
}

/* Wait in a thread: `arg` is passed to run(). */
static void wait_in_thread(void *(*run)(void *), int arg, const char *step)
{
	pthread_t thread;

	/*
	 * Without a thread, the process is not waited for until the mount ends, which does no harm.
	 */
	if (thread_start(&thread, "on_commit", run, (void *)(intptr_t)arg) < 0)
		log_warn("on_commit for '%s' runs unwatched", step);
	else
		pthread_detach(thread);
}

static int run_by_broker(struct broker *broker, const char *path, const char *step)
{
	auto_close int to = -1;
	int ends[2], r;

	if (pipe2(ends, O_CLOEXEC) < 0)
		return -errno;
	to = ends[1];
	r = broker_ask(broker, BROKER_ON_COMMIT, path, &to, 1);
	if (r >= 0)
		wait_in_thread(wait_for_broker, ends[0], step);
	else
		close(ends[0]);
	return r;
}

void on_commit_run(const struct draft_env *drafts, const char *step)
{
	const char *command = drafts->options->on_commit;
	auto_free char *path = NULL;
	pid_t pid;
	int r;

	if (!command || !*command)
		return;
	path = str_fmt("%s/%s", drafts->ckpt->source->path, step);
	if (!path) {
		r = -ENOMEM;
	} else if (drafts->broker) {
		r = run_by_broker(drafts->broker, path, step);
	} else {
		r = command_spawn(command, path, &pid);
		if (r >= 0)
			wait_in_thread(on_commit_wait_for, (int)pid, step);
	}
	if (r < 0)
		log_warn("on_commit was not run for '%s': %s", step, strerror(-r));
}
