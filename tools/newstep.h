/*
 * newstep.h - a checkpoint that a command makes at a path: a draft, filled from inputs, and committed.
 */
#ifndef PYTREEFS_NEWSTEP_H
#define PYTREEFS_NEWSTEP_H

#include "tools/cmd.h"
#include "tools/feeds.h"

/* What lies at the path when all is done: items in a directory, or one tree. */
enum layout_kind { LAYOUT_ITEMS, LAYOUT_DIRECT };

struct newstep {
	struct ns *ns;			/* of the directory that the path is in */
	struct draft *draft;
	char *dir, *name;		/* of the path */
	char *old;			/* name of what --force put out of the way; NULL: nothing */
	bool force;
	struct team *team;		/* borrowed; NULL: one process does all */
	bool is_shared;			/* the draft is that of all ranks of the team */
};

/*
 * -EEXIST: there is something, and no force; with force it must be a checkpoint. Ranks of a team share the
 * draft: all of them call each of these functions, and get the same result.
 */
int newstep_begin(struct cmd_args *a, struct team *team, const char *path, enum layout_kind layout, bool force,
		  struct newstep *ret);
/* The checkpoint is there and durable, or nothing is (what force would have replaced is as it was). */
int newstep_commit(struct newstep *n);
/* A draft that was not committed goes away. */
void newstep_release(struct newstep *n);
#define auto_newstep __attribute__((cleanup(newstep_release))) struct newstep

/* "DIR/NAME" taken apart; DIR is "." when there is none. */
int path_split(const char *path, char **ret_dir, char **ret_name);
/*
 * Whether something new at a path, in the directory dir, leaves every checkpoint whole: -EINVAL inside of one. An
 * item may be made in a step.
 */
int path_check_outside(const char *path, const char *dir, bool may_be_item);
/* Whether the user gave an option of the mount; name must be in the table. */
bool option_was_given(const struct options *o, const char *name);
/* Options that a command reads and writes with in at most 512 MiB, unless the user gave others. */
void bound_memory(struct cmd_args *a);

#endif
