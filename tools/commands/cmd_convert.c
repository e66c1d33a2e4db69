/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cmd_convert.c - `pytreefs convert` and `pytreefs save`: make a checkpoint of any input.
 *
 * If the name of OUT is that of another format, convert calls export.
 */
#include <stdio.h>

#include "core/base/err.h"
#include "core/base/log.h"
#include "core/base/path.h"
#include "core/step/detect.h"
#include "core/step/step_name.h"
#include "handlers/draft/draft.h"
#include "tools/convert/export.h"
#include "tools/convert/input.h"
#include "tools/cli/interrupt.h"
#include "tools/convert/atomic_file.h"
#include "tools/convert/atomic_step.h"
#include "tools/convert/new_root.h"
#include "tools/convert/placement.h"
#include "tools/convert/root_others.h"
#include "tools/convert/rules.h"
#include "tools/job/mpi_program.h"
#include "tools/select/selection.h"
#include "tools/job/group_work.h"

struct job {
	struct cmd_args *a;
	struct progress progress;
	struct rank_group *group; /* NULL: one process does all */
	struct select *only;
	struct placement *placement; /* NULL: chunks and shardings as in the input */
	uint64_t leaves, bytes;
	uint64_t leaf_memory; /* bound_leaves() */
	/* number of arrays of this rank for each choice of compression=auto */
	uint64_t chosen[COMPRESSION_AUTO];
	size_t checkpoints;
	/* of a root: */
	bool is_root;
	size_t n_failed, n_skipped;
	struct buf failed; /* names, each followed by a NUL */
};

/* ---- one checkpoint ---- */

/* Choose the layout: as the user says, else as in the input, else by the name of OUT. */
static int choose_layout(const struct job *j, const struct input *in, const char *out,
			 enum layout_kind *ret)
{
	const char *layout = j->a->cmd == &cmd_convert ? cmd_value(j->a, "layout") : "v1";
	auto_free char *dir = NULL, *name = NULL;
	int r = path_split(out, &dir, &name);

	if (r < 0)
		return r;
	if (layout)
		*ret = strcmp(layout, "v0") ? LAYOUT_ITEMS : LAYOUT_DIRECT;
	else if (in->is_step || cmd_value(j->a, "item"))
		*ret = LAYOUT_ITEMS;
	else if (in->kind == INPUT_ORBAX && !in->is_foreign)
		*ret = LAYOUT_DIRECT;
	else
		*ret = path_check_step_name(j->a, dir, name) >= 0 ? LAYOUT_ITEMS : LAYOUT_DIRECT;
	err_clear();
	if (in->is_step && cmd_value(j->a, "item"))
		return fail(-EINVAL, "--item: '%s' has items of its own", in->path);
	if (in->is_step && *ret == LAYOUT_DIRECT)
		return fail(
			-EINVAL,
			"'%s' has items, and a checkpoint of layout v0 is one tree: name one of "
			"them",
			in->path);
	return 0;
}

/* Set the custom metadata of the step, or of a tree without items, as --custom-metadata says. */
static int convert_set_custom(const struct job *j, const struct input *in, struct draft *d)
{
	const char *custom = cmd_value(j->a, "custom-metadata");
	struct span value = span_str(custom ? custom : "");

	if (custom)
		return draft_set_xattr(d->root, "user.pytree.custom_metadata", &value, 0);
	/* They may describe the layout that the rules have changed. */
	if (in->st.custom && options_given(&j->a->options, "transforms") && group_is_lead(j->group))
		log_warn("the custom metadata of '%s' are kept (--custom-metadata sets others): %s",
			 in->path, in->st.custom);
	return 0;
}

