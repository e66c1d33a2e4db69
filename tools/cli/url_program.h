/* SPDX-License-Identifier: Apache-2.0 */
/*
 * url_program.h - two programs: `pytreefs`, and `pytreefs-url` with the libraries for URLs.
 *
 * libcurl brings thirty libraries, which take longer to load than a small leaf to read. So the
 * ordinary program is linked without them, and the other one replaces it when an argument has a
 * URL. Sources come from arguments only. The process is replaced before it does anything else, so
 * the confinement of a command or mount, which comes later, is the same in both.
 */
#ifndef PYTREEFS_TOOLS_CLI_URL_PROGRAM_H
#define PYTREEFS_TOOLS_CLI_URL_PROGRAM_H

/* Returns if this program is to do the work. Then opening a URL fails unless it can do that. */
void url_program(int argc, char **argv);

#endif
