/* SPDX-License-Identifier: Apache-2.0 */
/*
 * export.c - the part of an export that is common to all formats.
 */
#include "tools/convert/export.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>

#include "core/base/err.h"
#include "core/base/path.h"
#include "handlers/leaf/leaf.h"
#include "handlers/namespace/node_parts.h"
#include "tools/cli/interrupt.h"
#include "tools/convert/atomic_step.h"
#include "tools/convert/input.h"
#include "tools/convert/rules.h"
#include "tools/convert/zip.h"
#include "tools/select/walk.h"

#define AHEAD_BYTES (16 * MiB) /* amount that is decoded before it is requested */

static const struct {
	const char *name, *end;
	int (*run)(struct export *x);
} formats[] = {
	[EXPORT_NPY] = { "npy", ".npy", export_npy },
	[EXPORT_NPZ] = { "npz", ".npz", export_npz },
	[EXPORT_SAFETENSORS] = { "safetensors", ".safetensors", export_safetensors },
	[EXPORT_ZARR] = { "zarr", ".zarr", export_zarr },
};

enum export_format export_format_of(const char *path)
{
	size_t n = strlen(path);

	while (n > 1 && path[n - 1] == '/')
		n--;
	for (enum export_format i = EXPORT_NPY; i < ARRAY_LEN(formats); i++)
		if (span_ends(span_of(path, n), span_str(formats[i].end)))
			return i;
	return EXPORT_UNKNOWN;
}

enum export_format export_format_by_name(const char *name)
{
	for (enum export_format i = EXPORT_NPY; i < ARRAY_LEN(formats); i++)
		if (!strcmp(formats[i].name, name))
			return i;
	return EXPORT_UNKNOWN;
}

/* ---- leaves ---- */

static int export_add_leaf(struct export *x, const struct leaf_info *info)
{
	struct export_leaf *l = &x->leaf[x->n];
	const struct item *item = info->part->item;
	auto_buf path = { 0 };
	int r = 0;

	*l = (struct export_leaf){ .info = info, .array = info->array, .bytes = info->bytes };
	if (subtree_path(info->part, info->leaf, &path) >= 0 && buf_str(&path))
		l->path = arena_str(&x->arena, buf_str(&path));
	if (!l->path)
		return fail(-ENOMEM, "cannot list the leaves");
	/*
	 * Where names are all that is known, as in the database of another program, a key that ends
	 * as the metadata of an array does may be something else.
	 */
	if (info->kind == VALUE_UNKNOWN && info->error == -EUCLEAN && !item->tree->has_metadata &&
	    !item->tree->has_manifest && !item->is_aggregate) {
		if (group_is_lead(x->group))
			fprintf(stderr, "pytreefs: '%s' is left out: %s\n", l->path, info->why);
		x->left_out[x->n_left_out++] = info->leaf;
		return 0;
	}
	if (info->kind == VALUE_UNKNOWN)
		return fail(info->error ? info->error : -EOPNOTSUPP, "'%s': %s", l->path,
			    info->why);
	if (info->kind == VALUE_ARRAY)
		r = tree_manifest_cast(info->part->item, info->leaf, info->is_scalar, &x->casts,
				       &l->array.dtype);
	if (r < 0)
		return r;
	if (l->array.dtype != info->array.dtype &&
	    !mul_fits(info->bytes / dtype_info(info->array.dtype)->size,
		      dtype_info(l->array.dtype)->size, &l->bytes))
		return fail(-EFBIG, "'%s' would have more than 2^64 bytes", l->path);
	x->n++;
	return 0;
}

static bool is_exported(void *arg, const struct subtree_part *part, const struct tree_node *leaf)
{
	const struct export *x = arg;

	for (size_t i = 0; i < x->n_left_out; i++)
		if (x->left_out[i] == leaf)
			return false;
	return !x->only || select_leaf(x->only, "", part, leaf);
}

struct tree_manifest_only export_only(struct export *x)
{
	return (struct tree_manifest_only){ x->only || x->n_left_out ? is_exported : NULL, x,
					    x->only != NULL };
}

