/*
 * cmd_export.c - `pytreefs export`: what all formats have in common.
 */
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#include "core/base/err.h"
#include "tools/export.h"
#include "tools/input.h"
#include "tools/interrupt.h"
#include "tools/newstep.h"
#include "tools/targets.h"
#include "tools/walk.h"
#include "tools/zip_data.h"

#define AHEAD_BYTES (16 * MiB)		/* decoded before it is asked for */

static const struct {
	enum export_format format;
	const char *name, *end;
	int (*run)(struct export *x);
} formats[] = {
	{ EXPORT_NPY, "npy", NULL, export_npy },
	{ EXPORT_NPZ, "npz", ".npz", export_npz },
	{ EXPORT_SAFETENSORS, "safetensors", ".safetensors", export_safetensors },
	{ EXPORT_ZARR, "zarr", ".zarr", export_zarr },
};

enum export_format export_format_of(const char *path)
{
	size_t n = strlen(path);

	while (n > 1 && path[n - 1] == '/')
		n--;
	for (size_t i = 0; i < ARRAY_LEN(formats); i++)
		if (formats[i].end && span_ends(span_of(path, n), span_str(formats[i].end)))
			return formats[i].format;
	return EXPORT_UNKNOWN;
}

/* ---- leaves ---- */

static int add_leaf(struct export *x, const struct leaf_facts *facts)
{
	struct export_leaf *l = &x->leaf[x->n];
	auto_buf path = { 0 };
	int r;

	*l = (struct export_leaf){ .facts = facts, .part = &x->st.part[facts->part], .dtype = facts->dtype,
				   .bytes = facts->bytes };
	r = subtree_path(l->part, facts->leaf, &path);
	if (r >= 0)
		l->path = buf_str(&path) ? arena_str(&x->arena, buf_str(&path)) : NULL;
	if (!l->path)
		return fail(-ENOMEM, "cannot list the leaves");
	if (facts->kind == VALUE_UNKNOWN)
		return fail(facts->error ? facts->error : -EOPNOTSUPP, "'%s': %s", l->path, facts->why);
	if (facts->kind == VALUE_ARRAY && x->cast != DTYPE_UNKNOWN && !facts->is_scalar &&
	    dtype_info(facts->dtype)->kind == DTYPE_KIND_FLOAT) {
		l->dtype = x->cast;
		if (!mul_fits(facts->bytes / dtype_info(facts->dtype)->size, dtype_info(x->cast)->size, &l->bytes))
			return fail(-EFBIG, "'%s' would have more than 2^64 bytes", l->path);
	}
	x->n++;
	return 0;
}

static int list_leaves(struct export *x)
{
	int r = subtree_open(x->src.node, &x->st);

	for (size_t i = 0; i < x->st.n && r >= 0; i++)
		if (x->st.part[i].kind == PART_BROKEN)
			r = err_restore(x->st.part[i].note);
	if (r >= 0)
		r = survey_make(&x->st, SURVEY_TEXTS, &x->survey);
	if (r < 0)
		return r;
	x->leaf = calloc(x->survey.n + 1, sizeof(*x->leaf));
	if (!x->leaf)
		return fail(-ENOMEM, "cannot list %zu leaves", x->survey.n);
	for (size_t i = 0; i < x->survey.n && r >= 0; i++) {
		const struct leaf_facts *f = &x->survey.leaf[i];

		if (walk_selects(&x->st.part[f->part], f->leaf, x->only))
			r = add_leaf(x, f);
	}
	if (r >= 0 && x->n == 0 && x->only)
		r = fail(-ENOENT, "no leaf matches '%s'", x->only);
	for (size_t i = 0; i < x->n; i++)
		progress_expect(&x->progress, x->leaf[i].bytes);
	return r;
}

int export_leaf_open(const struct export *x, const struct export_leaf *l, enum name_ext ext, struct form *ret)
{
	auto_value v = { 0 };
	struct zarr_view view;
	int r = leaf_open(l->part->item, l->facts->leaf, &v);

	if (r < 0 || v.kind != VALUE_ARRAY)
		return r < 0 ? r : form_open(ext, &v, NULL, ret);
	zarr_view_whole(&v.array->meta, &view);
	if (l->dtype != view.dtype) {
		view.dtype = l->dtype;
		view.plain = false;
		r = zarr_view_finish(&view);
	}
	return r < 0 ? r : form_open(ext, &v, &view, ret);
}

