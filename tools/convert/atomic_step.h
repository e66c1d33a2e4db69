/* SPDX-License-Identifier: Apache-2.0 */
/*
 * atomic_step.h - a checkpoint that a command makes at a path: a draft that is filled from inputs
 * and committed.
 */
#ifndef PYTREEFS_ATOMIC_STEP_H
#define PYTREEFS_ATOMIC_STEP_H

#include "tools/cli/cmd.h"
#include "tools/convert/import_list.h"
#include "tools/convert/new_root.h"

/* The result at the path: items in a directory, or one tree. */
enum layout_kind { LAYOUT_ITEMS, LAYOUT_DIRECT };

struct atomic_step {
	struct ns *ns; /* of the directory that contains the path */
	struct draft *draft;
	struct new_root root;     /* directories that were made above the path, until the commit */
	char *dir, *name;         /* the parts of the path */
	bool force;               /* an existing checkpoint is replaced by the commit */
	struct rank_group *group; /* borrowed; NULL: one process does all */
	bool is_shared;           /* the draft is shared by all ranks */
};

/*
 * Begin a checkpoint. Directories above it are made, unless they are there. -EEXIST: the path
 * exists, and force is not set; with force, it must be a checkpoint. If ranks share the draft, all
 * of them call each of these functions, and get the same result.
 */
int atomic_step_begin(struct cmd_args *a, struct rank_group *group, const char *path,
		      enum layout_kind layout, bool force, struct atomic_step *ret);
/* Commit. Either the checkpoint is visible and durable, or nothing has changed. */
int atomic_step_commit(struct atomic_step *n);
/* Remove a draft that was not committed, and the directories that were made for it. */
void atomic_step_release(struct atomic_step *n);
#define auto_atomic_step __attribute__((cleanup(atomic_step_release))) struct atomic_step

/* Split "DIR/NAME"; DIR is "." when there is no slash. */
int path_split(const char *path, char **ret_dir, char **ret_name);
/* Refuse a name for something new that is read as the newest step: -EINVAL. */
int path_check_latest(const char *path);
/* -ENOENT with a note if the path is a symbolic link to what does not exist: nothing is made there.
 */
int path_check_link(const char *path);
/* Check the name of a step to be made in the directory dir, which need not exist
 * (step_check_name()). */
int path_check_step_name(struct cmd_args *a, const char *dir, const char *name);
/*
 * Check that a new name in the directory dir does not change an existing checkpoint: -EINVAL inside
 * one, except for an item in a step.
 */
int path_check_outside(const char *path, const char *dir, bool may_be_item);
/*
 * Set options so that a command reads and writes with at most 512 MiB, unless the user gave others.
 */
void bound_memory(struct cmd_args *a);
/*
 * The same for a command that writes a draft: the names and metadata of leaves may take as much
 * again, unless the user gave the option cache. This also bounds what is read before there is a
 * cache. Returns the bytes that leaves may take.
 */
uint64_t bound_leaves(struct cmd_args *a);

#endif
