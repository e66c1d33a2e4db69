/* SPDX-License-Identifier: Apache-2.0 */
/* on_commit.h - the command that runs when a step is durable. */
#ifndef PYTREEFS_ON_COMMIT_H
#define PYTREEFS_ON_COMMIT_H

#include "handlers/draft/draft_env.h"

/*
 * Start the command of on_commit= with the path of the step below SOURCE as its argument, and
 * return at once. Its exit status is logged, and has no effect.
 */
void on_commit_run(const struct draft_env *drafts, const char *step);

#endif