static int write_checkpoint(struct job *j, struct input *in, const char *out)
{
	const char *item = cmd_value(j->a, "item");
	enum layout_kind layout = LAYOUT_ITEMS;
	auto_atomic_step n = { 0 };
	auto_import_list f = { 0 };
	int r = group_reduce(j->group, choose_layout(j, in, out, &layout));

	if (r < 0)
		return r;
	f.at = in->is_step || layout == LAYOUT_DIRECT ? "" : item ? item : "default";
	f.most = j->leaf_memory;
	f.restore_dtype = j->a->options.restore_dtype;
	f.any_leaf_type = options_given(&j->a->options, "leaf_type");
	f.any_rich_types = options_given(&j->a->options, "rich_types");
	f.no_items = cmd_flag(j->a, "no-items");
	f.placement = j->placement;
	if (f.placement && in->kind != INPUT_ORBAX && in->kind != INPUT_SAFETENSORS)
		return fail(
			-EINVAL,
			"'%s' is neither a checkpoint nor safetensors: convert it first, then for "
			"the mesh",
			in->path);
	r = atomic_step_begin(j->a, j->group, out, layout, cmd_flag(j->a, "force"), &n);
	if (r < 0)
		return r;
	r = in->kind == INPUT_ORBAX ? rules_check(j->a, &in->st, group_is_lead(j->group)) : 0;
	r = group_reduce(j->group, r < 0 ? r : input_list(in, j->only, &f));
	if (r < 0)
		return r;
	r = group_reduce(j->group, input_hint(in, n.draft));
	if (r < 0)
		return r;
	r = import_list_write(&f, n.draft, MAX(1u, pool_threads(n.ns->ckpt->pool)), &j->progress,
			      j->group);
	if (r < 0)
		return r;
	r = group_reduce(j->group, convert_set_custom(j, in, n.draft));
	if (r < 0)
		return r;
	r = atomic_step_commit(&n);
	if (r < 0)
		return r;
	j->leaves += f.n;
	for (size_t i = 0; i < ARRAY_LEN(j->chosen); i++)
		j->chosen[i] += n.ns->ckpt->write_env.chosen[i];
	for (size_t i = 0; i < f.n; i++)
		j->bytes += f.import_entry[i].bytes;
	j->checkpoints++;
	return 0;
}

/* ---- a root: step by step ---- */

static int open_input(struct job *j, const char *path, struct input *ret)
{
	int r = input_open(j->a, path, ret);

	return r < 0 ? r : input_stage(j->a, ret, &j->progress);
}

/* Whether a failure is not one of the step: the next steps would fail as well, or nobody wants
 * them. */
static bool ends_all(const struct job *j, int r)
{
	static const int all[] = { EINTR,  ENOMEM, EMFILE, ENFILE, ENOSPC,
				   EDQUOT, EROFS,  EEXIST, EAGAIN };

	/* After a failure of one rank the others do not work any more. */
	if (j->group)
		return true;
	for (size_t i = 0; i < ARRAY_LEN(all); i++)
		if (r == -all[i])
			return true;
	return false;
}

/* Convert a step, unless OUT has it. The failure of a step alone is printed, and the next is tried.
 */
static int convert_next(struct job *j, const char *root, const char *step, const char *out,
			struct io_dir *to)
{
	auto_free char *from = NULL, *target = NULL;
	enum shape shape = SHAPE_UNKNOWN;
	auto_input in = { 0 };
	int r = cmd_flag(j->a, "skip-existing") ? detect_step(to, step, &shape) : 0;

	r = err_except(r, -ENOENT);
	if (shape != SHAPE_UNKNOWN)
		j->n_skipped++;
	r = group_reduce(j->group, r);
	if (r < 0 || shape != SHAPE_UNKNOWN)
		return r;
	r = path_join(root, span_str(step), &from);
	if (r >= 0)
		r = path_join(out, span_str(step), &target);
	r = group_reduce(j->group, r < 0 ? r : open_input(j, from, &in));
	if (r >= 0)
		r = write_checkpoint(j, &in, target);
	if (r == -EEXIST)
		return fail(r, "step '%s': %s, --skip-existing converts the others", step,
			    err_text(r));
	if (r >= 0)
		return r;
	err_at(r, "step '%s'", step);
	if (ends_all(j, r))
		return r;
	progress_clear(&j->progress);
	print_failure(r);
	err_clear();
	j->n_failed++;
	return buf_add(&j->failed, step, strlen(step) + 1);
}

static int convert_root_begin(struct job *j, const struct input *in, const char *out,
			      struct listing *ret_steps, struct new_root *ret)
{
	int r;

	if (path_is_url(out))
		return fail(-EOPNOTSUPP,
			    "'%s' is a directory of steps: to a bucket one step is written at a "
			    "time",
			    in->path);
	r = node_list(in->source.node, ret_steps);
	if (r < 0)
		return r;
	if (ret_steps->n <= 2)
		return fail(-EINVAL, "'%s' has no step", in->path);
	r = path_check_outside(out, out, true);
	return r < 0 ? r : new_root_make(j->a, out, ret);
}

