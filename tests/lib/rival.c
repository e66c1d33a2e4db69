/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rival.c - LD_PRELOAD: another process makes the directory of the name TEST_RIVAL first, just
 * before the program does.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int mkdirat(int fd, const char *path, mode_t mode)
{
	static int (*real)(int fd, const char *path, mode_t mode);
	const char *rival = getenv("TEST_RIVAL");

	if (!real)
		real = (int (*)(int, const char *, mode_t))dlsym(RTLD_NEXT, "mkdirat");
	if (rival && !strcmp(path, rival))
		real(fd, path, mode);
	return real(fd, path, mode);
}
