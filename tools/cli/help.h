/* SPDX-License-Identifier: Apache-2.0 */
/*
 * help.h - the texts of `pytreefs help`, besides the help of commands.
 */
#ifndef PYTREEFS_HELP_H
#define PYTREEFS_HELP_H

#include <stdbool.h>
#include <stdio.h>

/* The option table. format: "--text" (or NULL) or "--markdown"; returns -1 for another one. */
int help_options(FILE *out, const char *format);
/* The syntax of patterns. */
void help_patterns(FILE *out);
/* The page of docs/ of that name. Returns false when it does not exist. */
bool help_topic(FILE *out, const char *name);
/* The names of all pages; with the separator ", ": "views, writing". */
void help_topics_list(FILE *out, const char *separator);
/*
 * A manual page as troff source: "pytreefs" (section 1) or "mount.pytreefs" (8). Returns -1 for
 * another one.
 */
int manual_print(FILE *out, const char *page);

#endif
