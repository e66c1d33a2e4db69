/* SPDX-License-Identifier: Apache-2.0 */
/*
 * step_deletion.h - `_CHECKPOINT_DELETION`: the record of an item that is being deleted.
 *
 * While this file is in a step, readers hide the item that it names.
 */
#ifndef PYTREEFS_STEP_DELETION_H
#define PYTREEFS_STEP_DELETION_H

#include "core/base/arena.h"

struct step_deletion {
	struct arena arena;
	struct span operation; /* 32 hex digits */
	struct span item;
	struct span destination; /* p NULL: the item is removed, not moved */
	/* `_CHECKPOINT_METADATA` before and after, with sorted members */
	struct span original, updated;
};

/*
 * Parse the file. -EUCLEAN: it is malformed, the item's name is invalid, or the updated document is
 * not the original one without the item.
 */
int step_deletion_parse(struct span json, const char *what, struct step_deletion **ret);
/*
 * Whether the step's `_CHECKPOINT_METADATA` is one of the two documents: 1 or 0. -EUCLEAN: it is
 * not JSON.
 */
int step_deletion_matches(const struct step_deletion *d, struct span metadata);
/* Append the record as Orbax writes it. */
int step_deletion_print(const struct step_deletion *d, struct buf *ret);
/* Accepts NULL. */
void step_deletion_free(struct step_deletion *d);
DEFINE_AUTO(step_deletion, struct step_deletion, step_deletion_free);

#endif
