/* SPDX-License-Identifier: Apache-2.0 */
/*
 * selection.h - the common part of commands that visit leaves: their options, the steps of a root,
 * and reports of what cannot be read.
 */
#ifndef PYTREEFS_SELECTION_H
#define PYTREEFS_SELECTION_H

#include "tools/cli/cmd.h"
#include "tools/select/walk.h"

/*
 * Options for their tables. selection_begin() looks for --only and --quiet, so all these commands
 * have both; the others are optional.
 */
#define OPTION_ONLY                                                                          \
	{                                                                                    \
		"only", 0, "GLOB", "only leaves that match (`pytreefs help patterns`)", true \
	}
#define OPTION_JSON                                        \
	{                                                  \
		"json", 0, NULL, "print one JSON document" \
	}
#define OPTION_QUIET                                                           \
	{                                                                      \
		"quiet", 'q', NULL, "print neither a progress bar nor remarks" \
	}
#define OPTION_VERBOSE                                     \
	{                                                  \
		"verbose", 'v', NULL, "print more details" \
	}

struct selection;
/* Called for a step that cannot be opened, after the reason was printed. */
typedef int selection_lost_fn(struct selection *t, const char *step, const struct err_note *why,
			      void *arg);

struct selection {
	struct cmd_args *a;
	selection_lost_fn *lost; /* NULL: nothing more is done with such a step */
	struct progress progress;
	struct select *only;      /* NULL: all leaves */
	size_t leaves;            /* number of leaves that --only selected, in all steps */
	size_t failed;            /* number of leaves and items that could not be read */
	struct rank_group *group; /* borrowed; NULL: one process does all */
};

/* Called for one tree or step; prefix is "100/" for a step of a root, else "". */
typedef int selection_fn(struct selection *t, const struct subtree *st, const char *prefix,
			 void *arg);

int selection_begin(struct selection *t, struct cmd_args *a);
/* Share the leaves with the other ranks; NULL: a single process. Only rank 0 prints. */
void selection_share(struct selection *t, struct rank_group *group);
/*
 * Call fn for each step of a root, one after another, or once for any other source. Steps of a root
 * and items that cannot be opened are reported on stderr and counted.
 */
int selection_each(struct selection *t, struct source *s, selection_fn *fn, void *arg);
/* Walk over the selected leaves of one of these. */
int selection_walk(struct selection *t, const struct subtree *st, const char *prefix,
		   const struct walk_ops *ops, void *arg);
/* Print "pytreefs: 'PATH': reason" on stderr, and count a failure. */
void selection_failed(struct selection *t, const char *path, const struct err_note *why);
/* Do this for each item of a tree that cannot be opened. */
int selection_broken(struct selection *t, const struct subtree *st, const char *prefix);
/*
 * Returns the exit status, that of an error when a part could not be read; -ENOENT when a pattern
 * of --only selected nothing.
 */
int selection_end(struct selection *t);

#endif
