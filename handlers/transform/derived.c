/* SPDX-License-Identifier: Apache-2.0 */
/*
 * derived.c - computes one array from others: cast, transpose, reshape, slice, pad, unstack,
 * concat, stack.
 *
 * derived_number.c has scale and add; derived_store.c stores the elements.
 *
 * Invariants: the results are those of numpy, to the bit; no more than two pieces of elements are
 * in memory, whatever the sizes of the arrays.
 */
#include "handlers/transform/derived.h"

#include <stdio.h>

#include "core/base/err.h"
#include "core/dtype/cast.h"
#include "core/dtype/strided.h"
#include "handlers/format/format.h"

/* ---- arguments ---- */

/* Parse "0, -1, 2" into integers. Returns their number, or -1 when it is something else. */
static int integers(struct span s, int64_t *ret, unsigned max)
{
	auto_free char *text = span_dup_str(s);
	const char *at = text ? text : "";
	unsigned n = 0;

	at += strspn(at, " ");
	while (*at) {
		char *end;

		if (n == max)
			return -1;
		errno = 0;
		ret[n++] = strtoll(at, &end, 10);
		if (end == at || errno)
			return -1;
		at = end + strspn(end, " ");
		if (*at == ',')
			at += 1 + strspn(at + 1, " ");
		else if (*at)
			return -1;
	}
	return (int)n;
}

static int derived_parse_slice(struct span args, struct name_view *ret, struct buf *text)
{
	int r = buf_add_str(text, "x[");

	for (size_t i = 0; i < args.n && r >= 0; i++)
		if (args.p[i] != ' ')
			r = buf_add_byte(text, args.p[i]);
	if (r < 0)
		return r;
	r = buf_add_str(text, "].npy");
	if (r < 0)
		return r;
	r = name_view_parse(buf_span(text), ret);
	return r < 0 || ret->has_box ?
		       r :
		       fail(-EINVAL, "slice(%.*s) takes a box as in [0:2, 3]", SPAN_ARG(args));
}

int value_fn_check(enum value_fn fn, struct span args, unsigned n_inputs)
{
	int64_t list[LIMIT_RANK];
	auto_buf text = { 0 };
	struct name_view v;
	bool factors = fn == VALUE_FN_SCALE || fn == VALUE_FN_ADD;
	int n = fn == VALUE_FN_CAST || fn == VALUE_FN_SLICE || factors ?
			0 :
			integers(args, list, LIMIT_RANK);

	if (fn == VALUE_FN_UNSTACK && (n < 2 || n > 3 || list[0] < 0 || list[0] >= list[1]))
		return fail(-EINVAL, "unstack(%.*s): it takes INDEX, COUNT, AXIS", SPAN_ARG(args));
	if (n < 0 || ((fn == VALUE_FN_CONCAT || fn == VALUE_FN_STACK) && n != 1))
		return fail(-EINVAL, "%s(%.*s): it takes %s", value_fn_name(fn), SPAN_ARG(args),
			    fn == VALUE_FN_CONCAT || fn == VALUE_FN_STACK ? "one axis" :
									    "integers");
	if (fn == VALUE_FN_CAST && dtype_by_user(args) == DTYPE_UNKNOWN)
		return fail(-EINVAL, "cast(%.*s): it takes a dtype", SPAN_ARG(args));
	if (factors && !derived_is_number(args))
		return fail(-EINVAL, "%s(%.*s): it takes a number", value_fn_name(fn),
			    SPAN_ARG(args));
	return fn == VALUE_FN_SLICE ? derived_parse_slice(args, &v, &text) : 0;
}

/* ---- plans ---- */

static int plan_transpose(const struct zarr_meta *m, struct span args, struct derived_plan *p)
{
	int64_t list[LIMIT_RANK];
	int n = integers(args, list, LIMIT_RANK);
	bool seen[LIMIT_RANK] = { false };

	if (n != 0 && n != (int)m->rank)
		return fail(-EINVAL, "transpose has %d %s, the array has %u", n,
			    noun((uint64_t)n, "axis", "axes"), m->rank);
	for (unsigned i = 0; i < m->rank; i++) {
		/* Without arguments, transpose() reverses the axes. */
		int64_t axis = n == 0      ? (int64_t)m->rank - 1 - i :
			       list[i] < 0 ? list[i] + m->rank :
					     list[i];

		if (axis < 0 || axis >= (int64_t)m->rank || seen[axis])
			return fail(-EINVAL, "transpose(%.*s): the array has %u %s", SPAN_ARG(args),
				    m->rank, noun(m->rank, "axis", "axes"));
		seen[axis] = true;
		p->order[i] = (unsigned)axis;
		p->shape[i] = m->shape[axis];
	}
	return 0;
}

