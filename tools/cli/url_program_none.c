/* SPDX-License-Identifier: Apache-2.0 */
/*
 * url_program_none.c - replaces url_program.c in a program that reads URLs itself, or is not able
 * to.
 */
#include <string.h>
#include <sys/prctl.h>

#include "tools/cli/url_program.h"

/*
 * The name that ps(1) and killall(1) show is that of the file. A program that has replaced another
 * one takes the name under which that was started.
 */
void url_program(int argc, char **argv)
{
	const char *slash = strrchr(argv[0], '/');

	prctl(PR_SET_NAME, slash ? slash + 1 : argv[0]);
}
