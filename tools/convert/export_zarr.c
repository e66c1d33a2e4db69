/* SPDX-License-Identifier: Apache-2.0 */
/*
 * export_zarr.c - exports a zarr group with an array for each leaf, v2 or v3, compressed as -o
 * says.
 *
 * Chunks are copied unchanged if their format is the same. Strings and the tree manifest are
 * attributes of the group.
 */
#include <fcntl.h>

#include "core/base/array.h"
#include "core/base/err.h"
#include "core/base/path.h"
#include "core/dtype/cast.h"
#include "core/zarr/write/zarr_copy.h"
#include "core/step/layout.h"
#include "handlers/draft/draft_array.h"
#include "tools/convert/export.h"
#include "tools/cli/interrupt.h"

struct zarr_out {
	struct export *x;
	struct io_dir *dir; /* directory of the output; owned by the store */
	struct item_store *store;
	unsigned format;
};

/* ---- one array ---- */

static int array_layout(const struct zarr_out *o, const struct array_type *t,
			struct array_layout *ret)
{
	const struct save_opts *s = &o->x->a->options.save;
	struct array_layout a = { .format = o->format,
				  .item = dtype_info(t->dtype)->size,
				  .omit_fill = !s->store_fill_value,
				  .asked = s->compression };
	const struct layout cut = { .rank = t->rank,
				    .shape = t->shape,
				    .write_shape = t->shape,
				    .item_size = a.item,
				    .has_chunk_bytes = s->chunk_byte_size > 0,
				    .chunk_bytes = s->chunk_byte_size,
				    .n_axes = s->shard_axes.n,
				    .axes = s->shard_axes.axis };
	int r = 0;

	a.asked.summed = s->crc32c && o->format == 3;
	if (s->chunk_byte_size || s->shard_axes.n)
		r = layout_chunk_shape(&cut, a.chunk);
	else
		array_default_chunk(t->rank, t->shape, t->shape, a.item, false, a.chunk);
	if (r < 0)
		return r;
	array_resolve(&o->x->src.ns->drafts, t, false, &a);
	*ret = a;
	return 0;
}

struct stream {
	struct zarr_out *o;
	const struct format *format;
	bool is_sample; /* the bytes are read again later */
};

static int read_format(void *arg, uint64_t off, size_t n, void *p)
{
	const struct stream *s = arg;
	int r = interrupt_check();

	if (r < 0)
		return r;
	r = format_copy(s->format, s->o->x->src.ns->ckpt->cache, off, n, p);
	if (!s->is_sample)
		progress_add(&s->o->x->progress, n);
	return r;
}

/* Copy stored chunks unchanged, with their grid: 1; 0: not possible. */
static int copy_chunks(struct zarr_out *o, struct zarr *z, struct array_layout a, struct kv *kv)
{
	const struct array_type t = zarr_meta_type(&z->meta);
	const struct save_opts *s = &o->x->a->options.save;
	struct compression stored;
	auto_buf json = { 0 };
	int r = 1;

	/* The user asked for another grid, or another compression. */
	if (s->chunk_byte_size || s->shard_axes.n)
		return 0;
	memcpy(a.chunk, z->leaf_chunk, sizeof(a.chunk));
	if (!save_opts_given(s, "compression") && compression_of(&z->leaf->codecs, &stored) &&
	    stored.summed == a.asked.summed)
		a.compression = stored;
	else
		r = array_takes_stored(&o->x->src.ns->drafts, &a, z);
	if (r <= 0)
		return r;
	r = array_json(&a, &t, &json);
	return r < 0 ? r :
		       zarr_copy(&o->x->src.ns->ckpt->write_env, z, kv, buf_span(&json),
				 a.omit_fill ? ZARR_FILL_OMIT : ZARR_FILL_STORE);
}

static int write_chunks(struct zarr_out *o, const struct format *f, const struct export_leaf *l,
			struct array_layout *a, struct kv *kv)
{
	struct stream s = { o, f, true };
	auto_buf json = { 0 };
	int r = array_choose(&o->x->src.ns->drafts, a, &l->array, read_format, &s);

	s.is_sample = false;
	if (r < 0)
		return r;
	r = array_json(a, &l->array, &json);
	return r < 0 ? r :
		       zarr_write_all(&o->x->src.ns->ckpt->write_env, kv, buf_span(&json),
				      a->omit_fill ? ZARR_FILL_OMIT : ZARR_FILL_STORE, read_format,
				      &s);
}