int write_fully(int fd, const char *what, uint64_t off, const void *p, size_t n)
{
	const uint8_t *from = p;

	while (n > 0) {
		ssize_t put = pwrite(fd, from, n, (off_t)off);

		if (put < 0 && errno == EINTR)
			continue;
		if (put < 0)
			return err_sys("cannot write", what);
		from += put;
		off += (uint64_t)put;
		n -= (size_t)put;
	}
	return 0;
}

static int write_form(struct export *x, const struct form *f, int fd, uint64_t at, struct lane *lane, uint32_t *crc)
{
	int r = 0;

	for (uint64_t off = 0; off < f->size && r >= 0;) {
		size_t n = (size_t)MIN((uint64_t)LANE_BYTES, f->size - off);
		struct gather g;

		r = interrupt_check();
		if (r < 0)
			return r;
		gather_init(&g, x->src.ns->ckpt->cache);
		form_prefetch(f, off + n, MIN(AHEAD_BYTES, f->size - off - n));
		r = form_read(f, off, n, &g);
		if (r >= 0)
			r = gather_copy(&g, lane->buf);
		gather_release(&g);
		if (r >= 0)
			r = write_fully(fd, x->out.temp, at + off, lane->buf, n);
		/* The disk begins now, while the next piece is decoded; a hint, whatever comes of it. */
		if (r >= 0)
			sync_file_range(fd, (off_t)(at + off), (off_t)n, SYNC_FILE_RANGE_WRITE);
		if (r >= 0 && crc)
			*crc = zip_crc(*crc, lane->buf, n);
		off += n;
		progress_add(&x->progress, n);
	}
	return r;
}

int export_leaf_write(struct export *x, const struct export_leaf *l, enum name_ext ext, int fd, uint64_t off,
		      struct lane *lane, uint32_t *crc)
{
	auto_form f = { 0 };
	int r = export_leaf_open(x, l, ext, &f);

	if (r >= 0)
		r = write_form(x, &f, fd, off, lane, crc);
	return r < 0 ? err_at(r, "leaf '%s'", l->path) : 0;
}

/* ---- directories ---- */

int export_path(const struct export *x, const char *path, char **ret)
{
	return ns_join(x->out.temp, span_str(path), ret);
}

int export_make_dirs(const struct export *x, const char *path)
{
	auto_free char *full = NULL;
	int r = export_path(x, path, &full);

	for (char *at = r < 0 ? NULL : full + strlen(x->out.temp) + 1; at && (at = strchr(at, '/')); at++) {
		*at = '\0';
		if (mkdir(full, 0777) < 0 && errno != EEXIST)
			return err_sys("cannot make", full);
		*at = '/';
	}
	return r;
}

int export_text(const struct export *x, const char *name, struct span text)
{
	auto_free char *path = NULL;
	auto_close int fd = -1;
	int r = export_path(x, name, &path);

	if (r < 0)
		return r;
	fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
	return fd < 0 ? err_sys("cannot make", path) : write_fully(fd, path, 0, text.p, text.n);
}

void export_remarks(struct export *x)
{
	for (size_t i = 0; i < x->st.n && !cmd_flag(x->a, "quiet") && !x->only; i++)
		if (x->st.part[i].kind == PART_FILES) {
			progress_clear(&x->progress);
			fprintf(stderr, "pytreefs: item '%s' is no tree and is left out\n", x->st.part[i].path);
		}
}

/* ---- the command ---- */

static void export_release(struct export *x)
{
	newfile_release(&x->out);
	survey_release(&x->survey);
	subtree_release(&x->st);
	if (x->src.ns)
		source_close(&x->src);
	free(x->leaf);
	arena_release(&x->arena);
}

static int parse_options(struct export *x, enum export_format format)
{
	const char *cast = cmd_value(x->a, "cast"), *shard = cmd_value(x->a, "max-shard-size");

	if (cast)
		x->cast = dtype_by_name(span_str(cast));
	if (cast && x->cast == DTYPE_UNKNOWN)
		return fail(-EINVAL, "--cast: no dtype '%s'", cast);
	if (shard && (option_parse_size(shard, &x->max_shard) < 0 || x->max_shard == 0))
		return fail(-EINVAL, "--max-shard-size: '%s' is no number of bytes", shard);
	if (shard && format != EXPORT_SAFETENSORS)
		return fail(-EINVAL, "--max-shard-size is for safetensors");
	return 0;
}

