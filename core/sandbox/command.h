/* SPDX-License-Identifier: Apache-2.0 */
/*
 * command.h - runs a shell command of the user.
 */
#ifndef PYTREEFS_CORE_SANDBOX_COMMAND_H
#define PYTREEFS_CORE_SANDBOX_COMMAND_H

#include <sys/types.h>

/*
 * Start `sh -c 'COMMAND "$1"'` with that argument, default signal handling, and an environment
 * without a job. The caller waits for the process. Returns a negative error code without a note.
 */
int command_spawn(const char *command, const char *argument, pid_t *ret);

#endif
