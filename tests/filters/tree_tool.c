/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tree_tool.c - core/tree from the command line, for the interop tests.
 */
#include "core/tree/py_repr.h"
#include "core/tree/tree.h"
#include "tests/filters/tool.h"

static int text(char **args, struct buf *out)
{
	auto_of(tree) struct tree *tree = NULL;
	auto_buf in = { 0 };
	int r = tool_read_file(args[0], &in);

	if (r >= 0)
		r = tree_parse_metadata(buf_span(&in), "_METADATA", &tree);
	return r < 0 ? r : tree_text(out, tree);
}

static int print(char **args, struct buf *out)
{
	auto_of(tree) struct tree *tree = NULL;
	auto_buf in = { 0 };
	int r = tool_read_file(args[0], &in);

	if (r >= 0)
		r = tree_parse_metadata(buf_span(&in), "_METADATA", &tree);
	return r < 0 ? r : tree_print_metadata(tree, tree->rich, out);
}

static int aggregate(char **args, struct buf *out)
{
	auto_of(tree) struct tree *tree = NULL;
	auto_buf in = { 0 };
	int r = tool_read_file(args[0], &in);

	if (r >= 0)
		r = tree_parse_aggregate(buf_span(&in), "checkpoint", &tree);
	return r < 0 ? r : tree_text(out, tree);
}

static int pack(char **args, struct buf *out)
{
	auto_of(tree) struct tree *tree = NULL;
	auto_buf in = { 0 };
	int r = tool_read_file(args[0], &in);

	if (r >= 0)
		r = tree_parse_aggregate(buf_span(&in), "checkpoint", &tree);
	return r < 0 ? r : tree_print_aggregate(tree, out);
}

static int merge(char **args, struct buf *out)
{
	auto_of(tree) struct tree *tree = NULL;
	auto_buf in = { 0 }, bytes = { 0 };
	int r = tool_read_file(args[0], &in);

	if (r >= 0)
		r = tool_read_file(args[1], &bytes);
	if (r >= 0)
		r = tree_parse_metadata(buf_span(&in), "_METADATA", &tree);
	if (r >= 0)
		r = tree_merge_aggregate(tree, buf_span(&bytes), "checkpoint");
	return r < 0 ? r : tree_text(out, tree);
}

/* One text a line in, its repr() out. */
static int repr(char **args, struct buf *out)
{
	auto_buf in = { 0 };
	int r = tool_read_file(args[0], &in);

	for (size_t at = 0; at < in.n && r >= 0;) {
		const uint8_t *end = memchr(in.p + at, '\n', in.n - at);
		size_t n = end ? (size_t)(end - in.p) - at : in.n - at;

		r = py_repr(out, span_of(in.p + at, n));
		if (r >= 0)
			r = buf_add_byte(out, '\n');
		at += n + 1;
	}
	return r;
}

int main(int argc, char **argv)
{
	static const struct tool_cmd cmds[] = {
		{ "text", 1, text }, { "print", 1, print }, { "aggregate", 1, aggregate },
		{ "pack", 1, pack }, { "merge", 2, merge }, { "repr", 1, repr },
	};

	return tool_main(cmds, ARRAY_LEN(cmds), argc, argv);
}
