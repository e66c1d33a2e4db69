/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rules.h - reports leaves that the rules of transforms= leave out, for commands that write the
 * rest.
 */
#ifndef PYTREEFS_RULES_H
#define PYTREEFS_RULES_H

#include "handlers/subtree/subtree.h"
#include "handlers/transform/transform.h"
#include "tools/cli/cmd.h"

#define OPTION_STRICT                                                                 \
	{                                                                             \
		"strict", 0, NULL, "transforms=: refuse unused leaves and idle rules" \
	}

/*
 * Count stored leaves that no rule uses, and rules that make nothing in any of the trees: with
 * --strict they are an error, -EINVAL, else one line on stderr, unless --quiet is set or say is
 * not. Does nothing without transforms=.
 */
int rules_check(const struct cmd_args *a, const struct subtree *st, bool say);

#endif
