/* SPDX-License-Identifier: Apache-2.0 */
/*
 * untyped.c - LD_PRELOAD: listings have no types of entries, as those of some network and older
 * file systems.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>

struct dirent *readdir(DIR *d)
{
	static struct dirent *(*real)(DIR * d);
	struct dirent *e;

	if (!real)
		real = (struct dirent * (*)(DIR *)) dlsym(RTLD_NEXT, "readdir");
	e = real(d);
	if (e)
		e->d_type = DT_UNKNOWN;
	return e;
}

struct dirent64 *readdir64(DIR *d)
{
	static struct dirent64 *(*real)(DIR * d);
	struct dirent64 *e;

	if (!real)
		real = (struct dirent64 * (*)(DIR *)) dlsym(RTLD_NEXT, "readdir64");
	e = real(d);
	if (e)
		e->d_type = DT_UNKNOWN;
	return e;
}
