/* SPDX-License-Identifier: Apache-2.0 */
/*
 * interrupting.c - LD_PRELOAD: every other system call that changes a disk is interrupted, as a
 * network file system does it; stderr has the names of those that were. With INTERRUPT_AFTER set
 * renames are interrupted when they have been done.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static int interrupted(const char *name)
{
	static __thread int n;

	if (n++ % 2)
		return 0;
	dprintf(2, "interrupted: %s\n", name);
	errno = EINTR;
	return 1;
}

#define CALL(name, params, args)                                       \
	int name params                                                \
	{                                                              \
		static int(*real) params;                              \
                                                                       \
		if (!real)                                             \
			real = (int(*) params)dlsym(RTLD_NEXT, #name); \
		return interrupted(#name) ? -1 : real args;            \
	}

/* The same; the call may have been done. */
#define CALL_DONE(name, params, args)                                  \
	int name params                                                \
	{                                                              \
		static int(*real) params;                              \
                                                                       \
		if (!real)                                             \
			real = (int(*) params)dlsym(RTLD_NEXT, #name); \
		if (!interrupted(#name))                               \
			return real args;                              \
		if (getenv("INTERRUPT_AFTER") && real args < 0)        \
			return -1;                                     \
		errno = EINTR;                                         \
		return -1;                                             \
	}

CALL(chown, (const char *path, uid_t u, gid_t g), (path, u, g))
CALL(fsync, (int fd), (fd))
CALL(fdatasync, (int fd), (fd))
CALL(ftruncate, (int fd, off_t n), (fd, n))
CALL(ftruncate64, (int fd, off_t n), (fd, n))
CALL(mkdir, (const char *path, mode_t mode), (path, mode))
CALL(mkdirat, (int fd, const char *path, mode_t mode), (fd, path, mode))
CALL_DONE(unlinkat, (int fd, const char *path, int flags), (fd, path, flags))
CALL_DONE(renameat2, (int a, const char *from, int b, const char *to, unsigned flags),
	  (a, from, b, to, flags))
CALL(renameat, (int a, const char *from, int b, const char *to), (a, from, b, to))
CALL(flock, (int fd, int op), (fd, op))
