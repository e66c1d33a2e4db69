/* SPDX-License-Identifier: Apache-2.0 */
/*
 * glob.h - the patterns of all options that choose leaves: rule=, aggregate=, priority=, --only.
 *
 * `*` stands for any characters within a name, `?` for one, `[a-z]` for one of a set (`[!a-z]` for
 * one that is not in it), `**` for any characters with slashes among them, and `\` before a
 * character for that character itself. A `**` that is a whole name may also stand for no name at
 * all: `a/ **` (without the blank) matches `a`, `a/b` and `a/b/c`.
 *
 * A pattern without a slash is matched against the last name of a path. One with a slash is matched
 * against the whole path. When its last name is plain, without wildcards, it may be that of a
 * directory: all that is below it matches. A slash at the end says that it is one; a slash at the
 * front only makes the pattern one with a slash.
 *
 * The time is bounded by the product of the two lengths, whatever the pattern.
 */
#ifndef PYTREEFS_GLOB_H
#define PYTREEFS_GLOB_H

#include <stdbool.h>

#include "core/base/buf.h"

/* A pattern longer than LIMIT_PATH_BYTES matches nothing. */
bool glob_match(const char *pattern, struct span path);

/*
 * Whether a pattern selects a leaf. path begins with the name of the item: "state/params/w.npy". A
 * pattern with a slash may begin at any of the first 1 + skip names; with skip 1, it may leave out
 * the name of the item. The last `ext` bytes of the path may be left out, too.
 */
bool glob_selects(const char *pattern, struct span path, unsigned skip, size_t ext);

/* Whether a pattern is matched against the last name only. */
bool glob_is_name(const char *pattern);

/* Like glob_match(), and adds the number of steps to *steps; for tests. */
bool glob_match_counted(const char *pattern, struct span path, unsigned long long *steps);

#endif
