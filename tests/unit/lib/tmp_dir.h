/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tmp_dir.h - the temporary directory of a unit test: what is copied into it, counted, removed.
 */
#ifndef PYTREEFS_TMP_DIR_H
#define PYTREEFS_TMP_DIR_H

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <ftw.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define TMP_DIR_MAX 64
#define TMP_DIR_ROOM (512u << 20) /* more than any test writes */

/*
 * A new directory on the disk, for tests of calls to it. 0, or -1: a cmocka setup may return it.
 * With a sanitizer the compiler sees checks for NULL, and warns of it.
 */
__attribute__((nonnull)) static inline int tmp_dir_make_on_disk(char path[TMP_DIR_MAX],
								const char *test)
{
	snprintf(path, TMP_DIR_MAX, "/tmp/%s.XXXXXX", test);
	return mkdtemp(path) ? 0 : -1;
}

/* The same in memory, where a sync costs nothing, if the machine has such a place with room. */
static inline int tmp_dir_make(char path[TMP_DIR_MAX], const char *test)
{
	struct statvfs st;

	if (statvfs("/dev/shm", &st) < 0 || st.f_bavail * st.f_bsize < TMP_DIR_ROOM)
		return tmp_dir_make_on_disk(path, test);
	snprintf(path, TMP_DIR_MAX, "/dev/shm/%s.XXXXXX", test);
	return mkdtemp(path) ? 0 : tmp_dir_make_on_disk(path, test);
}

static inline int tmp_dir_remove_one(const char *path, const struct stat *st, int type,
				     struct FTW *at)
{
	return remove(path);
}

/* Remove path with everything below it; a path that does not exist is fine. 0, or -1 with errno. */
static inline int tmp_dir_remove(const char *path)
{
	int r = nftw(path, tmp_dir_remove_one, 16, FTW_DEPTH | FTW_PHYS);

	return r < 0 && errno == ENOENT ? 0 : r;
}

/* How many entries of dir have a name that matches, as fnmatch(3); "*" counts all. remove: they are
 * removed, too. -1 with errno. */
static inline int tmp_dir_matching(const char *dir, const char *pattern, bool remove)
{
	struct dirent **entry;
	int n = scandir(dir, &entry, NULL, NULL), found = n < 0 ? -1 : 0;

	for (int i = 0; i < n; i++) {
		const char *name = entry[i]->d_name;
		char path[PATH_MAX];

		snprintf(path, sizeof(path), "%s/%s", dir, name);
		if (found >= 0 && strcmp(name, ".") && strcmp(name, "..") &&
		    !fnmatch(pattern, name, 0))
			found = remove && tmp_dir_remove(path) < 0 ? -1 : found + 1;
		free(entry[i]);
	}
	if (n >= 0)
		free(entry);
	return found;
}

/* Where tmp_dir_copy() copies to, and what its paths begin with that is left out there. */
static const char *tmp_dir_copy_to;
static size_t tmp_dir_copy_skip;

static inline int tmp_dir_copy_one(const char *path, const struct stat *st, int type,
				   struct FTW *at)
{
	char to[PATH_MAX];
	int in, out, r;

	snprintf(to, sizeof(to), "%s%s", tmp_dir_copy_to, path + tmp_dir_copy_skip);
	if (type == FTW_D)
		return mkdir(to, 0777);
	in = open(path, O_RDONLY | O_CLOEXEC);
	out = open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
	r = in < 0 || out < 0 || sendfile(out, in, NULL, (size_t)st->st_size) != st->st_size ? -1 :
											       0;
	close(in);
	close(out);
	return r;
}

/* Copy a directory of small files to a path that does not exist. 0, or -1 with errno. */
static inline int tmp_dir_copy(const char *from, const char *to)
{
	tmp_dir_copy_to = to;
	tmp_dir_copy_skip = strlen(from);
	return nftw(from, tmp_dir_copy_one, 16, FTW_PHYS);
}

#endif