static int convert_root(struct job *j, struct input *in, const char *out)
{
	struct ckpt *ckpt = in->source.ns->ckpt;
	auto_of(io_dir) struct io_dir *to = NULL;
	auto_listing l = { 0 };
	auto_new_root root = { 0 };
	int r = group_reduce(j->group, convert_root_begin(j, in, out, &l, &root));

	j->is_root = true;
	if (r >= 0)
		r = group_reduce(j->group, io_dir_open(ckpt->io, out, &to));
	for (size_t i = 2; i < l.n && r >= 0; i++)
		r = convert_next(j, in->path, listing_name(&l, i), out, to);
	if (r >= 0 && j->checkpoints + j->n_skipped > 0)
		r = group_reduce(j->group,
				 group_is_lead(j->group) ?
					 root_copy_others(ckpt, &l, out, cmd_flag(j->a, "force")) :
					 0);
	if (r < 0 || j->checkpoints + j->n_skipped == 0)
		new_root_remove(&root);
	return r;
}

/* ---- the commands ---- */

static int convert_begin(struct job *j, struct cmd_args *a, struct rank_group *group)
{
	int r;

	*j = (struct job){ .a = a, .group = group };
	j->leaf_memory = bound_leaves(a);
	interrupt_catch();
	log_stderr_level(cmd_flag(a, "verbose") ? LOG_LEVEL_INFO : LOG_LEVEL_WARN);
	progress_begin(&j->progress, a->cmd->name, cmd_flag(a, "quiet"));
	group_work_begin(group, &j->progress);
	r = select_make(a, &j->only);
	return r < 0 || a->cmd != &cmd_convert ? r : placement_new(a, &j->placement);
}

/* Print the choices of compression=auto, if it was used. */
static int put_chosen(const struct job *j, bool json, struct buf *out)
{
	if (!j->chosen[COMPRESSION_NONE] && !j->chosen[COMPRESSION_ZSTD] &&
	    !j->chosen[COMPRESSION_BLOSC])
		return 0;
	return buf_addf(out,
			json ? ", \"auto\": {\"blosc\": %llu, \"zstd\": %llu, \"none\": %llu}" :
			       "; compression: %llu blosc, %llu zstd, %llu none",
			(unsigned long long)j->chosen[COMPRESSION_BLOSC],
			(unsigned long long)j->chosen[COMPRESSION_ZSTD],
			(unsigned long long)j->chosen[COMPRESSION_NONE]);
}

static int convert_print_json(const struct job *j, const char *out, double seconds)
{
	auto_buf name = { 0 }, rest = { 0 };
	int r = json_put_str(&name, span_str(out), JSON_PRETTY);

	if (r >= 0 && j->is_root)
		r = buf_addf(&rest, ", \"skipped\": %zu, \"failed\": [", j->n_skipped);
	for (const char *at = NULL; r >= 0 && (at = buf_next_text(&j->failed, at));) {
		if (at != (const char *)j->failed.p)
			buf_add_str(&rest, ", ");
		r = json_put_str(&rest, span_str(at), JSON_PRETTY);
	}
	if (r >= 0 && j->is_root)
		r = buf_add_byte(&rest, ']');
	if (r < 0 || put_chosen(j, true, &rest) < 0)
		return -ENOMEM;
	printf("{\"out\": %.*s, \"checkpoints\": %zu, \"leaves\": %llu, \"bytes\": %llu, "
	       "\"seconds\": %.3f%.*s}\n",
	       SPAN_ARG(buf_span(&name)), j->checkpoints, (unsigned long long)j->leaves,
	       (unsigned long long)j->bytes, seconds, SPAN_ARG(buf_span(&rest)));
	return 0;
}

static int end(struct job *j, const char *out, int r)
{
	auto_of(placement) struct placement *placement = j->placement;
	auto_buf failed = j->failed;
	double seconds = progress_seconds(&j->progress);
	char size[32];

	group_work_end(j->group);
	progress_end(&j->progress);
	if (r < 0)
		return r;
	if (!group_is_lead(j->group))
		return EXIT_OK;
	if (j->checkpoints)
		placement_warn_unused(placement);
	print_size(size, sizeof(size), j->bytes);
	if (cmd_flag(j->a, "json")) {
		r = convert_print_json(j, out, seconds);
	} else if (cmd_flag(j->a, "verbose")) {
		auto_buf chosen = { 0 };

		r = put_chosen(j, false, &chosen);
		printf("%s: %llu %s, %s, %.1f s%s\n", out, (unsigned long long)j->leaves,
		       noun(j->leaves, "leaf", "leaves"), size, seconds,
		       r < 0 ? "" : buf_str(&chosen));
	}
	if (r < 0)
		return r;
	if (j->n_failed)
		fprintf(stderr, "pytreefs: %zu of %zu steps could not be converted\n", j->n_failed,
			j->n_failed + j->n_skipped + j->checkpoints);
	return j->n_failed ? cmd_error_status(j->a->cmd) : EXIT_OK;
}