static int plan_reshape(const struct zarr_meta *m, struct span args, struct derived_plan *p)
{
	int64_t list[LIMIT_RANK];
	int n = integers(args, list, LIMIT_RANK), unknown = -1;
	uint64_t product = 1;

	for (int i = 0; i < n; i++) {
		if (list[i] == -1 && unknown < 0) {
			unknown = i;
			continue;
		}
		p->shape[i] = (uint64_t)list[i];
		if (list[i] < 0 || !mul_fits(product, p->shape[i], &product))
			return fail(-EINVAL, "reshape(%.*s)", SPAN_ARG(args));
	}
	p->rank = (unsigned)n;
	if (unknown >= 0 && product && m->n_elements % product == 0) {
		p->shape[unknown] = m->n_elements / product;
		return 0;
	}
	return product == m->n_elements && unknown < 0 ?
		       0 :
		       fail(-EINVAL, "reshape(%.*s): the array has %llu %s", SPAN_ARG(args),
			    (unsigned long long)m->n_elements,
			    noun(m->n_elements, "element", "elements"));
}

static int plan_slice(const struct zarr_meta *m, struct span args, struct derived_plan *p)
{
	auto_buf text = { 0 };
	struct name_view v;
	int r = derived_parse_slice(args, &v, &text);

	if (r >= 0)
		r = view_of_name(&v, m, false, p->view);
	if (r < 0)
		return r == -ENOENT ?
			       fail(-EINVAL, "slice(%.*s): %s", SPAN_ARG(args), err_text(r)) :
			       r;
	p->rank = zarr_view_result(p->view, p->shape);
	return 0;
}

/* Pad the end of each axis with zeros up to the given extents; -1 leaves an axis as it is. */
static int plan_pad(const struct zarr_meta *m, struct span args, struct derived_plan *p)
{
	int64_t list[LIMIT_RANK];
	int n = integers(args, list, LIMIT_RANK), r;

	if (n != (int)m->rank)
		return fail(-EINVAL, "pad has %d %s, the array has %u %s", n,
			    noun((uint64_t)n, "extent", "extents"), m->rank,
			    noun(m->rank, "axis", "axes"));
	for (unsigned i = 0; i < m->rank; i++) {
		if (list[i] != -1)
			p->shape[i] = (uint64_t)list[i];
		if (list[i] < -1 || p->shape[i] < m->shape[i])
			return fail(-EINVAL, "pad(%.*s): axis %u has %llu %s", SPAN_ARG(args), i,
				    (unsigned long long)m->shape[i],
				    noun(m->shape[i], "position", "positions"));
	}
	r = zarr_view_reshape(p->view, p->rank, p->shape);
	p->view->plain = false;
	return r;
}

/*
 * Select one of COUNT positions of an axis and drop the axis. COUNT must be the extent, so that a
 * rule that was written for another extent is refused.
 */
static int plan_unstack(const struct zarr_meta *m, struct span args, struct derived_plan *p)
{
	int64_t list[LIMIT_RANK] = { 0 };
	int n = integers(args, list, LIMIT_RANK), r;
	int64_t axis = n < 3 ? 0 : list[2] < 0 ? list[2] + m->rank : list[2];

	if (axis < 0 || axis >= (int64_t)m->rank)
		return fail(-EINVAL, "unstack(%.*s): the array has %u %s", SPAN_ARG(args), m->rank,
			    noun(m->rank, "axis", "axes"));
	if (m->shape[axis] != (uint64_t)list[1])
		return fail(-EINVAL, "unstack(%.*s): axis %lld has %llu %s, not %lld",
			    SPAN_ARG(args), (long long)axis, (unsigned long long)m->shape[axis],
			    noun(m->shape[axis], "position", "positions"), (long long)list[1]);
	r = zarr_view_slice(p->view, (unsigned)axis, (uint64_t)list[0], 1, 1, true);
	p->view->plain = false;
	p->rank = zarr_view_result(p->view, p->shape);
	return r;
}