/* The header of a safetensors file has all texts; other formats write one after another. */
static int export_list_leaves(struct export *x, enum export_format format)
{
	unsigned flags = format == EXPORT_SAFETENSORS ? LEAF_TABLE_TEXTS : 0;
	bool has_tree = false;
	auto_walk w = { 0 };
	int r = node_open_subtree(x->src.node, &x->st);

	if (r < 0)
		return r;
	r = node_add_custom(x->src.node, &x->st);
	for (size_t i = 0; i < x->st.n && r >= 0; i++) {
		has_tree |= x->st.part[i].kind == PART_TREE;
		if (x->st.part[i].kind == PART_BROKEN)
			r = err_restore(x->st.part[i].note);
	}
	if (r < 0)
		return r;
	if (!has_tree)
		return fail(-ENOENT, "'%s' has no item that is a tree", x->a->arg[0]);
	r = rules_check(x->a, &x->st, group_is_lead(x->group));
	if (r < 0)
		return r;
	r = walk_init(&w, &x->st, "", x->only);
	if (r < 0)
		return r;
	r = leaf_table_make(&x->st, flags, w.place, w.n, &x->leaf_table);
	if (r < 0)
		return r;
	x->leaf = calloc(x->leaf_table.n + 1, sizeof(*x->leaf));
	x->left_out = calloc(x->leaf_table.n + 1, sizeof(*x->left_out));
	if (!x->leaf || !x->left_out)
		return fail(-ENOMEM, "cannot list %zu leaves", x->leaf_table.n);
	for (size_t i = 0; i < x->leaf_table.n && r >= 0; i++)
		r = export_add_leaf(x, &x->leaf_table.leaf[i]);
	if (r < 0)
		return r;
	r = select_end(x->only);
	if (r < 0)
		return r;
	if (!x->n && x->n_left_out)
		return fail(-EUCLEAN, "nothing else is in '%s'", x->a->arg[0]);
	for (size_t i = 0; i < x->n; i++)
		progress_expect(&x->progress, x->leaf[i].bytes);
	return 0;
}

static int write_format(struct export *x, const struct export_leaf *l, enum name_ext ext,
			struct io_file *file, uint64_t at, struct worker *worker, uint32_t *crc)
{
	auto_format f = { 0 };
	int r = leaf_open_format(l->info->part->item, l->info->leaf, ext, l->array.dtype, &f);

	if (r < 0)
		return r;
	for (uint64_t off = 0; off < f.size;) {
		size_t n = (size_t)MIN((uint64_t)WORKER_BYTES, f.size - off);

		r = interrupt_check();
		if (r < 0)
			return r;
		format_prefetch(&f, off + n, MIN(AHEAD_BYTES, f.size - off - n), NULL);
		r = format_copy(&f, x->src.ns->ckpt->cache, off, n, worker->buf);
		if (r < 0)
			return r;
		r = io_write_exact(file, worker->buf, n, at + off);
		if (r < 0)
			return r;
		/*
		 * A hint to start writing while the next piece is decoded. Its result does not
		 * matter.
		 */
		io_file_write_behind(file, at + off, n);
		if (crc)
			*crc = zip_crc(*crc, worker->buf, n);
		off += n;
		progress_add(&x->progress, n);
	}
	return 0;
}

int export_leaf_write(struct export *x, const struct export_leaf *l, enum name_ext ext,
		      struct io_file *file, uint64_t off, struct worker *worker, uint32_t *crc)
{
	int r = write_format(x, l, ext, file, off, worker, crc);

	return r < 0 ? err_at(r, "leaf '%s'", l->path) : 0;
}

/* ---- directories ---- */

int export_path(const struct export *x, const char *path, char **ret)
{
	return path_join(x->out.temp, span_str(path), ret);
}

int export_make_dirs(const struct export *x, const char *path)
{
	return io_make_parents(x->out.temp_dir, path, IO_DIR_MODE);
}

int export_text(const struct export *x, const char *name, struct span text)
{
	auto_of(io_file) struct io_file *f = NULL;
	int r = io_file_open(x->out.temp_dir, name, O_RDWR | O_CREAT | O_EXCL, IO_FILE_MODE, &f);

	return r < 0 ? r : io_write_exact(f, text.p, text.n, 0);
}

static void remark(struct export *x, const char *before, const char *name, const char *after)
{
	progress_clear(&x->progress);
	fprintf(stderr, "pytreefs: %s '", before);
	print_name(stderr, name);
	fprintf(stderr, "' %s\n", after);
}

static int remark_other(void *arg, const struct subtree_part *part,
			const struct subtree_other *other)
{
	remark(arg, other->type == DT_DIR ? "the directory" : "the file", other->path,
	       "is not a leaf and is left out");
	return 0;
}

