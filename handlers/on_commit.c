/*
 * on_commit.c - run a command beside the mount, and say in the log how it ended.
 */
#include "handlers/on_commit.h"

#include <spawn.h>
#include <stdio.h>
#include <sys/wait.h>

#include "core/base/err.h"
#include "core/base/log.h"

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

/* The environment without what would make a pytreefs in it a rank of this mount's job. Owned by the caller. */
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

void on_commit_run(struct ns *ns, const char *step)
{
	auto_free char *script = NULL, *path = NULL;
	auto_free char **env = NULL;
	pthread_attr_t attr;
	pthread_t thread;
	pid_t pid;
	int r;

	if (!ns->options->on_commit || !*ns->options->on_commit)
		return;
	if (asprintf(&script, "%s \"$1\"", ns->options->on_commit) < 0)
		script = NULL;
	if (asprintf(&path, "%s/%s", ns->ckpt->source->path, step) < 0)
		path = NULL;
	env = environment();
	if (!script || !path || !env) {
		log_warn("on_commit was not run for '%s': no memory", step);
		return;
	}
	char *argv[] = { "sh", "-c", script, "pytreefs", path, NULL };

	r = posix_spawn(&pid, "/bin/sh", NULL, NULL, argv, env);
	if (r) {
		log_warn("on_commit was not run for '%s': %s", step, strerror(r));
		return;
	}
	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	/* Without a thread it stays unwaited for until the mount ends, which is no harm. */
	if (pthread_create(&thread, &attr, wait_for, (void *)(intptr_t)pid))
		log_warn("on_commit for '%s' runs unwatched", step);
	pthread_attr_destroy(&attr);
}
