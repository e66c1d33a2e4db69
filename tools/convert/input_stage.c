/* SPDX-License-Identifier: Apache-2.0 */
/*
 * input_stage.c - an input of another format as a checkpoint, for options that show a checkpoint
 * in another way: transforms=, restore_dtype=.
 *
 * Safetensors files and zarr groups of one tree are read as an item where they are. Anything else
 * is first made a checkpoint in the directory `spill`, as a user would do with two commands.
 */
#include "core/base/err.h"
#include "tools/convert/atomic_step.h"
#include "tools/convert/input.h"

/* Options for the copy: what they show otherwise must be shown, and cast, once. */
static int copy_args(const struct cmd_args *a, struct options *defaults, struct cmd_args *ret)
{
	int r = options_init(defaults);

	if (r < 0)
		return r;
	*ret = *a;
	ret->options.transform = NULL;
	ret->options.restore_dtype = DTYPE_UNKNOWN;
	ret->options.save = defaults->save;
	ret->options.n_rules = 0;
	ret->options.priority = NULL;
	ret->options.on_commit = NULL;
	ret->options.verify_commit = false;
	ret->options.atomicity = ATOMICITY_RENAME;
	return 0;
}

static int write_copy(struct cmd_args *a, struct input *in, const char *to,
		      struct progress *progress)
{
	auto_atomic_step n = { 0 };
	auto_import_list f = { .at = "" };
	int r = atomic_step_begin(a, NULL, to, in->is_step ? LAYOUT_ITEMS : LAYOUT_DIRECT, false,
				  &n);

	if (r < 0)
		return r;
	r = input_list(in, NULL, &f);
	if (r < 0)
		return r;
	r = import_list_write(&f, n.draft, MAX(1u, pool_threads(n.ns->ckpt->pool)), progress, NULL);
	return r < 0 ? r : atomic_step_commit(&n);
}

/* Open a checkpoint in place of the input, as options show it. */
static int adopt(struct cmd_args *a, struct input *in, const char *path)
{
	int r;

	input_close_source(in);
	r = input_open_source(a, in, path, false);
	in->kind = INPUT_ORBAX;
	in->is_foreign = true;
	return r;
}

static int stage(struct cmd_args *a, struct input *in, struct progress *progress)
{
	const char *where = ns_spill_dir(&a->options);
	struct options defaults;
	struct cmd_args copy;
	auto_free char *path = NULL, *dir = NULL, *name = NULL;
	int r;

	if (!where)
		return fail(-EINVAL,
			    "'%s' is made a checkpoint in a directory of this machine first: "
			    "spill=off has none",
			    in->path);
	r = io_engine_open(a->options.io, &in->spill_io);
	if (r < 0)
		return r;
	r = spill_dir_make(in->spill_io, where, &in->spill);
	if (r < 0)
		return r;
	r = path_split(in->path, &dir, &name);
	if (r < 0)
		return r;
	/* The name by which rules know the tree ("item"), as for a checkpoint at that path. */
	path = str_fmt("%s/%s", in->spill.dir->path, *name == '.' ? "tree" : name);
	if (!path)
		return fail(-ENOMEM, "cannot copy '%s'", in->path);
	io_never_sync(in->spill_io);
	r = copy_args(a, &defaults, &copy);
	if (r < 0)
		return r;
	r = write_copy(&copy, in, path, progress);
	options_release(&defaults);
	if (r < 0)
		return r;
	if (in->kind == INPUT_NPZ)
		close(in->fd);
	in->kind = INPUT_ORBAX;
	return adopt(a, in, path);
}

int input_stage(struct cmd_args *a, struct input *in, struct progress *progress)
{
	bool in_place = (in->kind == INPUT_SAFETENSORS || in->kind == INPUT_ZARR) && !in->is_step;
	int r;

	if (in->kind == INPUT_ORBAX ||
	    (!a->options.transform && a->options.restore_dtype == DTYPE_UNKNOWN))
		return 0;
	r = in_place ? adopt(a, in, in->path) : stage(a, in, progress);
	return r < 0 ? err_at(r, "'%s'", in->path) : 0;
}
