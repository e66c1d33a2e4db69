/* SPDX-License-Identifier: Apache-2.0 */
/*
 * url_program.c - starts `pytreefs-url`, which is beside the ordinary program, for arguments with a
 * URL.
 */
#include "tools/cli/url_program.h"

#include <stdbool.h>
#include <string.h>
#include <unistd.h>

void url_program(int argc, char **argv)
{
	char path[4096], *slash;
	bool has_url = false;
	ssize_t n;

	/*
	 * A URL may be inside of an argument, as in `-o NAME=URL`. A path with "://" in it is a
	 * false alarm, which costs a few milliseconds: the other program reads it, too.
	 */
	for (int i = 1; i < argc; i++)
		has_url |= strstr(argv[i], "://") != NULL;
	if (!has_url)
		return;
	/* The file itself, also when it was started by a link such as mount.pytreefs. */
	n = readlink("/proc/self/exe", path, sizeof(path) - sizeof(URL_PROGRAM));
	if (n < 0)
		return;
	path[n] = '\0';
	slash = strrchr(path, '/');
	strcpy(slash ? slash + 1 : path, URL_PROGRAM);
	execv(path, argv);
}
