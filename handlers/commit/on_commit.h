/* SPDX-License-Identifier: Apache-2.0 */
/*
 * on_commit.h - the command that is run when a step is durable.
 */
#ifndef PYTREEFS_ON_COMMIT_H
#define PYTREEFS_ON_COMMIT_H

#include "handlers/draft/draft_env.h"

/*
 * Start on_commit= with the step's path below SOURCE's as its argument, and return at once. How it
 * ends goes to the log, and changes nothing.
 */
void on_commit_run(const struct draft_env *drafts, const char *step);

#endif
