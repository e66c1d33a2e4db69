/* SPDX-License-Identifier: Apache-2.0 */
/*
 * help_topics.c - the pages of docs/, compiled into the program for installations without them.
 */
#include "tools/cli/help.h"

#include <stddef.h>
#include <string.h>

/* The build makes these from docs/NAME.md (tools/embed.py). */
extern const char page_views[], page_writing[], page_filesystems[], page_transforms[],
	page_errors[];
extern const size_t page_views_size, page_writing_size, page_filesystems_size, page_transforms_size,
	page_errors_size;

static const struct {
	const char *name, *text;
	const size_t *size;
} topics[] = {
	{ "views", page_views, &page_views_size },
	{ "writing", page_writing, &page_writing_size },
	{ "filesystems", page_filesystems, &page_filesystems_size },
	{ "transforms", page_transforms, &page_transforms_size },
	{ "errors", page_errors, &page_errors_size },
};

#define TOPICS (sizeof(topics) / sizeof(topics[0]))

bool help_topic(FILE *out, const char *name)
{
	for (size_t i = 0; i < TOPICS; i++)
		if (!strcmp(topics[i].name, name)) {
			fwrite(topics[i].text, 1, *topics[i].size, out);
			return true;
		}
	return false;
}

void help_topics_list(FILE *out, const char *separator)
{
	for (size_t i = 0; i < TOPICS; i++)
		fprintf(out, "%s%s", i ? separator : "", topics[i].name);
}
