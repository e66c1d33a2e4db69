/* SPDX-License-Identifier: Apache-2.0 */
/* draft_collective.h - commits a draft that the ranks of a job share. */
#ifndef PYTREEFS_DRAFT_COLLECTIVE_H
#define PYTREEFS_DRAFT_COLLECTIVE_H

#include "handlers/job/job_driver.h"

/*
 * Run this rank's part of a commit whose items are planned; r: the error of planning them. All
 * ranks get the same result when all take part; -ETIMEDOUT when one does not.
 */
int draft_commit_collective(struct course *c, int r, int64_t deadline);

/* ---- its parts ---- */

/*
 * Carry out the assignments of the primary: make values of this rank durable under their names in
 * the step (collective_values.c). assignments is NULL for a rank that has nothing to do.
 */
int contribution_seal(struct draft *d, struct sealing_item *item, size_t n,
		      struct span assignments);
/*
 * For a draft whose ranks have directories of their own: remove files of failed attempts from the
 * one of this rank.
 */
int collective_clean_own(struct draft *d, const struct sealing_item *item, size_t n);
/*
 * The primary's work before and after the ranks carry out their assignments: remove everything but
 * values of ranks from the items' directories; join parts that fit no grid; move files that no item
 * refers to out of the way. (collective_items.c)
 */
int collective_items_clean(struct collective_plan *jp);
int collective_items_join(struct collective_plan *jp);

struct leftovers_dir {
	struct draft_dir *dir; /* NULL: not needed */
	struct buf names;      /* NUL-terminated, one after another */
};
int collective_leftovers_move(struct collective_plan *jp, struct leftovers_dir *ret);
/* Move the files back into the draft, or, after a commit, remove them. */
void collective_leftovers_end(struct collective_plan *jp, struct leftovers_dir *l, bool committed);

/* Make a store in a new directory `path` of dir, in place of what a failed attempt has left. */
int collective_store_new(struct io_dir *dir, const char *path, const struct item_store_opts *opts,
			 struct item_store **ret);
/*
 * Append the path, below the draft, of a part that a rank exports so that the primary can join it.
 */
int collective_export_path(int rank, size_t item, size_t leaf, size_t box, struct buf *ret);

#endif
