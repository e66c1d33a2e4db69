/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lib_request.c - read many: names -> views of arrays -> memory of the caller.
 */
#include <string.h>

#include "core/base/blocks.h"
#include "handlers/namespace/node_tree.h"
#include "tools/lib/lib.h"

/* ---- one request ---- */

/* Its box, on top of what the name asks for. */
static int narrow(const struct pytreefs_request *q, const struct name_view *name,
		  struct zarr_view *v)
{
	int r = 0;

	if (name->has_box)
		return fail(-EINVAL, "a box beside the box of the name");
	if (q->n_box != v->rank)
		return fail(-EINVAL, "a box of %zu axes of an array of %u", q->n_box, v->rank);
	for (unsigned i = 0; i < v->rank && r >= 0; i++) {
		const struct pytreefs_slice *s = &q->box[i];

		if (s->count && !s->step)
			return fail(-EINVAL, "axis %u has step 0", i);
		r = zarr_view_slice(v, i, s->start, s->count ? s->step : 1, s->count, s->drop != 0);
	}
	return r < 0 ? r : zarr_view_finish(v);
}

static int request_view(struct node_leaf *l, const struct pytreefs_request *q, struct value *v,
			struct zarr_view *ret)
{
	struct name_view name;
	int r = node_leaf_value(l, v, ret);
	enum dtype to = DTYPE_UNKNOWN;

	if (r < 0 || v->kind != VALUE_ARRAY)
		return r < 0 || !(q->box || q->dtype) ?
			       r :
			       fail(-EINVAL, "only arrays have boxes and casts");
	if (q->box) {
		r = name_view_parse(span_str(l->node.name), &name);
		if (r >= 0)
			r = narrow(q, &name, ret);
	}
	if (r >= 0 && q->dtype) {
		to = dtype_by_user(span_str(q->dtype));
		r = to == DTYPE_UNKNOWN ? fail(-EINVAL, "'%s' is not a dtype", q->dtype) :
					  zarr_view_cast(ret, to);
	}
	return r;
}

/* ---- the job ---- */

struct job {
	struct pytreefs *ck;
	struct pytreefs_request *q;
	struct lib_progress progress;
	uint64_t done;
};

static int check_size(const struct pytreefs_request *q, uint64_t bytes)
{
	if (q->size == bytes)
		return 0;
	return fail(-EINVAL, "'%s' has %llu bytes, the request has memory for %llu", q->name,
		    (unsigned long long)bytes, (unsigned long long)q->size);
}

static int read_one(struct job *j, struct pytreefs_request *q)
{
	auto_node *n = NULL;
	auto_value v = { 0 };
	struct zarr_view view;
	int r = lib_node(j->ck, q->name, &n);

	if (r >= 0 && n->ops != &node_leaf_ops)
		r = fail(-EINVAL, "'%s' is not a leaf", q->name);
	if (r >= 0)
		r = request_view(container_of(n, struct node_leaf, node), q, &v, &view);
	if (r < 0)
		return r;
	if (v.kind != VALUE_ARRAY) {
		r = check_size(q, v.text.n);
		if (r >= 0 && v.text.n)
			memcpy(q->to, v.text.p, v.text.n);
		return r;
	}
	if (q->strides)
		return fail(-ENOSYS, "strides of results are not implemented yet");
	r = check_size(q, view.bytes);
	for (uint64_t off = 0; off < view.bytes && r >= 0; off += 4 * MiB) {
		size_t part = (size_t)MIN(4 * MiB, view.bytes - off);

		r = zarr_read_into(v.array, &view, off, part, (uint8_t *)q->to + off);
		j->done += part;
		if (r >= 0)
			r = lib_progress(&j->progress, j->done);
	}
	return r;
}

static int read_all(struct job *j, size_t n)
{
	struct err_note first = { 0 };

	for (size_t i = 0; i < n; i++) {
		struct pytreefs_request *q = &j->q[i];

		q->error = NULL;
		q->result = read_one(j, q);
		if (q->result >= 0)
			continue;
		q->error = strdup(err_text(q->result));
		if (!first.code)
			err_save(q->result, &first);
		if (q->result == -ECANCELED)
			return q->result;
	}
	return first.code ? err_restore(&first) : 0;
}

int pytreefs_read_many(struct pytreefs *ck, struct pytreefs_request *request, size_t n,
		       const struct pytreefs_progress *progress)
{
	struct job j = { .ck = ck, .q = request, .progress = { .p = progress } };
	int r = lib_begin(ck, NULL);

	for (size_t i = 0; i < n; i++)
		j.progress.total += request[i].size;
	return (int)lib_end(r < 0 ? r : read_all(&j, n));
}

void pytreefs_requests_release(struct pytreefs_request *request, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		free(request[i].error);
		request[i].error = NULL;
	}
}

void *pytreefs_alloc(size_t n)
{
	return block_alloc(n ? n : 1);
}

void pytreefs_free(void *p, size_t n)
{
	block_free(p, n ? n : 1);
}