static int report(struct export *x, const char *out, double seconds)
{
	uint64_t bytes = 0;
	auto_buf text = { 0 };
	char size[32];

	for (size_t i = 0; i < x->n; i++)
		bytes += x->leaf[i].bytes;
	print_size(size, sizeof(size), bytes);
	if (cmd_flag(x->a, "json")) {
		int r = json_put_str(&text, span_str(out), JSON_PRETTY);

		if (r < 0 || !buf_str(&text))
			return -ENOMEM;
		printf("{\"out\": %s, \"leaves\": %zu, \"bytes\": %llu, \"seconds\": %.3f}\n", buf_str(&text), x->n,
		       (unsigned long long)bytes, seconds);
	} else if (cmd_flag(x->a, "verbose")) {
		printf("%s: %zu leaves, %s, %.1f s\n", out, x->n, size, seconds);
	}
	return EXIT_OK;
}

static int export_as(struct cmd_args *a, const char *path, const char *out, enum export_format format)
{
	struct export x = { .a = a, .only = cmd_value(a, "only") };
	bool is_dir;
	int r = parse_options(&x, format);

	bound_memory(a);
	interrupt_catch();
	progress_begin(&x.progress, a->cmd->name, cmd_flag(a, "quiet"));
	is_dir = format == EXPORT_NPY || format == EXPORT_ZARR || x.max_shard;
	if (r >= 0 && input_is_foreign(path))
		r = fail(-EINVAL, "'%s' is no checkpoint: make one of it first (convert '%s' SOME/DIRECTORY)", path, path);
	if (r >= 0)
		r = source_open(a, path, &x.src);
	if (r >= 0) {
		x.threads = MAX(1u, pool_threads(x.src.ns->ckpt->pool));
		r = newfile_begin(out, is_dir, cmd_flag(a, "force"), &x.out);
	}
	if (r >= 0)
		r = list_leaves(&x);
	for (size_t i = 0; i < ARRAY_LEN(formats) && r >= 0; i++)
		if (formats[i].format == format)
			r = formats[i].run(&x);
	if (r >= 0)
		r = interrupt_check();
	if (r >= 0)
		r = newfile_commit(&x.out);
	if (r >= 0)
		r = report(&x, out, progress_seconds(&x.progress));
	progress_end(&x.progress);
	export_release(&x);
	return r < 0 ? err_at(r, "'%s' is not written", out) : r;
}

int export_run(struct cmd_args *a, const char *path, const char *out)
{
	return export_as(a, path, out, export_format_of(out));
}

static int run_export(struct cmd_args *a)
{
	const char *name = cmd_value(a, "format");
	enum export_format format = export_format_of(a->arg[1]);

	for (size_t i = 0; name && i < ARRAY_LEN(formats); i++)
		if (!strcmp(formats[i].name, name))
			return export_as(a, a->arg[0], a->arg[1], formats[i].format);
	if (name)
		return fail(-EINVAL, "--format is npy, npz, safetensors or zarr, not '%s'", name);
	return export_as(a, a->arg[0], a->arg[1], format == EXPORT_UNKNOWN ? EXPORT_NPY : format);
}

static const struct cmd_option options[] = {
	{ "format", 0, "FORMAT", "npy, npz, safetensors or zarr (by the name of OUT, else npy)" },
	EXPORT_OPTIONS,
	{ "force", 0, NULL, "replace what is there" },
	OPTION_ONLY, OPTION_JSON, OPTION_QUIET, OPTION_VERBOSE, { 0 }
};

const struct cmd cmd_export = {
	.name = "export",
	.args = "SOURCE/PATH OUT",
	.summary = "a step, item or directory of leaves -> npy files, npz, safetensors, zarr",
	.help = "OUT is a directory of leaves (npy), one file (npz, safetensors), a directory of shards with an\n"
		"index (safetensors with --max-shard-size) or a zarr group (as -o zarr=, compression= say). It is\n"
		"there as a whole and durable when the command ends with 0, or not at all: what a killed export\n"
		"left beside OUT (.NAME.pytreefs-PID), the next one to OUT removes. What a format cannot\n"
		"say (lists, numbers, None) is kept beside the arrays, so that convert makes the same tree of it.",
	.example = "pytreefs export --only 'params/**' tests/data/sample/1000/state /tmp/model.safetensors",
	.options = options,
	.min_args = 2,
	.max_args = 2,
	.alone = true,
	.takes_mount_options = true,
	.run = run_export,
};
