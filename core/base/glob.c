/*
 * glob.c - fnmatch(3) for each name, and '**' between them.
 */
#include "core/base/glob.h"

#include <fnmatch.h>
#include <string.h>

#include "core/base/limits.h"

/* One name against one part of a pattern; neither holds a slash. */
static bool part_matches(const char *pattern, size_t np, const char *name, size_t nn)
{
	char p[LIMIT_NAME_BYTES + 1], n[LIMIT_NAME_BYTES + 1];

	if (np > LIMIT_NAME_BYTES || nn > LIMIT_NAME_BYTES)
		return false;
	memcpy(p, pattern, np);
	memcpy(n, name, nn);
	p[np] = n[nn] = '\0';
	return fnmatch(p, n, 0) == 0;
}

bool glob_match(const char *pattern, const char *path)
{
	/* Where to go on when what follows the last "**" does not match: one name further. */
	const char *star = NULL, *star_path = NULL;

	if (!strchr(pattern, '/') && strcmp(pattern, "**")) {
		const char *slash = strrchr(path, '/');

		path = slash ? slash + 1 : path;
	}
	while (*path) {
		size_t np = strcspn(pattern, "/"), nn = strcspn(path, "/");

		if (np == 2 && !strncmp(pattern, "**", 2)) {
			star = pattern + np + (pattern[np] == '/');
			star_path = path;
			pattern = star;
			if (!*pattern)
				return true;
			continue;
		}
		if (np && part_matches(pattern, np, path, nn)) {
			pattern += np + (pattern[np] == '/');
			path += nn + (path[nn] == '/');
			continue;
		}
		if (!star)
			return false;
		star_path += strcspn(star_path, "/");
		star_path += *star_path == '/';
		path = star_path;
		pattern = star;
	}
	while (!strncmp(pattern, "**", 2))
		pattern += 2 + (pattern[2] == '/');
	return !*pattern;
}
