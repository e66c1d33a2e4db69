/* SPDX-License-Identifier: Apache-2.0 */
/*
 * select.h - which leaves a command is for: the patterns of --only, and whether each of them chose
 * any.
 */
#ifndef PYTREEFS_SELECT_H
#define PYTREEFS_SELECT_H

#include "handlers/subtree/subtree.h"
#include "tools/cli/cmd.h"

struct select {
	struct select_pattern {
		const char *glob;
		bool hit;          /* a leaf was chosen by it */
		bool is_directory; /* it is the name of one */
	} * pattern;
	size_t n;
	unsigned skip; /* select_path(): names that may be left out in front */
};

/* Of --only, in the memory of the arguments; *ret is NULL, which chooses all, when it was not
 * given. */
int select_make(struct cmd_args *a, struct select **ret);
/* A path in a directory, an archive or a file of tensors, with its extension or without. */
bool select_path(struct select *s, struct span path);
/* A leaf of a part: from its step, its item, what is in it, or the node of the subtree on. */
bool select_leaf(struct select *s, const char *prefix, const struct subtree_part *part,
		 const struct tree_node *leaf);
/* -ENOENT: a pattern chose nothing. When all leaves were looked at. */
int select_end(const struct select *s);

#endif