static int plan_join(struct derived_plan *p, struct span args)
{
	const struct zarr_meta *m = &p->input[0]->meta;
	bool stacks = p->fn == VALUE_FN_STACK;
	int64_t axis = 0;

	integers(args, &axis, 1);
	p->rank = m->rank + stacks;
	if (axis < 0)
		axis += p->rank;
	if (axis < 0 || axis >= (int64_t)p->rank || p->rank > LIMIT_RANK)
		return fail(-EINVAL, "%s(%.*s): the arrays have %u %s", value_fn_name(p->fn),
			    SPAN_ARG(args), m->rank, noun(m->rank, "axis", "axes"));
	p->axis = (unsigned)axis;
	for (unsigned i = 0, from = 0; i < p->rank; i++)
		p->shape[i] = stacks && i == p->axis ? p->n_inputs : m->shape[from++];
	for (unsigned i = 1; i < p->n_inputs; i++) {
		const struct zarr_meta *other = &p->input[i]->meta;

		if (other->dtype != m->dtype || other->rank != m->rank)
			return fail(-EINVAL, "%s: the arrays are %s and %s, of %u and %u axes",
				    value_fn_name(p->fn), dtype_info(m->dtype)->name,
				    dtype_info(other->dtype)->name, m->rank, other->rank);
		for (unsigned j = 0; j < m->rank; j++) {
			if (!stacks && j == p->axis) {
				if (!add_fits(p->shape[j], other->shape[j], &p->shape[j]))
					return fail(
						-EFBIG,
						"concat: the result has an extent of 2^64 or more");
			} else if (other->shape[j] != m->shape[j]) {
				return fail(-EINVAL, "%s: axis %u has %llu and %llu positions",
					    value_fn_name(p->fn), j,
					    (unsigned long long)m->shape[j],
					    (unsigned long long)other->shape[j]);
			}
		}
	}
	return 0;
}

int derived_plan(const struct derived *d, struct zarr *const *input, struct derived_plan *ret)
{
	const struct zarr_meta *m = &input[0]->meta;
	struct derived_plan p = { .fn = d->fn,
				  .name = derived_name(d),
				  .plugin = d->plugin,
				  .args = d->args,
				  .input = input,
				  .n_inputs = d->n_inputs,
				  .dtype = m->dtype,
				  .rank = m->rank };
	int r = 0;

	memcpy(p.shape, m->shape, sizeof(p.shape));
	zarr_view_whole(m, p.view);
	switch (d->fn) {
	case VALUE_FN_CAST:
		p.dtype = p.view->dtype = dtype_by_user(d->args);
		p.view->plain = p.dtype == m->dtype;
		break;
	case VALUE_FN_TRANSPOSE:
		r = plan_transpose(m, d->args, &p);
		break;
	case VALUE_FN_RESHAPE:
		r = plan_reshape(m, d->args, &p);
		break;
	case VALUE_FN_SLICE:
		r = plan_slice(m, d->args, &p);
		break;
	case VALUE_FN_PAD:
		r = plan_pad(m, d->args, &p);
		break;
	case VALUE_FN_UNSTACK:
		r = plan_unstack(m, d->args, &p);
		break;
	case VALUE_FN_SCALE:
	case VALUE_FN_ADD:
		r = derived_number_plan(m, d->args, &p);
		break;
	case VALUE_FN_CONCAT:
	case VALUE_FN_STACK:
		r = plan_join(&p, d->args);
		break;
	case VALUE_FN_PLUGIN:
		r = derived_plugin_plan(&p);
		break;
	case VALUE_FN_NONE:
		break;
	}
	if (r < 0)
		return r;
	r = zarr_view_finish(p.view);
	if (r < 0)
		return r;
	p.bytes = dtype_info(p.dtype)->size;
	for (unsigned i = 0; i < p.rank; i++)
		if (!mul_fits(p.bytes, p.shape[i], &p.bytes))
			return fail(-EFBIG, "%s: the result has more than 2^64 bytes", p.name);
	*ret = p;
	return 0;
}

/* ---- running them ---- */

static int run_view(struct zarr *z, const struct zarr_view *v, uint64_t off, uint64_t n,
		    void *piece, derived_sink *sink, void *arg)
{
	int r = 0;

	for (uint64_t end = off + n; off < end && r >= 0; off += DERIVED_PIECE_BYTES) {
		size_t now = (size_t)MIN(end - off, (uint64_t)DERIVED_PIECE_BYTES);

		r = zarr_read_into(z, v, off, now, piece);
		if (r < 0)
			return r;
		r = sink(arg, piece, now);
	}
	return r;
}