static int convert_open(struct job *j, struct cmd_args *a, struct rank_group *group,
			struct input *ret)
{
	int r = convert_begin(j, a, group);

	if (r < 0)
		return r;
	r = open_input(j, a->arg[0], ret);
	if (r < 0)
		return r;
	if (cmd_flag(a, "skip-existing") && !ret->is_root)
		return fail(-EINVAL, "--skip-existing: '%s' is not a directory of steps",
			    ret->path);
	return 0;
}

static int convert_one(struct cmd_args *a, struct rank_group *group)
{
	const char *path = a->arg[0], *out = a->arg[1];
	enum export_format format = export_format_of(out);
	auto_input in = { 0 };
	struct job j;
	int r;

	if (format != EXPORT_UNKNOWN && path_is_url(out))
		return fail(-EOPNOTSUPP, "'%s': only checkpoints are written to a bucket", out);
	if (format != EXPORT_UNKNOWN)
		return export_run(a, group, path, out, format);
	r = group_reduce(group, convert_open(&j, a, group, &in));
	if (r >= 0)
		r = in.is_root ? convert_root(&j, &in, out) : write_checkpoint(&j, &in, out);
	return end(&j, out, r);
}

/* Check the values of the options that both commands have. */
static int convert_check_values(const struct cmd_args *a)
{
	const char *item = cmd_value(a, "item"), *custom = cmd_value(a, "custom-metadata");
	auto_json doc = { 0 };
	int r;

	if (item && (!*item || strchr(item, '/')))
		return cmd_wrong(a->cmd, "--item is the name of one item, without '/', not '%s'",
				 item);
	if (!custom)
		return EXIT_OK;
	r = json_parse(span_str(custom), "--custom-metadata", &doc);
	if (r < 0)
		return cmd_wrong(a->cmd, "%s", err_text(r));
	if (!json_is(doc.root, JSON_OBJECT))
		return cmd_wrong(a->cmd, "--custom-metadata is a JSON object, not '%s'", custom);
	return EXIT_OK;
}

/* Refuse options that would have no effect. */
static int check_options(const struct cmd_args *a, enum export_format format)
{
	const char *layout = cmd_value(a, "layout"), *item = cmd_value(a, "item");
	const char *mesh = cmd_value(a, "mesh"), *spec = cmd_value(a, "spec"),
		   *like = cmd_value(a, "chunks-like");
	const char *step = cmd_flag(a, "skip-existing")   ? "skip-existing" :
			   mesh                           ? "mesh" :
			   spec                           ? "spec" :
			   like                           ? "chunks-like" :
			   layout                         ? "layout" :
			   item                           ? "item" :
			   cmd_flag(a, "no-items")        ? "no-items" :
			   cmd_flag(a, "custom-metadata") ? "custom-metadata" :
							    NULL;

	if (layout && strcmp(layout, "v0") && strcmp(layout, "v1"))
		return cmd_wrong(a->cmd, "--layout is v0 or v1, not '%s'", layout);
	if (format != EXPORT_UNKNOWN && step)
		return cmd_wrong(a->cmd, "--%s is for an OUT that is a checkpoint", step);
	if (format != EXPORT_UNKNOWN)
		return export_check_options(a, format);
	if (!mesh != !spec)
		return cmd_usage(a->cmd, "--mesh and --spec are given together");
	if (mesh && like)
		return cmd_usage(a->cmd, "--mesh and --chunks-like both say what the chunks are");
	if (cmd_flag(a, "skip-existing") && cmd_flag(a, "force"))
		return cmd_usage(a->cmd, "--skip-existing leaves what --force would replace");
	if (cmd_value(a, "cast"))
		return cmd_usage(a->cmd,
				 "--cast is for an OUT that is not a checkpoint; use -o dtype=");
	if (cmd_value(a, "max-shard-size"))
		return cmd_usage(a->cmd, "--max-shard-size is for an OUT that is safetensors");
	if (item && layout && !strcmp(layout, "v0"))
		return cmd_usage(a->cmd,
				 "--item names an item, and a checkpoint of layout v0 has none");
	return convert_check_values(a);
}

static int run_convert(struct cmd_args *a)
{
	struct rank_group *group;
	int r = check_options(a, export_format_of(a->arg[1]));

	if (r != EXIT_OK)
		return r;
	r = mpi_rank_group(a, &group);
	return r < 0 ? r : group_end(group, convert_one(a, group));
}

/* An empty directory is a directory of steps, too. */
static int fail_root(const struct input *in)
{
	auto_listing l = { 0 };
	int r = node_list(in->source.node, &l);

	if (r < 0)
		return r;
	return l.n <= 2 ? fail(-EINVAL, "'%s' has no leaf and no step", in->path) :
			  fail(-EINVAL, "'%s' is a directory of steps: name one of them", in->path);
}

