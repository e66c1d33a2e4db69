/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lib_database.c - writes a database of arrays, or of parts of them: what one process of a program
 * that writes checkpoints by itself has of an item.
 */
#include <fcntl.h>

#include "core/commit/seal.h"
#include "core/dtype/strided.h"
#include "core/zarr/write/zarr_boxes.h"
#include "handlers/draft/draft_array.h"
#include "handlers/draft/draft_env.h"
#include "tools/convert/atomic_step.h"
#include "tools/lib/lib.h"

struct database {
	struct cmd_args args;
	struct ckpt *ckpt; /* of the directory that the database is going to be in */
	struct item_store *store;
	const struct pytreefs_stored_array *array;
	size_t n;
	struct commit_leaf *leaf; /* n each */
	struct zarr_boxes *boxes;
	struct zarr_box *box; /* of all arrays */
	uint64_t *stride;     /* of all boxes, LIMIT_RANK each */
	uint64_t bytes;       /* of all elements in memory */
	struct lib_work work;
};

static int database_alloc(struct database *b)
{
	size_t n_boxes = 0;

	for (size_t i = 0; i < b->n; i++)
		n_boxes += b->array[i].n_parts;
	b->boxes = calloc(b->n + 1, sizeof(*b->boxes));
	b->box = calloc(n_boxes + 1, sizeof(*b->box));
	b->stride = calloc(n_boxes + 1, LIMIT_RANK * sizeof(*b->stride));
	b->leaf = b->boxes && b->box && b->stride ? calloc(b->n + 1, sizeof(*b->leaf)) : NULL;
	return b->leaf ? 0 : fail(-ENOMEM, "cannot write %zu arrays", b->n);
}

/* ---- one array ---- */

/*
 * Copy elements of the first box in C order, of which the compression is chosen: an array_read_fn.
 * They are copied row by row.
 */
static int read_first(void *arg, uint64_t off, size_t n, void *p)
{
	const struct zarr_boxes *a = arg;
	const struct zarr_box *box = a->box;
	unsigned rank = a->z->meta.rank;
	size_t item = dtype_info(a->z->meta.dtype)->size;
	uint64_t first = off / item, left = n / item;
	uint8_t *to = p;

	while (left > 0) {
		struct strided row = { .have = a->have, .want = a->z->meta.dtype };
		uint64_t at = first, from = 0, count = 1;

		if (rank)
			count = MIN(left, box->count[rank - 1] - first % box->count[rank - 1]);
		for (unsigned i = rank; i > 0; i--) {
			from += at % box->count[i - 1] * box->stride[i - 1];
			at /= box->count[i - 1];
		}
		strided_add(&row, count, rank ? box->stride[rank - 1] : 0, (int64_t)item);
		strided_copy(&row, (const uint8_t *)box->p + from, to);
		to += count * item;
		first += count;
		left -= count;
	}
	return 0;
}

static int set_box(const struct pytreefs_stored_array *a, const struct pytreefs_part *part,
		   uint64_t item, uint64_t *stride, struct zarr_box *ret)
{
	for (size_t i = a->ndim; i > 0; i--) {
		int64_t step = part->strides ? part->strides[i - 1] : (int64_t)item;

		if (step < 0)
			return fail(-EINVAL, "elements in reverse order on axis %zu", i - 1);
		stride[i - 1] = (uint64_t)step;
		item *= part->shape[i - 1];
	}
	*ret = (struct zarr_box){ part->start, part->shape, stride, part->data };
	return 0;
}

/* Open the array that a document describes; every process has one, whoever stores it. */
static int lib_database_open_array(struct database *b, struct kv *kv, struct span json,
				   struct zarr_boxes *boxes)
{
	bool is_v2 = b->args.options.save.zarr == SAVE_ZARR2;
	struct zarr *z = NULL;
	int r = kv_put(kv, span_str(is_v2 ? ".zarray" : "zarr.json"), json);

	if (r < 0)
		return r;
	r = zarr_open(&b->ckpt->env, kv, span_of(NULL, 0), cache_owner(), 0, &z);
	if (r < 0)
		return r;
	zarr_unref((struct zarr *)boxes->z);
	boxes->z = z;
	return 0;
}

