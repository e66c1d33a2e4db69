/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cmd_diff.c - `pytreefs diff`: compares two checkpoints, or parts of them.
 *
 * Trees are compared by keys, whatever their layouts are. Leaves on one side only, containers of
 * different kinds and custom metadata (diff_custom.c) are found first (diff_trees.c); then arrays
 * are compared (diff_values.c).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

/* Parse --sort and --top; false: a message was printed. */
static bool order(struct cmd_args *a, struct diff *d)
{
	static const char *const keys[] = { [DIFF_MAX_ABS] = "max_abs",
					    [DIFF_MAX_ULP] = "max_ulp",
					    [DIFF_RMS] = "rms",
					    [DIFF_RELATIVE] = "relative" };
	const char *sort = cmd_value(a, "sort"), *top = cmd_value(a, "top");
	char *end;

	d->top = UINT64_MAX;
	d->sort = top ? DIFF_RELATIVE : DIFF_UNSORTED;
	for (int i = DIFF_MAX_ABS; sort && i <= DIFF_RELATIVE; i++)
		if (!strcmp(sort, keys[i])) {
			d->sort = i;
			sort = NULL;
		}
	if (sort) {
		cmd_wrong(a->cmd, "--sort takes max_abs, max_ulp, rms or relative, not '%s'", sort);
		return false;
	}
	if (!top)
		return true;
	d->top = strtoull(top, &end, 10);
	if (*top >= '0' && *top <= '9' && !*end && d->top > 0)
		return true;
	cmd_wrong(a->cmd, "--top takes a number of leaves from 1, not '%s'", top);
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
	    !tolerance(a, "rtol", &d.tolerance.relative) || !order(a, &d))
		return EXIT_USAGE;
	r = selection_begin(&d.t, a);
	if (r < 0)
		return r;
	r = source_open(a, a->arg[0], &sa);
	if (r < 0)
		return r;
	r = source_open(a, a->arg[1], &sb);
	if (r < 0)
		return r;
	if (d.json)
		printf("{\"differences\": [");
	r = diff_sources(&d, &sa, &sb);
	progress_clear(&d.t.progress);
	diff_say_rows(&d);
	if (d.json)
		printf("\n], \"compared\": %llu, \"same\": %llu, \"unreadable\": %zu, "
		       "\"omitted\": %llu}\n",
		       (unsigned long long)d.compared, (unsigned long long)d.same, d.t.failed,
		       (unsigned long long)d.omitted);
	else if (!cmd_flag(a, "quiet") && r >= 0)
		printf("%llu %s compared, %llu the same, %llu %s%s%s\n",
		       (unsigned long long)d.compared, noun(d.compared, "leaf", "leaves"),
		       (unsigned long long)d.same, (unsigned long long)d.differences,
		       noun(d.differences, "difference", "differences"),
		       d.omitted ? ", the largest printed" : "",
		       d.t.failed ? ", some could not be read" : "");
	if (r < 0)
		return r;
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
	{ "sort", 0, "KEY", "largest first: max_abs, max_ulp, rms, relative" },
	{ "top", 0, "N", "only the N largest, of relative without --sort" },
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
	.help = "Elements are equal if their bits are, or both are NaN; custom metadata, which\n"
		"--only leaves out, if their texts are. Chunks, codecs, shardings and what stored\n"
		"a leaf (jax.Array) are not compared. The exit status is that of diff(1).",
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