/* Write the array anew, after what the attempt to copy chunks has written is removed. */
static int write_anew(struct zarr_out *o, const struct format *f, const struct export_leaf *l,
		      struct array_layout *a, struct kv *first, struct kv **ret)
{
	auto_buf entry = { 0 };
	int r = item_store_leaf_entry(first, &entry);

	if (r < 0 || !buf_str(&entry))
		return r < 0 ? r : -ENOMEM;
	r = io_remove_tree(o->x->out.temp_dir, buf_str(&entry));
	if (r < 0)
		return r;
	r = item_store_leaf(o->store, ret);
	return r < 0 ? r : write_chunks(o, f, l, a, *ret);
}

static int put_zarr_array(struct zarr_out *o, const struct export_leaf *l)
{
	auto_of(kv) struct kv *kv = NULL, *second = NULL;
	auto_format f = { 0 };
	struct array_layout a;
	auto_buf key = { 0 };
	int r = leaf_open_format(l->info->part->item, l->info->leaf, NAME_EXT_BIN, l->array.dtype,
				 &f);

	if (r < 0)
		return r;
	r = array_layout(o, &l->array, &a);
	if (r < 0)
		return r;
	r = item_store_leaf(o->store, &kv);
	if (r < 0)
		return r;
	r = f.view.plain ? copy_chunks(o, f.value.array, a, kv) : 0;
	if (r == 1)
		progress_add(&o->x->progress, f.size);
	if (r == 0)
		r = write_anew(o, &f, l, &a, kv, &second);
	if (r < 0)
		return r;
	r = tree_manifest_key(l->info->part, l->info->leaf, &style_paths, &key);
	if (r < 0)
		return r;
	/* A tree that is one bare leaf becomes an array in the group, too. */
	return item_store_leaf_place(second ? second : kv, buf_span(&key));
}

static int export_array(void *arg, size_t i, struct worker *worker)
{
	struct zarr_out *o = arg;
	const struct export_leaf *l = &o->x->leaf[i];
	/* Texts and None are in the attributes. */
	int r = l->info->kind == VALUE_ARRAY ? put_zarr_array(o, l) : 0;

	return r < 0 ? err_at(r, "leaf '%s'", l->path) : 0;
}

/* ---- groups ---- */

static const char *group_file(const struct zarr_out *o)
{
	return o->format == 3 ? "zarr.json" : ".zgroup";
}

#define GROUP_V2 "{\n    \"zarr_format\": 2\n}"
#define GROUP_V3 "{\n  \"zarr_format\": 3,\n  \"node_type\": \"group\",\n  \"attributes\": {"

static int put_group(struct zarr_out *o, const char *path)
{
	auto_free char *name = NULL;
	int r = path_join(path, span_str(group_file(o)), &name);

	return r < 0 ? r :
		       export_text(o->x, name,
				   span_str(o->format == 3 ? GROUP_V3 "}\n}\n" : GROUP_V2));
}

/* The attributes of the top group, which may be long. */
struct attributes {
	struct io_file *file;
	uint64_t at;
};

static int put_piece(void *arg, struct span piece)
{
	struct attributes *a = arg;
	int r = io_write_exact(a->file, piece.p, piece.n, a->at);

	a->at += piece.n;
	return r;
}

static int put_top(struct zarr_out *o)
{
	struct export *x = o->x;
	const char *begin = o->format == 3 ? GROUP_V3 "\"" TREE_MANIFEST_KEY "\": " :
					     "{\n    \"" TREE_MANIFEST_KEY "\": ";
	auto_of(io_file) struct io_file *file = NULL;
	struct attributes a = { 0 };
	int r = o->format == 3 ? 0 : put_group(o, ".");

	if (r < 0)
		return r;
	r = io_file_open(x->out.temp_dir, o->format == 3 ? group_file(o) : ".zattrs",
			 O_RDWR | O_CREAT | O_EXCL, IO_FILE_MODE, &file);
	if (r < 0)
		return r;
	a.file = file;
	r = put_piece(&a, span_str(begin));
	if (r < 0)
		return r;
	r = tree_manifest_write(&x->st, export_only(x), &x->casts, &style_paths, put_piece, &a);
	return r < 0 ? r : put_piece(&a, span_str(o->format == 3 ? "}\n}\n" : "\n}"));
}