static int run_join(const struct derived_plan *p, void *piece, derived_sink *sink, void *arg)
{
	uint64_t outer = 1;
	int r = 0;

	for (unsigned i = 0; i < p->axis; i++)
		outer *= p->shape[i];
	for (uint64_t o = 0; o < outer && r >= 0; o++)
		for (unsigned i = 0; i < p->n_inputs && r >= 0; i++) {
			struct zarr_view v;
			uint64_t n;

			zarr_view_whole(&p->input[i]->meta, &v);
			r = zarr_view_finish(&v);
			if (r < 0)
				return r;
			n = v.bytes / outer;
			r = run_view(p->input[i], &v, o * n, n, piece, sink, arg);
		}
	return r;
}

/*
 * A block of the result: `count` positions of `axis` from at[axis] on, at fixed positions of the
 * axes before it.
 */
struct block {
	unsigned axis;
	uint64_t at[LIMIT_RANK], count;
};

static int block_view(const struct derived_plan *p, const struct block *b, struct zarr_view *ret)
{
	int r = 0;

	zarr_view_whole(&p->input[0]->meta, ret);
	for (unsigned i = 0; i <= b->axis && r >= 0; i++)
		r = zarr_view_slice(ret, p->order[i], b->at[i], 1, i == b->axis ? b->count : 1,
				    false);
	ret->plain = false;
	return r < 0 ? r : zarr_view_finish(ret);
}

static void permute(const struct derived_plan *p, const struct zarr_view *v, const uint8_t *in,
		    uint8_t *out)
{
	struct strided s = { .have = p->dtype, .want = p->dtype };
	uint64_t from[LIMIT_RANK], n = dtype_info(p->dtype)->size, to = v->bytes;

	for (unsigned i = p->rank; i-- > 0;) {
		from[i] = n;
		n *= v->axis[i].count;
	}
	for (unsigned i = 0; i < p->rank; i++) {
		uint64_t count = v->axis[p->order[i]].count;

		to /= MAX(count, (uint64_t)1);
		strided_add(&s, count, from[p->order[i]], (int64_t)to);
	}
	strided_copy(&s, in, out);
}

/* Advance to the next block. Returns false after the last. */
static bool block_next(const struct derived_plan *p, struct block *b, uint64_t step)
{
	b->at[b->axis] += b->count;
	for (unsigned i = b->axis; b->at[i] >= p->shape[i]; i--) {
		if (i == 0)
			return false;
		b->at[i] = 0;
		b->at[i - 1]++;
	}
	b->count = MIN(step, p->shape[b->axis] - b->at[b->axis]);
	return true;
}

static int run_transpose(const struct derived_plan *p, uint8_t *piece, derived_sink *sink,
			 void *arg)
{
	auto_free uint8_t *out = malloc(DERIVED_PIECE_BYTES);
	struct block b = { 0 };
	uint64_t below = p->bytes, step;
	struct zarr_view v;
	int r;

	if (!out)
		return fail(-ENOMEM, "cannot transpose an array");
	if (p->rank == 0)
		return run_view(p->input[0], p->view, 0, p->bytes, piece, sink, arg);
	/* Find the first axis of which at least one position fits a piece. */
	for (b.axis = 0; (below /= p->shape[b.axis]) > DERIVED_PIECE_BYTES; b.axis++)
		;
	step = DERIVED_PIECE_BYTES / below;
	b.count = MIN(step, p->shape[b.axis]);
	do {
		r = block_view(p, &b, &v);
		if (r < 0)
			return r;
		r = zarr_read_into(p->input[0], &v, 0, v.bytes, piece);
		if (r < 0)
			return r;
		permute(p, &v, piece, out);
		r = sink(arg, out, v.bytes);
	} while (r >= 0 && block_next(p, &b, step));
	return r;
}

int derived_run(const struct derived_plan *p, derived_sink *sink, void *arg)
{
	auto_free uint8_t *piece = malloc(DERIVED_PIECE_BYTES);

	if (!piece)
		return fail(-ENOMEM, "cannot compute an array");
	if (p->bytes == 0)
		return 0;
	switch (p->fn) {
	case VALUE_FN_SCALE:
	case VALUE_FN_ADD:
		return derived_number_run(p, piece, sink, arg);
	case VALUE_FN_TRANSPOSE:
		return run_transpose(p, piece, sink, arg);
	case VALUE_FN_CONCAT:
	case VALUE_FN_STACK:
		return run_join(p, piece, sink, arg);
	case VALUE_FN_PLUGIN:
		return derived_plugin_run(p, sink, arg);
	default:
		return run_view(p->input[0], p->view, 0, p->bytes, piece, sink, arg);
	}
}
