/* SPDX-License-Identifier: Apache-2.0 */
/*
 * draft_parts.c - one array in several files, each with a box of it.
 *
 * If the chunk grids of all parts agree, their chunks are used unchanged, renumbered for the whole
 * array. If not, the array is encoded again from all parts.
 */
#include "core/base/err.h"
#include "core/base/lock.h"
#include "core/base/log.h"
#include "handlers/plan/draft_plan.h"

/* Parts that do not overlap and have as many elements as the whole array tile it. */
static int plan_check_tiling(struct draft_node **parts, const struct draft_part *p, size_t n)
{
	auto_free struct box *box = calloc(n, sizeof(*box));
	auto_free char *what = span_dup_str(p[0].stem);

	if (!box || !what)
		return fail(-ENOMEM, "cannot look at %zu parts", n);
	for (size_t i = 0; i < n; i++) {
		if (p[i].rank != p[0].rank ||
		    memcmp(p[i].whole, p[0].whole, p[0].rank * sizeof(*p[0].whole)))
			return fail(-EINVAL,
				    "parts '%s' and '%s' are of arrays of different shapes",
				    parts[0]->name, parts[i]->name);
		memcpy(box[i].start, p[i].start, sizeof(box[i].start));
		memcpy(box[i].extent, p[i].extent, sizeof(box[i].extent));
		box[i].rank = -1;
		box[i].name = parts[i]->name;
	}
	return boxes_check(box, n, p[0].rank, p[0].whole, what);
}

/* Check that the file has the box that its name says, and the dtype of the other parts. */
static int parts_check_part(struct draft_node *n, const struct draft_part *p,
			    const struct draft_node *first, enum dtype *dtype)
{
	const struct draft_array *a;
	int r = draft_file_seal(n->file);

	if (r < 0)
		return err_at(r, "'%s'", n->name);
	auto_unlock pthread_mutex_t *held = lock_hold(&n->file->lock);

	a = n->file->n_arrays == 1 ? &n->file->array[0] : NULL;
	if (!a || a->rank != p->rank || memcmp(a->shape, p->extent, p->rank * sizeof(uint64_t)))
		return fail(-EINVAL, "'%s': the array in it has not the shape of the box", n->name);
	if (*dtype != DTYPE_UNKNOWN && a->stored != *dtype)
		return fail(-EINVAL, "'%s' is of dtype %s, and '%s' of %s", n->name,
			    dtype_info(a->stored)->name, first->name, dtype_info(*dtype)->name);
	*dtype = a->stored;
	return 0;
}

/* Get the boxes of the parts, their dtype when the plan is strict, and the key of the array. */
static int parts_look(struct plan *p, const struct tree_node *parent, struct draft_node **parts,
		      size_t n, struct draft_part *part, enum dtype *dtype, struct buf *key)
{
	int r = 0;

	for (size_t i = 0; i < n && r >= 0; i++)
		r = draft_part_of(span_str(parts[i]->name), &part[i]);
	/* Other ranks may have the other parts. */
	if (r >= 0 && p->strict && !p->partial)
		r = plan_check_tiling(parts, part, n);
	for (size_t i = 0; i < n && r >= 0 && p->strict; i++)
		r = parts_check_part(parts[i], &part[i], parts[0], dtype);
	return r < 0 || !parent ? r : plan_key(p, parent, parts[0], part[0].stem, false, key);
}

int plan_parts(struct plan *p, struct tree_node *parent, struct draft_node **parts, size_t n)
{
	auto_free struct draft_part *part = calloc(n, sizeof(*part));
	enum dtype dtype = DTYPE_UNKNOWN;
	struct plan_leaf *l;
	auto_buf key = { 0 };
	int r;

	if (!part)
		return fail(-ENOMEM, "cannot look at %zu parts", n);
	r = parts_look(p, parent, parts, n, part, &dtype, &key);
	if (r == -EINVAL && !p->strict) {
		err_clear();
		return 0;
	}
	if (r < 0)
		return r;
	r = plan_leaf_new(p, parent, parts[0], buf_span(&key), &l);
	if (r < 0 || !l)
		return r;
	l->part = malloc(n * sizeof(struct draft_node *));
	if (!l->part)
		return fail(-ENOMEM, "cannot look at %zu parts", n);
	memcpy(l->part, parts, n * sizeof(struct draft_node *));
	l->n_parts = n;
	r = plan_take_shape(p, (struct array_type){ dtype, part[0].rank, part[0].whole }, &l->desc);
	return r < 0 ? r : plan_array(p, l, span_of(NULL, 0));
}

/* ---- for the commit ---- */

/* Whether all parts have the same chunk grid, aligned with the grid of the whole array. */
static bool aligned(const struct plan_leaf *l, const struct draft_part *p)
{
	const struct array_layout *first = &l->part[0]->file->array[0].layout;

	for (size_t i = 0; i < l->n_parts; i++) {
		const struct draft_array *a = &l->part[i]->file->array[0];

		if (memcmp(&a->layout, first, sizeof(*first)))
			return false;
		for (unsigned k = 0; k < l->desc.array.rank; k++)
			if (p[i].start[k] % first->chunk[k] ||
			    (p[i].extent[k] % first->chunk[k] &&
			     p[i].start[k] + p[i].extent[k] != p[i].whole[k]))
				return false;
	}
	return true;
}

/* Encode the array from its parts, each opened once so that all rows of a chunk find it decoded. */
static int parts_join(struct plan_leaf *l, const struct draft_part *part)
{
	auto_free struct zarr **opened = calloc(l->n_parts, sizeof(struct zarr *));
	auto_free struct box *box = calloc(l->n_parts, sizeof(*box));
	struct box_reader reader = { .box = box,
				     .n = l->n_parts,
				     .array = l->desc.array,
				     .read = box_read_zarr,
				     .arg = opened };
	int r = 0;

	if (!opened || !box)
		return fail(-ENOMEM, "cannot join %zu parts", l->n_parts);
	for (size_t i = 0; i < l->n_parts && r >= 0; i++) {
		const struct draft_node *node = l->part[i];

		memcpy(box[i].start, part[i].start, sizeof(box[i].start));
		memcpy(box[i].extent, part[i].extent, sizeof(box[i].extent));
		r = zarr_open(&node->draft->env->ckpt->env, node->file->array[0].kv,
			      span_of(NULL, 0), cache_owner(), 0, &opened[i]);
	}
	r = r < 0 ? r : plan_store(l, &l->desc.array, boxes_read, &reader);
	for (size_t i = 0; i < l->n_parts; i++)
		zarr_unref(opened[i]);
	return r;
}

int plan_join_parts(struct plan *p, struct plan_leaf *l, bool *ret_shifted)
{
	auto_free struct draft_part *part = calloc(l->n_parts, sizeof(*part));
	int r = 0;

	if (!part)
		return fail(-ENOMEM, "cannot join %zu parts", l->n_parts);
	for (size_t i = 0; i < l->n_parts && r >= 0; i++)
		r = draft_part_of(span_str(l->part[i]->name), &part[i]);
	if (r < 0)
		return r;
	/* Only in a database can chunks be renamed without being copied. */
	*ret_shifted = p->opts.ocdbt && aligned(l, part);
	trace(TRACE_LEAF, "%zu parts of '%s': %s", l->n_parts, l->source->name,
	      *ret_shifted ? "by reference" : "encoded again");
	return *ret_shifted ? 0 : parts_join(l, part);
}
