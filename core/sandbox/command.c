/* SPDX-License-Identifier: Apache-2.0 */
#include "core/sandbox/command.h"

#include <errno.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/buf.h"
#include "core/base/mem.h"

extern char **environ;

/*
 * Returns the environment without variables that would make a pytreefs in it a rank of this mount's
 * job. The caller frees it.
 */
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

int command_spawn(const char *command, const char *argument, pid_t *ret)
{
	auto_free char *script = str_fmt("%s \"$1\"", command), *value = strdup(argument);
	auto_free char **env = environment();
	posix_spawn_file_actions_t files;
	posix_spawnattr_t how;
	sigset_t none, ignored;
	int e;

	if (!script || !value || !env)
		return -ENOMEM;
	char *argv[] = { "sh", "-c", script, "pytreefs", value, NULL };

	/*
	 * Threads of this program block signals, and it ignores SIGPIPE and SIGXFSZ; the command
	 * gets the defaults.
	 */
	sigemptyset(&none);
	sigemptyset(&ignored);
	sigaddset(&ignored, SIGPIPE);
	sigaddset(&ignored, SIGXFSZ);
	posix_spawnattr_init(&how);
	posix_spawnattr_setsigmask(&how, &none);
	posix_spawnattr_setsigdefault(&how, &ignored);
	posix_spawnattr_setflags(&how, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
	posix_spawn_file_actions_init(&files);
	/* Libraries open files without O_CLOEXEC. */
	e = posix_spawn_file_actions_addclosefrom_np(&files, STDERR_FILENO + 1);
	if (!e)
		e = posix_spawn(ret, "/bin/sh", &files, &how, argv, env);
	posix_spawn_file_actions_destroy(&files);
	posix_spawnattr_destroy(&how);
	return -e;
}
