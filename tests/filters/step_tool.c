/* SPDX-License-Identifier: Apache-2.0 */
/*
 * step_tool.c - names and small files of steps from the command line, for the interop tests.
 */
#include "core/step/step_deletion.h"
#include "core/step/step_meta.h"
#include "core/step/step_name.h"
#include "tests/filters/tool.h"

static int meta(char **args, struct buf *out)
{
	auto_of(step_meta) struct step_meta *m = NULL;
	auto_buf in = { 0 };
	int r = tool_read_file(args[0], &in);

	if (r >= 0)
		r = step_meta_parse(buf_span(&in), args[0], &m);
	if (r >= 0 && m->absent)
		return buf_add_str(out, "absent");
	return r < 0 ? r : step_meta_print(m, out);
}

static int root(char **args, struct buf *out)
{
	auto_of(root_meta) struct root_meta *m = NULL;
	auto_buf in = { 0 };
	int r = tool_read_file(args[0], &in);

	if (r >= 0)
		r = root_meta_parse(buf_span(&in), args[0], &m);
	return r < 0 ? r : root_meta_print(m, out);
}

/* RECORD METADATA: the record again, and whether the metadata fits it. */
static int deletion(char **args, struct buf *out)
{
	auto_of(step_deletion) struct step_deletion *d = NULL;
	auto_buf in = { 0 }, doc = { 0 };
	int r = tool_read_file(args[0], &in);

	if (r >= 0)
		r = tool_read_file(args[1], &doc);
	if (r >= 0)
		r = step_deletion_parse(buf_span(&in), args[0], &d);
	if (r >= 0)
		r = step_deletion_print(d, out);
	if (r >= 0)
		r = step_deletion_matches(d, buf_span(&doc));
	return r < 0 ? r : buf_addf(out, " %d", r);
}

/* Names on standard input, a NUL after each: those that some format of Orbax lists, each with its
 * number. */
static int lists(char **args, struct buf *out)
{
	auto_buf in = { 0 };
	int r = tool_read_file("-", &in);

	for (size_t at = 0; r >= 0 && at < in.n;) {
		struct span one = span_of(in.p + at, strnlen((char *)in.p + at, in.n - at));
		struct step_name name;

		if (step_name_parse(one, &name) && step_name_is_orbax(&name))
			r = buf_addf(out, "%.*s %llu\n", SPAN_ARG(one),
				     (unsigned long long)name.number);
		at += one.n + 1;
	}
	return r;
}

int main(int argc, char **argv)
{
	static const struct tool_cmd cmds[] = {
		{ "meta", 1, meta },
		{ "root", 1, root },
		{ "deletion", 2, deletion },
		{ "lists", 0, lists },
	};

	return tool_main(cmds, ARRAY_LEN(cmds), argc, argv);
}
