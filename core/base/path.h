/* SPDX-License-Identifier: Apache-2.0 */
/*
 * path.h - paths below a directory.
 */
#ifndef PYTREEFS_PATH_H
#define PYTREEFS_PATH_H

#include "core/base/buf.h"

/* path + "/" + name, or name alone when path is "."; the caller frees it. -ENOMEM. Any thread. */
int path_join(const char *path, struct span name, char **ret);

/* The first name of a path without a slash at its begin. */
static inline struct span path_first(struct span path)
{
	const uint8_t *slash = path.n ? memchr(path.p, '/', path.n) : NULL;

	return slash ? span_of(path.p, (size_t)(slash - path.p)) : path;
}

/* The last name of a path; borrowed. */
static inline const char *path_last(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

/* The directory that the last name is in; empty without a slash. */
static inline struct span path_above(const char *path)
{
	const char *slash = strrchr(path, '/');

	return span_of(path, slash ? (size_t)(slash - path) : 0);
}

/*
 * The length of the directory that n bytes of a path are in, without slashes at its end; 0: they
 * name none, 1 may be that of "/".
 */
size_t path_dir_len(const char *path, size_t n);
/* Whether a source is a URL, of a known scheme or not, and not a path. */
bool path_is_url(const char *source);
/* Append a path as a URL has it: all bytes except unreserved characters and '/' are escaped. */
int path_escape(struct buf *ret, const char *path);
/* Append the value of a parameter: '/' is escaped, too. */
int path_escape_value(struct buf *ret, const char *value);
/*
 * Returns a path whose directory has no links, with the last name as it was given, which need not
 * exist. Allocated; NULL with errno: the directory does not exist, or there is no memory.
 */
char *path_real_dir(const char *path);
/*
 * Returns a path without links; like path_real_dir() where what it names does not exist, or cannot
 * be accessed, as the mount of a daemon that has died.
 */
char *path_real(const char *path);
/* Make a path absolute, since a mount leaves this directory. *ret is a copy. -errno: this directory
 * has no path; -ENOMEM. */
int path_absolute(const char *path, char **ret);
/* The value of an environment variable; NULL when it is not set or empty. */
const char *env_value(const char *name);
/*
 * Get the absolute path of a user's file: the one that was given, else (NULL) the standard one
 * below the home directory, which is HOME, or that of the password database, since a service has no
 * HOME. *ret is NULL if there is neither. -ENOMEM; as path_absolute().
 */
int path_of_user(const char *given, const char *standard, char **ret);

#endif
