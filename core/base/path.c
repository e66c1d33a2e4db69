/* SPDX-License-Identifier: Apache-2.0 */
/*
 * path.c - paths below a directory.
 */
#include "core/base/path.h"

#include <ctype.h>
#include <string.h>

#include "core/base/err.h"
#include "core/base/mem.h"

int path_join(const char *path, struct span name, char **ret)
{
	char *joined = strcmp(path, ".") ? str_fmt("%s/%.*s", path, SPAN_ARG(name)) :
					   span_dup_str(name);

	if (!joined)
		return fail(-ENOMEM, "cannot name '%.*s' in '%s'", SPAN_ARG(name), path);
	*ret = joined;
	return 0;
}

char *path_real_dir(const char *path)
{
	const char *slash = strrchr(path, '/');
	auto_free char *above = slash ? str_fmt("%.*s/", (int)(slash - path), path) : strdup(".");
	auto_free char *dir = above ? realpath(above, NULL) : NULL;

	return dir ? str_fmt("%s/%s", strcmp(dir, "/") ? dir : "", slash ? slash + 1 : path) : NULL;
}

char *path_real(const char *path)
{
	char *whole = realpath(path, NULL);

	return whole ? whole : path_real_dir(path);
}

bool path_is_url(const char *source)
{
	size_t n = 0;

	while (islower((unsigned char)source[n]) || (n && isdigit((unsigned char)source[n])))
		n++;
	return n > 1 && !strncmp(source + n, "://", 3);
}
