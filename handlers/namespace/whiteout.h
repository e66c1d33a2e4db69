/* SPDX-License-Identifier: Apache-2.0 */
/*
 * whiteout.h - names inside committed steps that are hidden after `rm -r STEP` removed them, before
 * it reaches the step itself.
 *
 * Whiteouts change nothing on disk: the step is deleted as a whole by the final rmdir. If that
 * never comes, the names reappear after a while.
 */
#ifndef PYTREEFS_WHITEOUT_H
#define PYTREEFS_WHITEOUT_H

#include "handlers/namespace/node.h"

/* Whether a name of a directory is hidden. This is cheap as long as no name is. */
bool whiteout_has(const struct node *dir, struct span name);
/* Hide a name of a directory. -EROFS without allow_delete, and outside steps. */
int whiteout_add(struct node *dir, struct span name);
/* Forget the hidden names of a step that was deleted. */
void whiteout_clear(struct ns *ns, struct span step);
/* For ns_close(). */
void whiteout_release(struct ns *ns);

#endif
