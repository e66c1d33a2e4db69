/*
 * cmd_convert.c - `pytreefs convert` and `pytreefs save`: anything -> a checkpoint, as the options say.
 *
 * What is to become another format is export's; convert passes it on by the name of OUT.
 */
#include <stdio.h>

#include "core/base/err.h"
#include "core/base/log.h"
#include "core/step/step_name.h"
#include "tools/export.h"
#include "tools/input.h"
#include "tools/interrupt.h"
#include "tools/newstep.h"
#include "tools/targets.h"

struct job {
	struct cmd_args *a;
	struct progress progress;
	const char *only;
	uint64_t leaves, bytes;
	size_t checkpoints;
};

static unsigned threads_of(const struct newstep *n)
{
	return MAX(1u, pool_threads(n->ns->ckpt->pool));
}

/* ---- one checkpoint ---- */

/* Which of the two it becomes: as the user says, as the input is, or as the name of OUT suggests. */
static int choose_layout(const struct job *j, const struct input *in, const char *out, enum layout_kind *ret)
{
	const char *layout = j->a->cmd == &cmd_convert ? cmd_value(j->a, "layout") : "v1";
	auto_free char *dir = NULL, *name = NULL;
	int r = path_split(out, &dir, &name);

	if (r < 0)
		return r;
	if (layout && strcmp(layout, "v0") && strcmp(layout, "v1"))
		return fail(-EINVAL, "--layout is v0 or v1, not '%s'", layout);
	if (layout)
		*ret = strcmp(layout, "v0") ? LAYOUT_ITEMS : LAYOUT_DIRECT;
	else if (in->is_step || cmd_value(j->a, "item"))
		*ret = LAYOUT_ITEMS;
	else if (in->kind == INPUT_ORBAX)
		*ret = LAYOUT_DIRECT;
	else
		*ret = step_name_check(span_str(name)) >= 0 ? LAYOUT_ITEMS : LAYOUT_DIRECT;
	err_clear();
	if (in->is_step && cmd_value(j->a, "item"))
		return fail(-EINVAL, "--item: '%s' has items of its own", in->path);
	if (in->is_step && *ret == LAYOUT_DIRECT)
		return fail(-EINVAL, "'%s' has items, and a checkpoint of layout v0 is one tree: name one of them", in->path);
	return 0;
}

/* In front of the input's paths. */
static const char *place_of(const struct job *j, const struct input *in, enum layout_kind layout)
{
	const char *item = cmd_value(j->a, "item");

	if (in->is_step || layout == LAYOUT_DIRECT)
		return "";
	return item ? item : "default";
}

static int fill(struct job *j, struct input *in, struct feeds *f, struct newstep *n)
{
	int r = input_feed(in, j->only, f);

	if (r >= 0)
		r = feeds_write(f, n->draft, threads_of(n), &j->progress);
	return r < 0 ? r : newstep_commit(n);
}

static int write_checkpoint(struct job *j, struct input *in, const char *out)
{
	enum layout_kind layout = LAYOUT_ITEMS;
	auto_newstep n = { 0 };
	auto_feeds f = { 0 };
	struct err_note why = { 0 };
	int r = choose_layout(j, in, out, &layout);

	if (r < 0)
		return r;
	f.at = place_of(j, in, layout);
	f.any_leaf_type = option_was_given(&j->a->options, "leaf_type");
	r = newstep_begin(j->a, out, layout, cmd_flag(j->a, "force"), &n);
	if (r >= 0)
		r = fill(j, in, &f, &n);
	/* Giving up a draft says things of its own. */
	if (r < 0) {
		err_save(r, &why);
		newstep_release(&n);
		return err_restore(&why);
	}
	j->leaves += f.n;
	for (size_t i = 0; i < f.n; i++)
		j->bytes += f.feed[i].bytes;
	j->checkpoints++;
	return 0;
}

/* ---- a root: step by step ---- */

static int convert_step(struct job *j, const char *root, const char *step, const char *out)
{
	auto_free char *from = NULL, *to = NULL;
	auto_input in = { 0 };
	int r = ns_join(root, span_str(step), &from);

	if (r >= 0)
		r = ns_join(out, span_str(step), &to);
	if (r >= 0)
		r = input_open(j->a, from, &in);
	return r < 0 ? r : write_checkpoint(j, &in, to);
}

static int convert_root(struct job *j, struct input *in, const char *out)
{
	auto_listing l = { 0 };
	int r = node_list(in->source.node, &l);

	if (r >= 0 && l.n <= 2)
		r = fail(-EINVAL, "'%s' has no step", in->path);
	if (r >= 0 && mkdir(out, 0777) < 0 && errno != EEXIST)
		r = err_sys("cannot make", out);
	for (size_t i = 2; i < l.n && r >= 0; i++) {
		r = convert_step(j, in->path, listing_name(&l, i), out);
		if (r < 0)
			err_at(r, "step '%s'", listing_name(&l, i));
	}
	return r;
}

/* ---- the commands ---- */

