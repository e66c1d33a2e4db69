/* SPDX-License-Identifier: Apache-2.0 */
/*
 * path.c - paths below a directory.
 */
#include "core/base/path.h"

#include <ctype.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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

size_t path_dir_len(const char *path, size_t n)
{
	while (n > 0 && path[n - 1] != '/')
		n--;
	while (n > 1 && path[n - 1] == '/')
		n--;
	return n;
}

bool path_is_url(const char *source)
{
	size_t n = 0;

	while (islower((unsigned char)source[n]) || (n && isdigit((unsigned char)source[n])))
		n++;
	return n > 1 && !strncmp(source + n, "://", 3);
}

static int escape(struct buf *ret, const char *text, const char *unchanged)
{
	int r = 0;

	for (const char *c = text; *c && r >= 0; c++)
		r = isalnum((unsigned char)*c) || strchr(unchanged, *c) ?
			    buf_add_byte(ret, (uint8_t)*c) :
			    buf_addf(ret, "%%%02X", (unsigned char)*c);
	return r;
}

int path_escape(struct buf *ret, const char *path)
{
	return escape(ret, path, "-._~/");
}

int path_escape_value(struct buf *ret, const char *value)
{
	return escape(ret, value, "-._~");
}

const char *env_value(const char *name)
{
	const char *v = getenv(name);

	return v && *v ? v : NULL;
}

int path_absolute(const char *path, char **ret)
{
	auto_free char *here = path[0] == '/' ? NULL : getcwd(NULL, 0);

	if (path[0] != '/' && !here)
		return err_sys("cannot find", path);
	*ret = str_fmt("%s%s%s", here ? here : "", here ? "/" : "", path);
	return *ret ? 0 : fail(-ENOMEM, "cannot find '%s'", path);
}

int path_of_user(const char *given, const char *standard, char **ret)
{
	const char *home = env_value("HOME");
	struct passwd entry, *found = NULL;
	auto_free char *path = NULL;
	char text[4096];

	*ret = NULL;
	if (given)
		return path_absolute(given, ret);
	if (!home && getpwuid_r(geteuid(), &entry, text, sizeof(text), &found) == 0 && found)
		home = found->pw_dir;
	if (!home || !*home)
		return 0;
	path = str_fmt("%s/%s", home, standard);
	return path ? path_absolute(path, ret) : fail(-ENOMEM, "cannot find '%s'", standard);
}
