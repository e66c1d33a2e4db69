/* SPDX-License-Identifier: Apache-2.0 */
/*
 * selected.h - the names that a listing shows when --only selects leaves: the leaves, and the
 * directories above them.
 */
#ifndef PYTREEFS_SELECTED_H
#define PYTREEFS_SELECTED_H

#include "tools/cli/cmd.h"

struct selected {
	bool is_all; /* --only was not given */
	char **path; /* paths of leaves from the source's node on, sorted */
	size_t n, cap;
};

/* If the source is a root, all of its steps are searched. -ENOENT: a pattern selected nothing. */
int selected_make(struct cmd_args *a, struct source *s, struct selected *ret);
void selected_release(struct selected *s);
#define auto_selected __attribute__((cleanup(selected_release))) struct selected

/* Whether a path is that of a leaf in the set, or above one. */
bool selected_has(const struct selected *s, const char *path);

#endif
