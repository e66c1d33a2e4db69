/* SPDX-License-Identifier: Apache-2.0 */
/*
 * on_commit.c - run a command beside the mount, and say in the log how it ended.
 */
#include "handlers/commit/on_commit.h"

#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <sys/wait.h>

#include "core/base/err.h"
#include "core/base/log.h"
#include "core/base/thread.h"

extern char **environ;

static void *wait_for(void *arg)
{
	pid_t pid = (pid_t)(intptr_t)arg;
	int status = 0;

	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	if (WIFSIGNALED(status))
		log_warn("on_commit was ended by signal %d", WTERMSIG(status));
	else if (WEXITSTATUS(status))
		log_warn("on_commit ended with status %d", WEXITSTATUS(status));
	return NULL;
}

/* The environment without what would make a pytreefs in it a rank of this mount's job. Owned by the
 * caller. */
static char **environment(void)
{
	static const char size[] = "OMPI_COMM_WORLD_SIZE=";
	size_t n = 0, at = 0;
	char **env;

	while (environ[n])
		n++;
	env = calloc(n + 1, sizeof(*env));
	for (size_t i = 0; env && i < n; i++)
		if (strncmp(environ[i], size, sizeof(size) - 1))
			env[at++] = environ[i];
	return env;
}

void on_commit_run(const struct draft_env *drafts, const char *step)
{
	auto_free char *script = NULL, *path = NULL;
	auto_free char **env = NULL;
	posix_spawnattr_t how;
	sigset_t none, pipe;
	pthread_t thread;
	pid_t pid;
	int r;

	if (!drafts->options->on_commit || !*drafts->options->on_commit)
		return;
	script = str_fmt("%s \"$1\"", drafts->options->on_commit);
	path = str_fmt("%s/%s", drafts->ckpt->source->path, step);
	env = environment();
	if (!script || !path || !env) {
		log_warn("on_commit was not run for '%s': no memory", step);
		return;
	}
	char *argv[] = { "sh", "-c", script, "pytreefs", path, NULL };

	/* The mount's threads block signals, and it ignores SIGPIPE: that is not for the command. */
	sigemptyset(&none);
	sigemptyset(&pipe);
	sigaddset(&pipe, SIGPIPE);
	posix_spawnattr_init(&how);
	posix_spawnattr_setsigmask(&how, &none);
	posix_spawnattr_setsigdefault(&how, &pipe);
	posix_spawnattr_setflags(&how, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
	r = posix_spawn(&pid, "/bin/sh", NULL, &how, argv, env);
	posix_spawnattr_destroy(&how);
	if (r) {
		log_warn("on_commit was not run for '%s': %s", step, strerror(r));
		return;
	}
	/* Without a thread it stays unwaited for until the mount ends, which does no harm. */
	if (thread_start(&thread, "on_commit", wait_for, (void *)(intptr_t)pid) < 0)
		log_warn("on_commit for '%s' runs unwatched", step);
	else
		pthread_detach(thread);
}