void export_remarks(struct export *x)
{
	bool silent = cmd_flag(x->a, "quiet") || x->only || !group_is_lead(x->group);

	for (size_t i = 0; i < x->st.n && !silent; i++)
		if (x->st.part[i].kind == PART_FILES)
			remark(x, "item", x->st.part[i].path, "is not a tree and is left out");
	if (!silent && subtree_each_other(&x->st, remark_other, x) < 0)
		err_clear();
}

/* ---- options ---- */

int export_check_options(const struct cmd_args *a, enum export_format format)
{
	/*
	 * Arrays of a zarr group are chunked and encoded like those of a checkpoint; other formats
	 * leave no choice.
	 */
	static const char *const of_zarr[] = { "zarr", "compression", "chunk_byte_size",
					       "shard_axes", "store_fill_value" };
	const char *cast = cmd_value(a, "cast"), *shard = cmd_value(a, "max-shard-size");
	uint64_t bytes;

	if (cast && dtype_by_user(span_str(cast)) == DTYPE_UNKNOWN)
		return cmd_wrong(a->cmd, "--cast: no dtype '%s'", cast);
	if (shard && (option_parse_size(shard, &bytes) < 0 || bytes == 0))
		return cmd_wrong(a->cmd, "--max-shard-size: '%s' is not a number of bytes", shard);
	if (shard && format != EXPORT_SAFETENSORS)
		return cmd_usage(a->cmd, "--max-shard-size is for safetensors");
	for (size_t i = 0; i < option_count; i++) {
		const struct option *o = &option_table[i];
		bool is_zarrs = false;

		/* Options of the environment are for all commands. */
		if (a->options.from[i] != OPTION_FROM_MOUNT ||
		    !(o->scoped || o->kind == OPTION_RULE))
			continue;
		for (size_t k = 0; k < ARRAY_LEN(of_zarr); k++)
			is_zarrs |= !strcmp(o->name, of_zarr[k]);
		if (!is_zarrs || format != EXPORT_ZARR)
			return cmd_wrong(a->cmd, "-o %s= is for an OUT that is a checkpoint%s%s",
					 o->name, is_zarrs ? " or a zarr group" : "",
					 strcmp(o->name, "dtype") ? "" : "; use --cast");
	}
	return EXIT_OK;
}

static int export_report(struct export *x, const char *out, double seconds)
{
	uint64_t bytes = 0;
	auto_buf text = { 0 };
	char size[32];

	for (size_t i = 0; i < x->n; i++)
		bytes += x->leaf[i].bytes;
	print_size(size, sizeof(size), bytes);
	if (!group_is_lead(x->group))
		return x->n_left_out ? EXIT_FOUND : EXIT_OK;
	if (cmd_flag(x->a, "json")) {
		int r = json_put_str(&text, span_str(out), JSON_PRETTY);

		if (r < 0 || !buf_str(&text))
			return -ENOMEM;
		printf("{\"out\": %s, \"leaves\": %zu, \"bytes\": %llu, \"seconds\": %.3f}\n",
		       buf_str(&text), x->n, (unsigned long long)bytes, seconds);
	} else if (cmd_flag(x->a, "verbose")) {
		printf("%s: %zu %s, %s, %.1f s\n", out, x->n, noun(x->n, "leaf", "leaves"), size,
		       seconds);
	}
	return x->n_left_out ? EXIT_FOUND : EXIT_OK;
}

/* ---- one output from all ranks ---- */

int export_workers(struct export *x, int r, size_t n, const uint64_t *bytes, worker_fn *fn,
		   void *arg)
{
	auto_free int *owner = malloc((n + 1) * sizeof(*owner));

	if (!owner && r >= 0)
		r = fail(-ENOMEM, "cannot share %zu leaves", n);
	for (size_t i = 0; i < n && owner; i++)
		owner[i] = -1;
	if (r >= 0)
		r = group_split(x->group, n, bytes, owner);
	r = group_reduce(x->group, r);
	if (r < 0)
		return r;
	return group_reduce(x->group, group_parallel_for(x->group, x->threads, n, owner, fn, arg));
}

