/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cmd_diff.c - `pytreefs diff`: compares two checkpoints, or parts of them.
 *
 * Trees are compared by keys, whatever their layouts are. Leaves on one side only, containers of
 * different kinds and custom metadata (diff_custom.c) are found first (diff_trees.c); then arrays
 * are compared (diff_values.c).
 */
#include <stdio.h>

#include "tools/diff/diff.h"

/* Parse an option; false: a message was printed. */
static bool tolerance(struct cmd_args *a, const char *option, double *ret)
{
	const char *text = cmd_value(a, option);
	char *end;

	if (!text)
		return true;
	*ret = strtod(text, &end);
	if (end != text && !*end && *ret >= 0)
		return true;
	cmd_wrong(a->cmd, "'%s' is not a tolerance: --%s takes a number from 0", text, option);
	return false;
}

static int run_diff(struct cmd_args *a)
{
	struct diff d = { .json = cmd_flag(a, "json"),
			  .ignore_dtype = cmd_flag(a, "ignore-dtype"),
			  .name_a = a->arg[0],
			  .name_b = a->arg[1] };
	auto_source sa = { 0 }, sb = { 0 };
	int r;

	if (!tolerance(a, "atol", &d.tolerance.absolute) ||
	    !tolerance(a, "rtol", &d.tolerance.relative))
		return EXIT_USAGE;
	r = selection_begin(&d.t, a);
	if (r >= 0)
		r = source_open(a, a->arg[0], &sa);
	if (r >= 0)
		r = source_open(a, a->arg[1], &sb);
	if (r < 0)
		return r;
	if (d.json)
		printf("{\"differences\": [");
	r = diff_sources(&d, &sa, &sb);
	progress_clear(&d.t.progress);
	if (d.json)
		printf("\n], \"compared\": %llu, \"same\": %llu, \"unreadable\": %zu}\n",
		       (unsigned long long)d.compared, (unsigned long long)d.same, d.t.failed);
	else if (!cmd_flag(a, "quiet") && r >= 0)
		printf("%llu %s compared, %llu the same, %llu %s%s\n",
		       (unsigned long long)d.compared, noun(d.compared, "leaf", "leaves"),
		       (unsigned long long)d.same, (unsigned long long)d.differences,
		       noun(d.differences, "difference", "differences"),
		       d.t.failed ? ", some could not be read" : "");
	if (r >= 0)
		r = selection_end(&d.t);
	if (r < 0)
		return r;
	/* The values that could not be read may be different. */
	return r != EXIT_OK ? r : d.differences ? EXIT_FOUND : EXIT_OK;
}

static const struct cmd_option options[] = {
	{ "atol", 't', "T", "equal is |A - B| <= T + rtol * |B| (default 0)" },
	{ "rtol", 0, "T", "relative, as in numpy.isclose() (default 0)" },
	{ "ignore-dtype", 0, NULL, "compare floats in the narrower type" },
	OPTION_ONLY,
	OPTION_JSON,
	OPTION_QUIET,
	{ "verbose", 'v', NULL, "also list the leaves that are equal" },
	{ 0 },
};

const struct cmd cmd_diff = {
	.name = "diff",
	.args = "A B",
	.summary = "compare two checkpoints: structure, dtypes, shapes, values, metadata",
	.help = "A and B are sources, steps, items, directories or leaves. The exit status is\n"
		"that of diff(1): 0 equal, 1 different, 2 an error, or a part was not read.\n"
		"Elements are equal if their bits are, or both are NaN; numbers in custom\n"
		"metadata, which --only leaves out, if their texts are. A safetensors file or\n"
		"directory of shards without a manifest has no lists, numbers and metadata.",
	.example = "pytreefs diff ckpts/1000/state ckpts/1000/state",
	.options = options,
	.min_args = 2,
	.max_args = 2,
	.checks = true,
	.takes_mount_options = true,
	.ignores = { "restore_dtype" },
	.confined = CMD_READS,
	.found = "A and B differ.",
	.run = run_diff,
};
