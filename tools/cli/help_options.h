/* SPDX-License-Identifier: Apache-2.0 */
/*
 * help_options.h - the option table, and the syntax of patterns, as text or Markdown.
 */
#ifndef PYTREEFS_HELP_OPTIONS_H
#define PYTREEFS_HELP_OPTIONS_H

#include <stdio.h>

/* format: "--text" (or NULL) or "--markdown"; returns -1 for another one. */
int help_options(FILE *out, const char *format);
void help_patterns(FILE *out);

#endif
