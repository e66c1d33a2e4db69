/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tmp_dir.h - the temporary directory of a unit test, and its removal.
 */
#ifndef PYTREEFS_TMP_DIR_H
#define PYTREEFS_TMP_DIR_H

#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define TMP_DIR_MAX 64

/* A new directory on the disk. 0, or -1: a cmocka setup may return it. */
static inline int tmp_dir_make(char path[TMP_DIR_MAX], const char *test)
{
	snprintf(path, TMP_DIR_MAX, "/tmp/%s.XXXXXX", test);
	return mkdtemp(path) ? 0 : -1;
}

/* The same in memory where the machine has such a place, for tests that make thousands of files. */
static inline int tmp_dir_make_in_memory(char path[TMP_DIR_MAX], const char *test)
{
	if (access("/dev/shm", W_OK) < 0)
		return tmp_dir_make(path, test);
	snprintf(path, TMP_DIR_MAX, "/dev/shm/%s.XXXXXX", test);
	return mkdtemp(path) ? 0 : -1;
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

#endif