/* Write a group for every directory of a path to an array, once. */
static int put_groups(struct zarr_out *o)
{
	auto_free const char **dir = NULL;
	size_t n = 0, cap = 0;
	int r = 0;

	for (size_t i = 0; i < o->x->n; i++)
		for (const char *at = o->x->leaf[i].path; (at = strchr(at, '/')); at++) {
			char *one = (char *)arena_dup(&o->x->arena,
						      span_of(o->x->leaf[i].path,
							      (size_t)(at - o->x->leaf[i].path)));

			if (!one || !array_reserve(dir, cap, n + 1))
				return fail(-ENOMEM, "cannot list groups");
			dir[n++] = one;
		}
	if (n)
		qsort(dir, n, sizeof(*dir), array_by_text);
	for (size_t i = 0; i < n && r >= 0; i++) {
		auto_buf inside = { 0 };

		if (i && !strcmp(dir[i], dir[i - 1]))
			continue;
		r = buf_addf(&inside, "%s/", dir[i]);
		if (r < 0)
			return r;
		r = export_make_dirs(o->x, buf_str(&inside));
		if (r < 0)
			return r;
		r = put_group(o, dir[i]);
	}
	return r;
}

/*
 * Whether the name is one of zarr's own files, in either format: a reader of the output looks for
 * both.
 */
static bool is_taken(struct span name)
{
	static const char *const names[] = { "zarr.json", ".zarray", ".zattrs", ".zgroup" };

	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		if (span_eq(name, span_str(names[i])))
			return true;
	return false;
}

static int export_zarr_check_names(const struct export *x)
{
	for (size_t i = 0; i < x->n; i++) {
		const struct export_leaf *l = &x->leaf[i];
		auto_buf key = { 0 };
		int r = tree_manifest_key(l->info->part, l->info->leaf, &style_paths, &key);
		const char *end;

		if (r < 0 || !buf_str(&key))
			return fail(-ENOMEM, "cannot list the leaves");
		for (const char *at = buf_str(&key); at; at = end ? end + 1 : NULL) {
			end = strchr(at, '/');
			/* Texts and None are in the attributes, where any name is possible. */
			if ((end || l->info->kind == VALUE_ARRAY) &&
			    is_taken(end ? span_of(at, (size_t)(end - at)) : span_str(at)))
				return fail(
					-EINVAL,
					"'%s': zarr has no place for this key, which is a name of "
					"its own",
					l->path);
		}
	}
	return 0;
}

/* Open the store of this rank, with temporary names that only this rank uses. */
static int open_store(struct export *x, struct item_store **ret)
{
	const struct rank_group *t = x->group;
	/* The whole output is synced before it is renamed. */
	const struct item_store_opts opts = {
		.ocdbt = false,
		.unsynced = true,
		.first_leaf = t ? UINT32_MAX / (unsigned)t->peers->size * (unsigned)t->peers->rank :
				  0,
	};
	auto_of(io_dir) struct io_dir *dir = NULL;
	int r = io_dir_sub(x->out.dir, x->out.temp_name, &dir);

	if (r < 0)
		return r;
	r = item_store_new(dir, &opts, ret);
	if (r < 0)
		return r;
	take(dir);
	return r;
}

int export_zarr(struct export *x)
{
	struct zarr_out o = { .x = x, .format = x->a->options.save.zarr == SAVE_ZARR3 ? 3 : 2 };
	auto_free uint64_t *bytes = calloc(x->n + 1, sizeof(*bytes));
	auto_of(item_store) struct item_store *store = NULL;
	int r = bytes ? open_store(x, &store) : fail(-ENOMEM, "cannot list %zu leaves", x->n);

	for (size_t i = 0; i < x->n && bytes; i++)
		bytes[i] = x->leaf[i].bytes;
	export_remarks(x);
	x->src.ns->ckpt->write_env.check = interrupt_check_arg;
	o.store = store;
	if (r >= 0)
		r = export_zarr_check_names(x);
	/* One rank makes the groups. */
	if (r >= 0 && group_is_lead(x->group))
		r = put_top(&o);
	if (r >= 0 && group_is_lead(x->group))
		r = put_groups(&o);
	return export_workers(x, r, x->n, bytes, export_array, &o);
}
