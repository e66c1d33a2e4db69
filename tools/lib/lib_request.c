/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lib_request.c - reads many requests: names -> views of arrays -> memory of the caller.
 */
#include <string.h>

#include "core/base/blocks.h"
#include "core/zarr/read_many/read_many.h"
#include "handlers/namespace/node_tree.h"
#include "tools/lib/lib.h"

/* ---- one request ---- */

/* Apply the request's box to the view that the name gives. */
static int lib_request_narrow(const struct pytreefs_request *q, const struct name_view *name,
			      struct zarr_view *v)
{
	int r = 0;

	if (name->has_box)
		return fail(-EINVAL, "a box beside the box of the name");
	if (q->n_box != v->rank)
		return fail(-EINVAL, "a box of %zu %s of an array of %u", q->n_box,
			    noun(q->n_box, "axis", "axes"), v->rank);
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
		if (r < 0)
			return r;
		r = lib_request_narrow(q, &name, ret);
	}
	if (r < 0)
		return r;
	if (q->dtype) {
		to = dtype_by_user(span_str(q->dtype));
		r = to == DTYPE_UNKNOWN ? fail(-EINVAL, "'%s' is not a dtype", q->dtype) :
					  zarr_view_cast(ret, to);
	}
	return r;
}

/* ---- the job ---- */

struct job {
	struct lib_finder find;
	struct pytreefs_request *q;
	struct lib_progress progress;
	struct err_note failed; /* of the first request that failed */
};

static int check_size(const struct pytreefs_request *q, uint64_t bytes)
{
	if (q->size == bytes)
		return 0;
	return fail(-EINVAL, "'%s' has %llu bytes, the request has memory for %llu", q->name,
		    (unsigned long long)bytes, (unsigned long long)q->size);
}

static int open_request(void *arg, size_t i, struct read_target *ret)
{
	struct job *j = arg;
	const struct pytreefs_request *q = &j->q[i];
	struct node_leaf *leaf = NULL;
	auto_node *n = NULL;
	auto_value v = { 0 };
	int r = lib_find_leaf(&j->find, q->name, q->version, &n, &leaf);

	r = r < 0 ? r : request_view(leaf, q, &v, &ret->view);
	if (r < 0)
		return r;
	r = check_size(q, v.kind == VALUE_ARRAY ? ret->view.bytes : v.text.n);
	if (r < 0)
		return r;
	/* Texts are copied immediately. */
	if (v.kind != VALUE_ARRAY) {
		if (v.text.n)
			memcpy(q->to, v.text.p, v.text.n);
		return 0;
	}
	ret->z = take(v.array);
	v.kind = VALUE_UNKNOWN;
	ret->to = q->to;
	read_target_set_order(ret);
	/* Strides refer to axes of the result; those of the reader refer to axes of the array. */
	for (unsigned k = 0, axis = 0; k < ret->view.rank && q->strides; k++)
		ret->stride[k] = ret->view.axis[k].drop ? 0 : q->strides[axis++];
	return 1;
}

static void request_done(void *arg, size_t i, int result)
{
	struct job *j = arg;

	j->q[i].result = result;
	if (result >= 0)
		return;
	err_at(result, "'%s'", j->q[i].name);
	j->q[i].error = strdup(err_text(result));
	if (!j->failed.code)
		err_save(result, &j->failed);
}

static int progress_of(void *arg, uint64_t done)
{
	return lib_progress(&((struct job *)arg)->progress, done);
}

int pytreefs_read_many(struct pytreefs *ck, struct pytreefs_request *request, size_t n,
		       const struct pytreefs_progress *progress)
{
	static const struct read_many_ops ops = { open_request, request_done, progress_of };
	struct job j = { .q = request, .progress = { .p = progress } };
	int r = lib_begin(ck, NULL);

	if (r < 0)
		return (int)lib_end(r);
	for (size_t i = 0; i < n; i++) {
		j.progress.total += request[i].size;
		request[i].result = -ECANCELED;
		request[i].error = NULL;
	}
	lib_finder_init(&j.find, ck);
	r = zarr_read_many(&ck->source.ns->ckpt->env, n, &ops, &j);
	if (r >= 0)
		r = j.failed.code ? err_restore(&j.failed) :
				    lib_progress(&j.progress, j.progress.total);
	r = (int)lib_end(r);
	lib_finder_release(&j.find);
	return r;
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
