/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tool.h - functions for the small programs of the interop tests: input files, output text, an
 * error message and exit status 1.
 */
#ifndef PYTREEFS_TOOL_H
#define PYTREEFS_TOOL_H

#include <stdio.h>

#include "core/base/buf.h"
#include "core/base/err.h"

struct tool_cmd {
	const char *name;
	int n_args;
	int (*run)(char **args, struct buf *out);
};

/* Read a whole file, or standard input for "-". */
static inline int tool_read_file(const char *path, struct buf *ret)
{
	FILE *f = strcmp(path, "-") ? fopen(path, "rb") : stdin;
	char part[65536];
	size_t n;
	int r = 0;

	if (!f)
		return err_sys("cannot open", path);
	while (r >= 0 && (n = fread(part, 1, sizeof(part), f)) > 0)
		r = buf_add(ret, part, n);
	if (f != stdin)
		fclose(f);
	return r;
}

static inline int tool_main(const struct tool_cmd *cmds, size_t n, int argc, char **argv)
{
	for (size_t i = 0; i < n; i++) {
		auto_buf out = { 0 };
		int r;

		if (argc < 2 || strcmp(cmds[i].name, argv[1]) || argc - 2 < cmds[i].n_args)
			continue;
		r = cmds[i].run(argv + 2, &out);
		if (r < 0) {
			fprintf(stderr, "%d %s\n", r, err_text(r));
			return 1;
		}
		return !out.n || fwrite(out.p, 1, out.n, stdout) == out.n ? 0 : 1;
	}
	fprintf(stderr, "usage: %s COMMAND ARG...\n", argv[0]);
	return 2;
}

#endif
