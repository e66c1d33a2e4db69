/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cmd_export.c - `pytreefs export`: a checkpoint as files of another format.
 */
#include <string.h>

#include "tools/convert/export.h"
#include "tools/convert/rules.h"
#include "tools/job/mpi_program.h"
#include "tools/select/selection.h"

/*
 * Returns ".foo" of "a/x.foo"; NULL: the name has no extension, or a slash at its end. An extension
 * without a letter is part of a number.
 */
static const char *ending_of(const char *path)
{
	const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path,
		   *dot = strrchr(name, '.');

	if (!dot || dot == name ||
	    !strpbrk(dot, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"))
		return NULL;
	return dot;
}

static int run_export(struct cmd_args *a)
{
	const char *name = cmd_value(a, "format");
	enum export_format format = export_format_of(a->arg[1]);
	struct rank_group *group;
	int r;

	if (format == EXPORT_UNKNOWN && !name && ending_of(a->arg[1]))
		return cmd_wrong(
			a->cmd,
			"'%s': no format ends in '%s'. OUT ends in .npy, .npz, .safetensors or "
			".zarr, or --format says what it is; a directory of .npy files has no "
			"ending, or '/' at its end",
			a->arg[1], ending_of(a->arg[1]));
	if (format == EXPORT_UNKNOWN)
		format = EXPORT_NPY;
	if (name)
		format = export_format_by_name(name);
	if (format == EXPORT_UNKNOWN)
		return cmd_wrong(a->cmd, "--format is npy, npz, safetensors or zarr, not '%s'",
				 name);
	r = export_check_options(a, format);
	if (r != EXIT_OK)
		return r;
	r = mpi_rank_group(a, &group);
	return r < 0 ? r : group_end(group, export_run(a, group, a->arg[0], a->arg[1], format));
}

static const struct cmd_option options[] = {
	{ "format", 0, "npy|npz|safetensors|zarr", "format of OUT (default: by its name)" },
	EXPORT_OPTIONS(.in_manual = false),
	OPTION_STRICT,
	{ "force", 0, NULL, "replace an existing file or export" },
	OPTION_ONLY,
	OPTION_JSON,
	OPTION_QUIET,
	OPTION_VERBOSE,
	{ 0 }
};

const struct cmd cmd_export = {
	.name = "export",
	.args = "SOURCE/PATH OUT",
	.summary = "export a step, item or directory of leaves: npy, npz, safetensors, zarr",
	.help = "OUT is a directory of leaves, an .npy (one array), .npz or .safetensors file,\n"
		"shards with an index (--max-shard-size), or a zarr group (as -o zarr=).\n"
		"Lists and None are recorded beside arrays. At status 0, OUT is durable.",
	.example = "pytreefs export ckpts/1000/state /tmp/model.safetensors",
	.options = options,
	.min_args = 2,
	.max_args = 2,
	.takes_mount_options = true,
	.saves = true,
	.confined = CMD_WRITES,
	.run = run_export,
};
