/* SPDX-License-Identifier: Apache-2.0 */
/*
 * regex.h - regular expressions over whole keys, in the syntax that Python and PCRE2 share.
 *
 * A compiled expression is immutable: any number of threads may match it at once.
 */
#ifndef PYTREEFS_REGEX_H
#define PYTREEFS_REGEX_H

#include "core/base/buf.h"

#define REGEX_GROUPS_MAX 32 /* our limit for groups of one expression, the whole match included */

struct regex;

/*
 * The result of a match, borrowed from the subject. A group that did not take part has p == NULL.
 */
struct regex_match {
	struct span group[REGEX_GROUPS_MAX];
	unsigned n;
};

/*
 * Compile an expression. `what` names it in messages. -EINVAL: the message gives the position of
 * the error.
 */
int regex_new(struct span pattern, const char *what, struct regex **ret);
void regex_free(struct regex *re);
DEFINE_AUTO(regex, struct regex, regex_free);
/* Match all of s. Returns 1 and sets ret, or 0. -EINVAL when the match takes too many steps. */
int regex_match(const struct regex *re, struct span s, struct regex_match *ret);
/* The number of a named group; -1: it does not exist. */
int regex_group(const struct regex *re, struct span name);
/* The number of groups, the whole match included. */
unsigned regex_count(const struct regex *re);
/*
 * Append a replacement text with \1, \g<1>, \g<name> and \\ filled in, as match.expand() of Python
 * does. -EINVAL: the text names a group that does not exist, or has another escape.
 */
int regex_expand(const struct regex *re, const struct regex_match *m, struct span text,
		 struct buf *ret);

/* A piece of a replacement text: literal bytes, or a group (group >= 0). */
struct regex_piece {
	struct span text;
	int group;
};
/* Take the next piece from the front of *text. Returns 1, 0 at the end, or -EINVAL. */
int regex_piece(const struct regex *re, struct span *text, struct regex_piece *ret);

#endif
