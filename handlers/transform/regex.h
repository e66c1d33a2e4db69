/* SPDX-License-Identifier: Apache-2.0 */
/*
 * regex.h - regular expressions over whole keys, in the syntax that Python's and PCRE2 share.
 *
 * A compiled one is immutable: any number of threads may match at once.
 */
#ifndef PYTREEFS_REGEX_H
#define PYTREEFS_REGEX_H

#include "core/base/buf.h"

#define REGEX_GROUPS_MAX 32 /* ours: groups of one expression, the whole match included */

struct regex;

/* What a match found; a group that took no part has p == NULL. Borrowed from the subject. */
struct regex_match {
	struct span group[REGEX_GROUPS_MAX];
	unsigned n;
};

/* -EINVAL says where it is wrong; what names it in messages. */
int regex_new(struct span pattern, const char *what, struct regex **ret);
void regex_free(struct regex *re);
DEFINE_AUTO(regex, struct regex, regex_free);
/* Whether all of s matches: 1 and the groups, or 0. -EINVAL when it takes too many steps. */
int regex_match(const struct regex *re, struct span s, struct regex_match *ret);
/* The number of a named group, or -1. */
int regex_group(const struct regex *re, struct span name);
/* How many groups it has, the whole match included. */
unsigned regex_count(const struct regex *re);
/*
 * A replacement text with \1, \g<1>, \g<name> and \\ filled in, as Python's match.expand().
 * -EINVAL: a group that there is not, another escape.
 */
int regex_expand(const struct regex *re, const struct regex_match *m, struct span text,
		 struct buf *ret);

/* A piece of a replacement text: literal bytes, or a group (group >= 0). */
struct regex_piece {
	struct span text;
	int group;
};
/* The next piece of *text, which moves on: 1, 0 at the end, -EINVAL. */
int regex_piece(const struct regex *re, struct span *text, struct regex_piece *ret);

#endif