static int save_open(struct job *j, struct cmd_args *a, struct rank_group *group, struct input *ret)
{
	auto_free char *dir = NULL, *name = NULL;
	int r = convert_begin(j, a, group);

	if (r < 0)
		return r;
	r = path_split(a->arg[1], &dir, &name);
	if (r < 0)
		return r;
	r = path_check_step_name(a, dir, name);
	if (r < 0)
		return r;
	r = open_input(j, a->arg[0], ret);
	if (r < 0)
		return r;
	if (ret->is_root)
		return fail_root(ret);
	return path_check_outside(a->arg[1], dir, false);
}

static int save(struct cmd_args *a, struct rank_group *group)
{
	auto_input in = { 0 };
	struct job j;
	int r = group_reduce(group, save_open(&j, a, group, &in));

	return end(&j, a->arg[1], r < 0 ? r : write_checkpoint(&j, &in, a->arg[1]));
}

static int run_save(struct cmd_args *a)
{
	struct rank_group *group;
	int r = convert_check_values(a);

	if (r != EXIT_OK)
		return r;
	r = mpi_rank_group(a, &group);
	return r < 0 ? r : group_end(group, save(a, group));
}

#define OPTION_ITEM                                                                   \
	{                                                                             \
		"item", 0, "NAME", "name of the item that the tree becomes (default)" \
	}
#define OPTION_NO_ITEMS                                                                 \
	{                                                                               \
		"no-items", 0, NULL, "leave out items that are not trees (JSON, files)" \
	}
#define OPTION_CUSTOM                                                                    \
	{                                                                                \
		"custom-metadata", 0, "JSON", "an object, in place of that of the input" \
	}
#define OPTION_FORCE                                                       \
	{                                                                  \
		"force", 0, NULL, "replace an existing checkpoint or file" \
	}

static const struct cmd_option convert_options[] = {
	{ "layout", 0, "v0|v1", "v0: OUT is the tree; v1: it has items (as IN)" },
	OPTION_ITEM,
	OPTION_NO_ITEMS,
	OPTION_CUSTOM,
	OPTION_STRICT,
	OPTION_FORCE,
	{ "skip-existing", 0, NULL, "IN has steps: only those that OUT does not have" },
	OPTION_ONLY,
	OPTION_JSON,
	OPTION_QUIET,
	OPTION_VERBOSE,
	EXPORT_OPTIONS(.in_manual = true),
	{ "mesh", 0, "NAME=SIZE,...", "chunks and shardings for these axes of devices",
	  .in_manual = true },
	{ "spec", 0, "RULES", "with --mesh: JSON, {REGEX of the key: partition spec}",
	  .in_manual = true },
	{ "chunks-like", 0, "STEP", "chunks and shardings as this checkpoint has them",
	  .in_manual = true },
	{ 0 }
};

const struct cmd cmd_convert = {
	.name = "convert",
	.args = "IN OUT",
	.summary = "convert IN (as of save) to a checkpoint (s3://, gs://) or a file as of export",
	.help = "",
	.example = "pytreefs convert -o zarr=3 ckpts/1000 /tmp/1000-v3",
	.options = convert_options,
	.min_args = 2,
	.max_args = 2,
	.takes_mount_options = true,
	.saves = true,
	.confined = CMD_WRITES,
	.found = "it failed, or a step of a directory of steps did; OUT has the others.",
	.run = run_convert,
};

static const struct cmd_option save_options[] = { OPTION_ITEM,   OPTION_STRICT, OPTION_NO_ITEMS,
						  OPTION_CUSTOM, OPTION_FORCE,  OPTION_ONLY,
						  OPTION_JSON,   OPTION_QUIET,  OPTION_VERBOSE,
						  { 0 } };

const struct cmd cmd_save = {
	.name = "save",
	.args = "INPUT SOURCE/STEP",
	.summary = "save files of arrays as a new step of a directory of checkpoints",
	.help = "INPUT is a directory of .npy, .json, .txt and .null files (or a copy of a step\n"
		"out of a mount), an .npy, .npz or .safetensors file, safetensors shards, a zarr\n"
		"group or checkpoint. SOURCE may be s3://, gs://. Status 0, no warning: durable.",
	.example = "pytreefs save ckpts/1000/state/params /tmp/ckpts/1",
	.options = save_options,
	.min_args = 2,
	.max_args = 2,
	.takes_mount_options = true,
	.saves = true,
	.confined = CMD_WRITES,
	.run = run_save,
};
