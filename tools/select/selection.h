/* SPDX-License-Identifier: Apache-2.0 */
/*
 * selection.h - what a command that goes through leaves has in common with the others: its options,
 * the steps of a root, and saying what cannot be read.
 */
#ifndef PYTREEFS_SELECTION_H
#define PYTREEFS_SELECTION_H

#include "tools/cli/cmd.h"
#include "tools/select/walk.h"

/*
 * Options for their tables. selection_begin() looks for --only and --quiet, so all have these; the
 * others are for those that ask for them.
 */
#define OPTION_ONLY                                                                          \
	{                                                                                    \
		"only", 0, "GLOB", "only leaves that match (`pytreefs help patterns`)", true \
	}
#define OPTION_JSON                                     \
	{                                               \
		"json", 0, NULL, "as one JSON document" \
	}
#define OPTION_QUIET                                              \
	{                                                         \
		"quiet", 'q', NULL, "no progress bar, no remarks" \
	}
#define OPTION_VERBOSE                           \
	{                                        \
		"verbose", 'v', NULL, "say more" \
	}

struct selection {
	struct cmd_args *a;
	struct progress progress;
	struct select *only;      /* NULL: all leaves */
	size_t leaves;            /* that --only chose, of all steps */
	size_t failed;            /* leaves and items that could not be read */
	struct rank_group *group; /* borrowed; NULL: one process does all */
};

/* One tree or step; prefix is "100/" for a step of a root, else "". */
typedef int selection_fn(struct selection *t, const struct subtree *st, const char *prefix,
			 void *arg);

int selection_begin(struct selection *t, struct cmd_args *a);
/* Share the leaves with the other ranks; NULL: with nobody. Only rank 0 says anything. */
void selection_share(struct selection *t, struct rank_group *group);
/*
 * fn for what the source names: for each step of a root, one after the other, else once. Items that
 * cannot be opened are said on stderr and counted.
 */
int selection_each(struct selection *t, struct source *s, selection_fn *fn, void *arg);
/* Walk over one of them, as --only says. */
int selection_walk(struct selection *t, const struct subtree *st, const char *prefix,
		   const struct walk_ops *ops, void *arg);
/* "pytreefs: 'PATH': reason" on stderr, and one more that failed. */
void selection_failed(struct selection *t, const char *path, const struct err_note *why);
/* The same for each item of a tree that cannot be opened. */
int selection_broken(struct selection *t, const struct subtree *st, const char *prefix);
/* The exit status; -ENOENT when a pattern of --only matched nothing. */
int selection_end(struct selection *t);

#endif
