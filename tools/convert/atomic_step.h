/* SPDX-License-Identifier: Apache-2.0 */
/*
 * atomic_step.h - a checkpoint that a command makes at a path: a draft, filled from inputs, and
 * committed.
 */
#ifndef PYTREEFS_ATOMIC_STEP_H
#define PYTREEFS_ATOMIC_STEP_H

#include "core/commit/spill_dir.h"
#include "tools/cli/cmd.h"
#include "tools/convert/import_list.h"

/* What lies at the path when all is done: items in a directory, or one tree. */
enum layout_kind { LAYOUT_ITEMS, LAYOUT_DIRECT };

struct atomic_step {
	struct ns *ns; /* of the directory that the path is in */
	struct draft *draft;
	char *dir, *name;           /* of the path; of a URL, dir is where the step is made first */
	struct step_upload *upload; /* the way from there to the URL; NULL: none */
	struct io_engine *spill_io; /* of spill */
	struct spill_dir spill;
	char *old; /* name of what --force put out of the way; NULL: nothing */
	bool force;
	struct rank_group *group; /* borrowed; NULL: one process does all */
	bool is_shared;           /* all ranks share the draft */
};

/*
 * -EEXIST: there is something, and no force; with force it must be a checkpoint. All ranks share
 * the draft: all of them call each of these functions, and get the same result.
 */
int atomic_step_begin(struct cmd_args *a, struct rank_group *group, const char *path,
		      enum layout_kind layout, bool force, struct atomic_step *ret);
/* The checkpoint is there and durable, or nothing is (what force would have replaced is as it was).
 */
int atomic_step_commit(struct atomic_step *n);
/* A draft that was not committed goes away. */
void atomic_step_release(struct atomic_step *n);
#define auto_atomic_step __attribute__((cleanup(atomic_step_release))) struct atomic_step

/* "DIR/NAME" taken apart; DIR is "." when there is none. */
int path_split(const char *path, char **ret_dir, char **ret_name);
/*
 * Whether something new at a path, in the directory dir, leaves every checkpoint whole: -EINVAL
 * inside of one. An item may be made in a step.
 */
int path_check_outside(const char *path, const char *dir, bool may_be_item);
/* Whether the user gave an option of the mount; name must be in the table. */
bool option_was_given(const struct options *o, const char *name);
/* Options that a command reads and writes with in at most 512 MiB, unless the user gave others. */
void bound_memory(struct cmd_args *a);
/*
 * The same of a command that writes a draft: names of leaves, and what is made of them, may take as
 * much again, unless the user said how much by the option cache; and what is read before there is a
 * cache is bounded by it, too.
 */
void bound_leaves(struct cmd_args *a);

#endif