static int check_array(const struct pytreefs_stored_array *a, enum dtype *ret_stored,
		       enum dtype *ret_have)
{
	*ret_stored = a->dtype ? dtype_by_user(span_str(a->dtype)) : DTYPE_UNKNOWN;
	*ret_have = a->memory_dtype ? dtype_by_user(span_str(a->memory_dtype)) : *ret_stored;
	if (*ret_stored == DTYPE_UNKNOWN || *ret_have == DTYPE_UNKNOWN)
		return fail(-EINVAL, "'%s' is not a dtype",
			    *ret_stored == DTYPE_UNKNOWN && a->dtype ? a->dtype :
			    a->memory_dtype                          ? a->memory_dtype :
								       "");
	if (a->ndim > LIMIT_RANK)
		return fail(-EINVAL, "an array of %zu axes, the limit is %d", a->ndim, LIMIT_RANK);
	for (size_t i = 0; i < a->ndim; i++)
		if (!a->shape[i] || !a->chunk[i])
			return fail(-EINVAL, "an array without elements, or a chunk");
	return 0;
}

static int prepare_array(struct database *b, size_t i, size_t first_box)
{
	const struct draft_env env = { .ckpt = b->ckpt, .options = &b->args.options };
	const struct pytreefs_stored_array *a = &b->array[i];
	const struct save_opts *o = &b->args.options.save;
	struct zarr_boxes *boxes = &b->boxes[i];
	struct commit_leaf *leaf = &b->leaf[i];
	struct array_layout layout;
	struct array_type t = { .rank = (unsigned)a->ndim, .shape = a->shape };
	auto_buf json = { 0 };
	int r = check_array(a, &t.dtype, &boxes->have);

	if (r < 0)
		return r;
	r = item_store_leaf(b->store, &leaf->kv);
	if (r < 0)
		return r;
	leaf->param = span_str(a->name);
	leaf->no_document = a->flags & PYTREEFS_ARRAY_NO_METADATA;
	boxes->kv = leaf->kv;
	boxes->box = b->box + first_box;
	boxes->n = a->n_parts;
	for (size_t k = 0; k < a->n_parts && r >= 0; k++) {
		r = set_box(a, &a->part[k], dtype_info(boxes->have)->size,
			    b->stride + (first_box + k) * LIMIT_RANK, b->box + first_box + k);
	}
	if (r < 0)
		return r;
	layout = (struct array_layout){ .format = o->zarr == SAVE_ZARR3 ? 3 : 2,
					.item = dtype_info(t.dtype)->size,
					.asked = o->compression };
	layout.asked.summed = o->crc32c && layout.format == 3;
	for (size_t k = 0; k < a->ndim; k++)
		layout.chunk[k] = a->chunk[k];
	array_resolve(&env, &t, (a->flags & PYTREEFS_ARRAY_SHARED) || !a->n_parts, &layout);
	r = array_json(&layout, &t, &json);
	if (r < 0)
		return r;
	r = lib_database_open_array(b, leaf->kv, buf_span(&json), boxes);
	if (r < 0)
		return r;
	r = zarr_boxes_check(boxes);
	if (r < 0 || layout.compression.kind != COMPRESSION_AUTO)
		return r;
	r = array_choose(&env, &layout, &t, read_first, boxes);
	json.n = 0;
	if (r < 0)
		return r;
	r = array_json(&layout, &t, &json);
	return r < 0 ? r : lib_database_open_array(b, leaf->kv, buf_span(&json), boxes);
}

struct preparing {
	struct database *b;
	size_t i, first_box;
};

static int prepare_one(void *arg)
{
	const struct preparing *p = arg;
	int r = lib_work_check(&p->b->work);

	if (r < 0)
		return r;
	r = prepare_array(p->b, p->i, p->first_box);
	return r < 0 ? err_at(r, "'%s'", p->b->array[p->i].name) : 0;
}

/* ---- the database ---- */

