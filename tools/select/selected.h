/* SPDX-License-Identifier: Apache-2.0 */
/*
 * selected.h - the names that a listing shows when --only chooses leaves: those, and the
 * directories above them.
 */
#ifndef PYTREEFS_SELECTED_H
#define PYTREEFS_SELECTED_H

#include "tools/cli/cmd.h"

struct selected {
	bool is_all; /* --only was not given */
	char **path; /* of leaves, from the node of the source on; sorted */
	size_t n, cap;
};

/* Of all steps, when the source names their root. -ENOENT: a pattern chose nothing. */
int selected_make(struct cmd_args *a, struct source *s, struct selected *ret);
void selected_release(struct selected *s);
#define auto_selected __attribute__((cleanup(selected_release))) struct selected

/* Whether a path is one of them, or above one. */
bool selected_has(const struct selected *s, const char *path);

#endif