/* Rank 0 begins the output, and sends its temporary name to the others. */
static int begin_output(struct export *x, const char *out, bool is_dir)
{
	auto_free char *theirs = NULL;
	auto_buf text = { 0 };
	uint32_t sum = 0;
	int r = 0;

	/* All ranks must have the same leaves. */
	for (size_t i = 0; i < x->n; i++) {
		sum = zip_crc(sum, x->leaf[i].path, strlen(x->leaf[i].path) + 1);
		sum = zip_crc(sum, &x->leaf[i].bytes, sizeof(x->leaf[i].bytes));
	}

	if (group_is_lead(x->group)) {
		r = atomic_file_begin(x->src.ns->ckpt->io, out, is_dir, cmd_flag(x->a, "force"),
				      &x->out);
		if (r >= 0 && x->group)
			r = buf_addf(&text, "%08x%s", sum, x->out.temp);
	}
	r = group_broadcast(x->group, r, &text);
	if (r < 0 || group_is_lead(x->group))
		return r;
	theirs = text.n > 8 ? span_dup_str(span_of(text.p, 8)) : NULL;
	if (!theirs || !buf_str(&text) || strtoul(theirs, NULL, 16) != sum)
		return fail(-EIO,
			    "'%s' holds other leaves than on rank 0: do they see the same source?",
			    x->a->arg[0]);
	return atomic_file_join(x->src.ns->ckpt->io, buf_str(&text) + 8, is_dir, &x->out);
}

/* Open the source and list its leaves on this rank, before the ranks compare their results. */
static int export_prepare(struct export *x, const char *path, const char *out, bool is_dir,
			  enum export_format format)
{
	struct err_note note;
	int r = select_make(x->a, &x->only);

	if (r < 0)
		return r;
	/* In a mount, open the stored checkpoint, in which arrays are not files. */
	r = source_open_stored(x->a, path, &x->src);
	if (r == 0)
		r = source_open(x->a, path, &x->src);
	err_save(r, &note);
	if ((r == -EINVAL || r == -ENOTDIR) && input_is_foreign(path))
		return fail(-EINVAL,
			    "'%s' is not a checkpoint: make one of it first (convert '%s' "
			    "SOME/DIRECTORY)",
			    path, path);
	if (r < 0)
		return err_restore(&note);
	x->threads = MAX(1u, pool_threads(x->src.ns->ckpt->pool));
	/* Without other ranks, report an existing name before the leaves are opened. */
	if (!x->group)
		r = begin_output(x, out, is_dir);
	return r < 0 ? r : export_list_leaves(x, format);
}

static int export_all(struct export *x, const char *path, const char *out,
		      enum export_format format)
{
	bool is_dir = format == EXPORT_NPY ? !span_ends(span_str(out), span_str(".npy")) :
					     format == EXPORT_ZARR || x->max_shard;
	int r = group_reduce(x->group, export_prepare(x, path, out, is_dir, format));

	if (r < 0)
		return r;
	if (x->group)
		r = group_reduce(x->group, begin_output(x, out, is_dir));
	if (r < 0)
		return r;
	r = group_reduce(x->group, formats[format].run(x));
	if (r < 0)
		return r;
	r = interrupt_check();
	if (r >= 0 && x->group)
		r = atomic_file_sync(&x->out);
	r = group_reduce(x->group, r);
	if (r < 0)
		return r;
	r = group_broadcast(x->group, group_is_lead(x->group) ? atomic_file_commit(&x->out) : 0,
			    NULL);
	return r < 0 ? r : export_report(x, out, progress_seconds(&x->progress));
}

int export_run(struct cmd_args *a, struct rank_group *group, const char *path, const char *out,
	       enum export_format format)
{
	const char *cast = cmd_value(a, "cast"), *shard = cmd_value(a, "max-shard-size");
	struct export x = { .a = a, .group = group };
	int r;

	x.casts.restore = a->options.restore_dtype;
	x.casts.numbers = format == EXPORT_SAFETENSORS;
	if (cast)
		x.casts.cast = dtype_by_user(span_str(cast));
	if (shard)
		option_parse_size(shard, &x.max_shard);
	bound_memory(a);
	interrupt_catch();
	progress_begin(&x.progress, a->cmd->name, cmd_flag(a, "quiet"));
	group_work_begin(group, &x.progress);
	r = export_all(&x, path, out, format);
	group_work_end(group);
	progress_end(&x.progress);
	atomic_file_release(&x.out);
	leaf_table_release(&x.leaf_table);
	subtree_release(&x.st);
	if (x.src.ns)
		source_close(&x.src);
	free(x.leaf);
	free(x.left_out);
	arena_release(&x.arena);
	return r < 0 ? err_at(r, "'%s' is not written", out) : r;
}