static int write_values(void *arg)
{
	struct database *b = arg;
	struct commit_item item = { .store = b->store, .leaves = b->leaf, .n_leaves = b->n };
	struct commit c = { .ckpt = b->ckpt };
	auto_free struct preparing *p = calloc(b->n + 1, sizeof(*p));
	size_t first = 0;
	int r;

	if (!p)
		return fail(-ENOMEM, "cannot write %zu arrays", b->n);
	for (size_t i = 0; i < b->n; i++) {
		p[i] = (struct preparing){ b, i, first };
		first += b->array[i].n_parts;
	}
	/* At the same time, since some are sampled. */
	r = pool_run(b->ckpt->pool, prepare_one, p, sizeof(*p), b->n);
	if (r < 0)
		return r;
	r = zarr_write_boxes(&b->ckpt->write_env, b->boxes, b->n, &b->work.done);
	if (r < 0)
		return r;
	r = seal_database(&c, &item);
	if (r < 0)
		return r;
	r = io_dirop(item_store_dir(b->store), IO_SYNC_DIR, ".", NULL, 0);
	return r < 0 ? r : io_dirop(b->ckpt->source, IO_SYNC_DIR, ".", NULL, 0);
}

static int write_into(struct database *b, const char *name,
		      const struct pytreefs_progress *progress)
{
	struct item_store_opts store = {
		.ocdbt = true, .target_size = b->args.options.save.target_data_file_size
	};
	struct lib_progress report = { .p = progress, .total = b->bytes };
	struct io_dir *dir = NULL;
	int r = io_dir_sub(b->ckpt->source, name, &dir);

	if (r < 0)
		return r;
	r = item_store_new(dir, &store, &b->store);
	if (r < 0) {
		io_dir_close(dir);
		return r;
	}
	b->ckpt->write_env.check = lib_work_check;
	b->ckpt->write_env.check_arg = &b->work;
	r = ckpt_start(b->ckpt);
	if (r < 0)
		return r;
	r = lib_call(&b->work, &report, write_values, b);
	return r < 0 ? r : lib_progress(&report, report.total);
}

static int count_bytes(struct database *b)
{
	for (size_t i = 0; i < b->n; i++) {
		const struct pytreefs_stored_array *a = &b->array[i];
		enum dtype stored, have;
		int r = check_array(a, &stored, &have);

		if (r < 0)
			return err_at(r, "'%s'", a->name);
		for (size_t k = 0; k < a->n_parts; k++) {
			uint64_t bytes = dtype_info(have)->size;

			for (size_t axis = 0; axis < a->ndim; axis++)
				bytes *= a->part[k].shape[axis];
			b->bytes += bytes;
		}
	}
	return 0;
}

static int write_database(struct database *b, const char *path, const char *options,
			  const struct pytreefs_progress *progress)
{
	auto_free char *parent = NULL, *name = NULL;
	struct err_note why;
	int r = options_init(&b->args.options);

	if (r < 0)
		return r;
	r = lib_options(&b->args.options, options);
	if (r < 0)
		return r;
	if (!b->n && !*path)
		return 0;
	r = count_bytes(b);
	if (r < 0)
		return r;
	r = database_alloc(b);
	if (r < 0)
		return r;
	r = path_split(path, &parent, &name);
	if (r < 0)
		return r;
	b->args.options.shape = SHAPE_ROOT;
	r = ns_ckpt(parent, &b->args.options, &b->ckpt);
	if (r < 0)
		return r;
	r = io_dirop(b->ckpt->source, IO_MKDIR, name, NULL, IO_DIR_MODE);
	if (r < 0)
		return r;
	r = write_into(b, name, progress);
	if (r >= 0)
		return r;
	err_save(r, &why);
	io_remove_tree(b->ckpt->source, name);
	return err_restore(&why);
}

int pytreefs_database_write(const char *path, const char *options,
			    const struct pytreefs_stored_array *array, size_t n,
			    const struct pytreefs_progress *progress)
{
	struct database b = { .array = array, .n = n };
	int r;

	lib_init();
	lib_begin_pid(getpid(), "database", path);
	r = write_database(&b, path, options, progress);
	lib_end(r);
	for (size_t i = 0; b.leaf && i < n; i++) {
		zarr_unref((struct zarr *)b.boxes[i].z);
		kv_free(b.leaf[i].kv);
	}
	item_store_free(b.store);
	ckpt_close(b.ckpt);
	options_release(&b.args.options);
	free(b.leaf);
	free(b.boxes);
	free(b.box);
	free(b.stride);
	return r;
}
