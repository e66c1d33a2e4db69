/* SPDX-License-Identifier: Apache-2.0 */
/*
 * select.h - the leaves that a command is for: the patterns of --only, and whether each of them
 * selected any.
 */
#ifndef PYTREEFS_SELECT_H
#define PYTREEFS_SELECT_H

#include "handlers/subtree/subtree.h"
#include "tools/cli/cmd.h"

struct select {
	struct select_pattern {
		const char *glob;
		bool hit;          /* it has selected a leaf */
		bool is_directory; /* it is the name of a directory */
	} * pattern;
	size_t n;
	unsigned skip; /* leading names that may be left out, where the path does not tell */
};

/*
 * Parse --only, in the memory of the arguments. *ret is NULL, which selects all leaves, when it was
 * not given.
 */
int select_make(struct cmd_args *a, struct select **ret);
/*
 * Whether a path in a directory, an archive or a file of tensors is selected, with or without its
 * extension.
 */
bool select_path(struct select *s, struct span path);
/*
 * Whether a leaf of a part is selected, by its path from the step, from the item, inside the item,
 * or from the node of the subtree.
 */
bool select_leaf(struct select *s, const char *prefix, const struct subtree_part *part,
		 const struct tree_node *leaf);
/* Call when all leaves were tried. -ENOENT: a pattern selected nothing. */
int select_end(const struct select *s);

#endif
