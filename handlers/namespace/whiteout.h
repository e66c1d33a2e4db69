/* SPDX-License-Identifier: Apache-2.0 */
/*
 * whiteout.h - names inside committed steps that `rm -r STEP` has taken away on its way to the step.
 *
 * Nothing on the disk changes by them: a step is deleted as a whole, by the rmdir
 * at the end. Names that are left by an rm that never came so far are shown again
 * after a while.
 */
#ifndef PYTREEFS_WHITEOUT_H
#define PYTREEFS_WHITEOUT_H

#include "handlers/namespace/node.h"

/* Whether a name of a directory is hidden; cheap while nothing is. */
bool whiteout_has(const struct node *dir, struct span name);
/* Hide a name of a directory. -EROFS without allow_delete, and outside of a step. */
int whiteout_add(struct node *dir, struct span name);
/* A step is gone: forget its names. */
void whiteout_clear(struct ns *ns, struct span step);
/* For ns_close(). */
void whiteout_release(struct ns *ns);

#endif
