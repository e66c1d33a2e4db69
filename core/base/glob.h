/*
 * glob.h - patterns over paths: '*' and '?' within a name, '**' over any number of names, [sets].
 */
#ifndef PYTREEFS_GLOB_H
#define PYTREEFS_GLOB_H

#include <stdbool.h>

/*
 * Whether the whole path matches. A pattern without a slash matches the last name of a path at any
 * depth; "**" behind a slash matches everything below.
 */
bool glob_match(const char *pattern, const char *path);

#endif
