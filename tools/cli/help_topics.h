/* SPDX-License-Identifier: Apache-2.0 */
/*
 * help_topics.h - the pages of docs/ that `pytreefs help TOPIC` prints.
 */
#ifndef PYTREEFS_HELP_TOPICS_H
#define PYTREEFS_HELP_TOPICS_H

#include <stdbool.h>
#include <stdio.h>

/* Print the page of that name. Returns false when it does not exist. */
bool help_topic(FILE *out, const char *name);
/* Print the names of all pages; with the separator ", ": "views, writing". */
void help_topics_list(FILE *out, const char *separator);

#endif
