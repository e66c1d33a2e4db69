/* SPDX-License-Identifier: Apache-2.0 */
/*
 * step_deletion.h - `_CHECKPOINT_DELETION`: the record of an item that is being deleted.
 *
 * While it lies in a step a reader hides the item that it names.
 */
#ifndef PYTREEFS_STEP_DELETION_H
#define PYTREEFS_STEP_DELETION_H

#include "core/base/arena.h"

struct step_deletion {
	struct arena arena;
	struct span operation; /* 32 hex digits */
	struct span item;
	struct span destination;       /* p NULL: removed, not moved */
	struct span original, updated; /* `_CHECKPOINT_METADATA`, before and after, sorted */
};

/*
 * -EUCLEAN: malformed, an item name that cannot be one, or an updated document that is not the
 * original one without the item.
 */
int step_deletion_parse(struct span json, const char *what, struct step_deletion **ret);
/* Whether the step's `_CHECKPOINT_METADATA` is one of the two documents; -EUCLEAN: not JSON. */
int step_deletion_matches(const struct step_deletion *d, struct span metadata);
/* The record as Orbax writes it. */
int step_deletion_print(const struct step_deletion *d, struct buf *ret);
/* Accepts NULL. */
void step_deletion_free(struct step_deletion *d);
DEFINE_AUTO(step_deletion, struct step_deletion, step_deletion_free);

#endif
