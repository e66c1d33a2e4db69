/*
 * targets.h - what a command that goes through leaves has in common with the others: its options,
 * the steps of a root, and saying what cannot be read.
 */
#ifndef PYTREEFS_TARGETS_H
#define PYTREEFS_TARGETS_H

#include "tools/cmd.h"
#include "tools/walk.h"

/* Options that all of them have, for their tables. */
#define OPTION_ONLY { "only", 0, "GLOB", "only leaves at or below a match; '**' spans names", true }
#define OPTION_JSON { "json", 0, NULL, "as one JSON document" }
#define OPTION_QUIET { "quiet", 'q', NULL, "no progress bar, no remarks" }
#define OPTION_VERBOSE { "verbose", 'v', NULL, "say more" }

struct targets {
	struct cmd_args *a;
	struct progress progress;
	size_t leaves;			/* that --only chose, of all steps */
	size_t failed;			/* leaves and items that could not be read */
	struct team *team;		/* borrowed; NULL: one process does all */
};

/* One tree or step; prefix is "100/" for a step of a root, else "". */
typedef int targets_fn(struct targets *t, const struct subtree *st, const char *prefix, void *arg);

void targets_begin(struct targets *t, struct cmd_args *a);
/* Share the leaves with the other ranks; NULL: with nobody. Only rank 0 says anything. */
void targets_share(struct targets *t, struct team *team);
/*
 * fn for what the source names: for each step of a root, one after the other, else once. Items that
 * cannot be opened are said on stderr and counted.
 */
int targets_each(struct targets *t, struct source *s, targets_fn *fn, void *arg);
/* Walk over one of them, as --only says. */
int targets_walk(struct targets *t, const struct subtree *st, const char *prefix,
		 const struct walk_ops *ops, void *arg);
/* "pytreefs: 'PATH': reason" on stderr, and one more that failed. */
void targets_failed(struct targets *t, const char *path, const struct err_note *why);
/* The same for each item of a tree that cannot be opened. */
int targets_broken(struct targets *t, const struct subtree *st, const char *prefix);
/* The exit status; -ENOENT when --only matched nothing. */
int targets_end(struct targets *t);

#endif