static void begin(struct job *j, struct cmd_args *a)
{
	*j = (struct job){ .a = a, .only = cmd_value(a, "only") };
	bound_memory(a);
	interrupt_catch();
	log_stderr_level(cmd_flag(a, "verbose") ? LOG_LEVEL_INFO : LOG_LEVEL_WARN);
	progress_begin(&j->progress, a->cmd->name, cmd_flag(a, "quiet"));
}

static int end(struct job *j, const char *out, int r)
{
	double seconds = progress_seconds(&j->progress);
	char size[32];

	progress_end(&j->progress);
	if (r < 0)
		return r;
	print_size(size, sizeof(size), j->bytes);
	if (cmd_flag(j->a, "json")) {
		auto_buf text = { 0 };

		r = buf_add_str(&text, "{\"out\": ");
		if (r >= 0)
			r = json_put_str(&text, span_str(out), JSON_PRETTY);
		if (r >= 0)
			r = buf_addf(&text, ", \"checkpoints\": %zu, \"leaves\": %llu, \"bytes\": %llu, \"seconds\": %.3f}\n",
				     j->checkpoints, (unsigned long long)j->leaves, (unsigned long long)j->bytes, seconds);
		if (r >= 0)
			fwrite(text.p, 1, text.n, stdout);
	} else if (cmd_flag(j->a, "verbose")) {
		printf("%s: %llu leaves, %s, %.1f s\n", out, (unsigned long long)j->leaves, size, seconds);
	}
	return r < 0 ? r : EXIT_OK;
}

static int run_convert(struct cmd_args *a)
{
	const char *path = a->arg[0], *out = a->arg[1];
	auto_input in = { 0 };
	struct job j;
	int r;

	if (export_format_of(out) != EXPORT_UNKNOWN)
		return export_run(a, path, out);
	begin(&j, a);
	r = input_open(a, path, &in);
	if (r >= 0)
		r = in.is_root ? convert_root(&j, &in, out) : write_checkpoint(&j, &in, out);
	return end(&j, out, r);
}

static int run_save(struct cmd_args *a)
{
	const char *path = a->arg[0], *out = a->arg[1];
	auto_free char *dir = NULL, *name = NULL;
	auto_input in = { 0 };
	struct job j;
	int r = path_split(out, &dir, &name);

	begin(&j, a);
	if (r >= 0)
		r = step_name_check(span_str(name));
	if (r >= 0)
		r = input_open(a, path, &in);
	if (r >= 0 && in.is_root)
		r = fail(-EINVAL, "'%s' is a directory of steps: name one of them", path);
	/* The first step of a new root makes it. */
	if (r >= 0 && mkdir(dir, 0777) < 0 && errno != EEXIST)
		r = err_sys("cannot make", dir);
	if (r >= 0)
		r = write_checkpoint(&j, &in, out);
	return end(&j, out, r);
}

#define OPTION_ITEM { "item", 0, "NAME", "name of the item that the tree becomes (default)" }
#define OPTION_FORCE { "force", 0, NULL, "replace what is there" }

static const struct cmd_option convert_options[] = {
	{ "layout", 0, "v0|v1", "v0: the tree at the top of OUT; v1: an item in it (as IN)" },
	OPTION_ITEM, OPTION_FORCE,
	EXPORT_OPTIONS,
	OPTION_ONLY, OPTION_JSON, OPTION_QUIET, OPTION_VERBOSE, { 0 }
};

const struct cmd cmd_convert = {
	.name = "convert",
	.args = "IN OUT",
	.summary = "a checkpoint or other file of arrays -> a checkpoint of other options, or a file",
	.help = "IN is a root, step, item or part of a checkpoint, a directory of .npy files, a safetensors file\n"
		"or directory of shards, an npz file, a zarr group. OUT is a new checkpoint, written as -o says\n"
		"(ocdbt=, zarr=, compression=, chunk_byte_size=, dtype=, rule=...); when it ends in .safetensors,\n"
		".npz or .zarr it is that (see export). Chunks that need no change are copied as they are.",
	.example = "pytreefs convert -o zarr=3,compression=none tests/data/sample/1000 /tmp/1000-v3",
	.options = convert_options,
	.min_args = 2,
	.max_args = 2,
	.alone = true,
	.takes_mount_options = true,
	.run = run_convert,
};

static const struct cmd_option save_options[] = {
	OPTION_ITEM, OPTION_FORCE, OPTION_ONLY, OPTION_JSON, OPTION_QUIET, OPTION_VERBOSE, { 0 }
};

const struct cmd cmd_save = {
	.name = "save",
	.args = "INPUT SOURCE/STEP",
	.summary = "files of arrays -> a new step of a directory of checkpoints",
	.help = "INPUT is a directory of .npy, .json, .txt and .null files (or a copy of a step out of a mount), an\n"
		".npy, .npz or .safetensors file, a directory of safetensors shards, a zarr group, or a checkpoint.\n"
		"The step is there as a whole and durable when the command ends with 0, or not at all.",
	.example = "pytreefs save tests/data/sample/1000/state/params /tmp/ckpts/1",
	.options = save_options,
	.min_args = 2,
	.max_args = 2,
	.alone = true,
	.takes_mount_options = true,
	.run = run_save,
};
