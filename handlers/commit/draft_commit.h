/* SPDX-License-Identifier: Apache-2.0 */
/* draft_commit.h - a draft becomes a step. */
#ifndef PYTREEFS_DRAFT_COMMIT_H
#define PYTREEFS_DRAFT_COMMIT_H

#include "handlers/draft/draft.h"

/*
 * Commit the draft as the step `final`. Returns 0 only when the step would survive a power loss. On
 * failure the draft is unchanged. -EBUSY: a leaf is open for writing; -ECANCELED: a leaf is
 * malformed, or the draft is empty; -EPERM: `final` is not a name of a step; -EEXIST; -ETIMEDOUT.
 */
int draft_commit(struct draft *d, struct span final);
/* Whether priority= selects a leaf of arrays: 1 or 0, or an error. Locks the draft. */
int draft_is_priority(struct draft_node *n);
/*
 * Encode the leaves below dir whose path matches glob, before a commit encodes the others. glob
 * NULL: none.
 */
int draft_seal_priority(struct draft_node *dir, const char *glob);

#endif
