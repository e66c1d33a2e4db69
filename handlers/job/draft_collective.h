/* SPDX-License-Identifier: Apache-2.0 */
/*
 * draft_collective.h - a draft that the ranks of a job commit together.
 */
#ifndef PYTREEFS_DRAFT_COLLECTIVE_H
#define PYTREEFS_DRAFT_COLLECTIVE_H

#include "core/job/collective.h"
#include "handlers/job/collective_plan.h"

/*
 * This rank's part of a commit whose items are planned; r: what was wrong with them. The same
 * result on all ranks when all have come; -ETIMEDOUT when one has not.
 */
int draft_commit_collective(struct draft *d, struct sealing_item *item, size_t n, const char *final,
			    struct span custom, int r, int64_t deadline);

/* ---- parts of it ---- */

/*
 * Do what the primary asks for: values of this rank durable under their names in the step
 * (collective_values.c). assignments is NULL for a rank that has nothing to do.
 */
int contribution_seal(struct draft *d, struct sealing_item *item, size_t n,
		      struct span assignments);
/*
 * The primary, before and after the ranks do that: nothing but values of ranks is left in the
 * items' directories; parts that fit no grid are put together; what no item refers to is out of the
 * way. (collective_items.c)
 */
int collective_items_clean(struct collective_plan *jp);
int collective_items_join(struct collective_plan *jp);

struct leftovers_dir {
	struct draft_dir *dir; /* NULL: none was needed */
	struct buf names;      /* NUL-terminated, one after the other */
};
int collective_leftovers_move(struct collective_plan *jp, struct leftovers_dir *ret);
/* Back into the draft, or away for good. */
void collective_leftovers_end(struct collective_plan *jp, struct leftovers_dir *l, bool committed);

/* Where a rank leaves a part that has to be put together anew, below the draft. */
int collective_export_path(int rank, size_t item, size_t leaf, size_t box, struct buf *ret);

#endif
