/* SPDX-License-Identifier: Apache-2.0 */
/*
 * derived.c - one array made of others: cast, transpose, reshape, slice, scale, concat, stack.
 *
 * Where the elements go is derived_store.c's.
 *
 * Invariants: what a function gives is what numpy gives for it, to the bit; no more than two pieces
 * of elements are in memory, whatever the arrays' sizes.
 */
#include "handlers/transform/derived.h"

#include <stdio.h>

#include "core/base/err.h"
#include "core/dtype/cast.h"
#include "handlers/format/format.h"

#define PIECE_BYTES (4 * MiB) /* of elements in hand at once */

/* ---- arguments ---- */

/* "0, -1, 2" -> integers; -1 when it is something else. */
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

static int parse_slice(struct span args, struct name_view *ret, struct buf *text)
{
	int r = buf_add_str(text, "x[");

	for (size_t i = 0; i < args.n && r >= 0; i++)
		if (args.p[i] != ' ')
			r = buf_add_byte(text, args.p[i]);
	if (r >= 0)
		r = buf_add_str(text, "].npy");
	if (r >= 0)
		r = name_view_parse(buf_span(text), ret);
	return r < 0 || ret->has_box ?
		       r :
		       fail(-EINVAL, "slice(%.*s) takes a box as in [0:2, 3]", SPAN_ARG(args));
}

/* The number, and whether it is written as an integer. */
static bool parse_factor(struct span args, double *ret, int64_t *ret_int, bool *is_int)
{
	auto_free char *text = span_dup_str(args);
	char *end;

	if (!text || !*text)
		return false;
	errno = 0;
	*ret_int = strtoll(text, &end, 10);
	*is_int = !*end && !errno;
	*ret = strtod(text, &end);
	return !*end;
}

int value_fn_check(enum value_fn fn, struct span args, unsigned n_inputs)
{
	int64_t list[LIMIT_RANK], whole;
	auto_buf text = { 0 };
	struct name_view v;
	double factor;
	bool is_int;
	int n = fn == VALUE_FN_CAST || fn == VALUE_FN_SLICE || fn == VALUE_FN_SCALE ?
			0 :
			integers(args, list, LIMIT_RANK);

	if (n < 0 || ((fn == VALUE_FN_CONCAT || fn == VALUE_FN_STACK) && n != 1))
		return fail(-EINVAL, "%s(%.*s): it takes %s", value_fn_name(fn), SPAN_ARG(args),
			    fn == VALUE_FN_TRANSPOSE || fn == VALUE_FN_RESHAPE ? "integers" :
										 "one axis");
	if (fn == VALUE_FN_CAST && dtype_by_user(args) == DTYPE_UNKNOWN)
		return fail(-EINVAL, "cast(%.*s): it takes a dtype", SPAN_ARG(args));
	if (fn == VALUE_FN_SCALE && !parse_factor(args, &factor, &whole, &is_int))
		return fail(-EINVAL, "scale(%.*s): it takes a number", SPAN_ARG(args));
	return fn == VALUE_FN_SLICE ? parse_slice(args, &v, &text) : 0;
}

/* ---- plans ---- */

static int plan_transpose(const struct zarr_meta *m, struct span args, struct derived_plan *p)
{
	int64_t list[LIMIT_RANK];
	int n = integers(args, list, LIMIT_RANK);
	bool seen[LIMIT_RANK] = { false };

	if (n != 0 && n != (int)m->rank)
		return fail(-EINVAL, "transpose of %d axes of an array of %u", n, m->rank);
	for (unsigned i = 0; i < m->rank; i++) {
		/* Without axes it reverses them. */
		int64_t axis = n == 0      ? (int64_t)m->rank - 1 - i :
			       list[i] < 0 ? list[i] + m->rank :
					     list[i];

		if (axis < 0 || axis >= (int64_t)m->rank || seen[axis])
			return fail(-EINVAL, "transpose(%.*s) of an array of %u axes",
				    SPAN_ARG(args), m->rank);
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
		       fail(-EINVAL, "reshape(%.*s) of %llu elements", SPAN_ARG(args),
			    (unsigned long long)m->n_elements);
}

static int plan_slice(const struct zarr_meta *m, struct span args, struct derived_plan *p)
{
	auto_buf text = { 0 };
	struct name_view v;
	int r = parse_slice(args, &v, &text);

	if (r >= 0)
		r = view_of_name(&v, m, false, p->view);
	if (r < 0)
		return r == -ENOENT ?
			       fail(-EINVAL, "slice(%.*s): %s", SPAN_ARG(args), err_text(r)) :
			       r;
	p->rank = zarr_view_result(p->view, p->shape);
	return 0;
}

static int plan_scale(const struct zarr_meta *m, struct span args, struct derived_plan *p)
{
	const struct dtype_info *info = dtype_info(m->dtype);
	int64_t whole;
	double factor;
	bool is_int;

	if (!parse_factor(args, &factor, &whole, &is_int) || m->dtype == DTYPE_INT2 ||
	    m->dtype == DTYPE_INT4)
		return fail(-EINVAL, "scale(%.*s) of %s", SPAN_ARG(args), info->name);
	p->factor = args;
	/* As numpy: the factor takes the array's type, but a fraction makes integers float64, and
	 * types of ml_dtypes float32. */
	if (info->kind == DTYPE_KIND_BOOL)
		p->dtype = is_int ? DTYPE_INT64 : DTYPE_FLOAT64;
	else if ((info->kind == DTYPE_KIND_INT || info->kind == DTYPE_KIND_UINT) && !is_int)
		p->dtype = DTYPE_FLOAT64;
	else if (m->dtype >= DTYPE_FLOAT4_E2M1FN && m->dtype <= DTYPE_BFLOAT16 && !is_int)
		p->dtype = DTYPE_FLOAT32;
	return 0;
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
		return fail(-EINVAL, "%s(%.*s) of arrays of %u axes", value_fn_name(p->fn),
			    SPAN_ARG(args), m->rank);
	p->axis = (unsigned)axis;
	for (unsigned i = 0, from = 0; i < p->rank; i++)
		p->shape[i] = stacks && i == p->axis ? p->n_inputs : m->shape[from++];
	for (unsigned i = 1; i < p->n_inputs; i++) {
		const struct zarr_meta *other = &p->input[i]->meta;

		if (other->dtype != m->dtype || other->rank != m->rank)
			return fail(-EINVAL, "%s of %s and %s, of %u and %u axes",
				    value_fn_name(p->fn), dtype_info(m->dtype)->name,
				    dtype_info(other->dtype)->name, m->rank, other->rank);
		for (unsigned j = 0; j < m->rank; j++) {
			if (!stacks && j == p->axis) {
				if (!add_fits(p->shape[j], other->shape[j], &p->shape[j]))
					return fail(-EFBIG, "concat is too large");
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
	case VALUE_FN_SCALE:
		r = plan_scale(m, d->args, &p);
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
	if (r >= 0)
		r = zarr_view_finish(p.view);
	p.bytes = dtype_info(p.dtype)->size;
	for (unsigned i = 0; i < p.rank && r >= 0; i++)
		if (!mul_fits(p.bytes, p.shape[i], &p.bytes))
			r = fail(-EFBIG, "%s gives more than 2^64 bytes", p.name);
	if (r < 0)
		return r;
	*ret = p;
	return 0;
}

/* ---- running them ---- */

static int run_view(struct zarr *z, const struct zarr_view *v, uint64_t off, uint64_t n,
		    void *piece, derived_sink *sink, void *arg)
{
	int r = 0;

	for (uint64_t end = off + n; off < end && r >= 0; off += PIECE_BYTES) {
		size_t now = (size_t)MIN(end - off, (uint64_t)PIECE_BYTES);

		r = zarr_read_into(z, v, off, now, piece);
		if (r >= 0)
			r = sink(arg, piece, now);
	}
	return r;
}

static void scale_floats(float *x, size_t n, float f)
{
	for (size_t i = 0; i < n; i++)
		x[i] *= f;
}

static void scale_doubles(double *x, size_t n, double f)
{
	for (size_t i = 0; i < n; i++)
		x[i] *= f;
}

/* As numpy does it: by the factor + 0j. */
static void scale_complex(enum dtype t, void *p, size_t n, double f)
{
	for (size_t i = 0; i < n && t == DTYPE_COMPLEX64; i++) {
		float *c = (float *)p + 2 * i, re = c[0], im = c[1], g = (float)f;

		c[0] = re * g - im * 0.0f;
		c[1] = re * 0.0f + im * g;
	}
	for (size_t i = 0; i < n && t == DTYPE_COMPLEX128; i++) {
		double *c = (double *)p + 2 * i, re = c[0], im = c[1];

		c[0] = re * f - im * 0.0;
		c[1] = re * 0.0 + im * f;
	}
}

/* The type that the multiplication is done in. */
static enum dtype work_type(enum dtype t)
{
	switch (dtype_info(t)->kind) {
	case DTYPE_KIND_FLOAT:
		return t == DTYPE_FLOAT64 ? t : DTYPE_FLOAT32;
	case DTYPE_KIND_COMPLEX:
		return t;
	case DTYPE_KIND_UINT:
		return DTYPE_UINT64;
	default:
		return DTYPE_INT64;
	}
}

static void scale_elements(enum dtype result, void *p, size_t n, struct span args)
{
	enum dtype work = work_type(result);
	double factor = 0;
	int64_t whole = 0;
	bool is_int;

	parse_factor(args, &factor, &whole, &is_int);
	if (work == DTYPE_FLOAT64) {
		scale_doubles(p, n, factor);
	} else if (work == DTYPE_FLOAT32) {
		uint8_t rounded[8];
		float f;

		/* The factor first becomes one of the array's type. */
		cast(result, rounded, DTYPE_FLOAT64, &factor, 1);
		cast(DTYPE_FLOAT32, &f, result, rounded, 1);
		scale_floats(p, n, f);
	} else if (dtype_info(work)->kind == DTYPE_KIND_COMPLEX) {
		scale_complex(work, p, n, factor);
	} else {
		for (size_t i = 0; i < n; i++)
			((uint64_t *)p)[i] *= (uint64_t)whole;
	}
}

static int run_scale(const struct derived_plan *p, void *piece, derived_sink *sink, void *arg)
{
	struct zarr_view v = *p->view;
	enum dtype work = work_type(p->dtype);
	size_t item = dtype_info(work)->size, out_item = dtype_info(p->dtype)->size;
	auto_free void *out = malloc(PIECE_BYTES);
	int r = out ? 0 : fail(-ENOMEM, "cannot scale an array");

	v.plain = work == v.dtype;
	v.dtype = work;
	if (r >= 0)
		r = zarr_view_finish(&v);
	for (uint64_t off = 0; r >= 0 && off < v.bytes; off += PIECE_BYTES) {
		size_t n = (size_t)MIN(v.bytes - off, (uint64_t)PIECE_BYTES) / item;

		r = zarr_read_into(p->input[0], &v, off, n * item, piece);
		if (r < 0)
			break;
		scale_elements(p->dtype, piece, n, p->factor);
		cast(p->dtype, out, work, piece, n);
		r = sink(arg, out, n * out_item);
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
			n = v.bytes / outer;
			if (r >= 0)
				r = run_view(p->input[i], &v, o * n, n, piece, sink, arg);
		}
	return r;
}

/* One block of the result: what is fixed in the axes before `axis`, and `count` positions of it. */
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

static void permute(const struct derived_plan *p, const struct block *b, const struct zarr_view *v,
		    const uint8_t *in, uint8_t *out)
{
	size_t item = dtype_info(p->dtype)->size;
	uint64_t stride[LIMIT_RANK], by_axis[LIMIT_RANK], shape[LIMIT_RANK],
		index[LIMIT_RANK] = { 0 }, n = 1;

	for (unsigned i = p->rank; i-- > 0;) {
		stride[i] = n * item;
		n *= v->axis[i].count;
	}
	for (unsigned i = 0; i < p->rank; i++) {
		by_axis[i] = stride[p->order[i]];
		shape[i] = v->axis[p->order[i]].count;
	}
	for (const uint8_t *end = out + n * item; out < end; out += item) {
		memcpy(out, in, item);
		for (unsigned i = p->rank; i-- > b->axis;) {
			in += by_axis[i];
			if (++index[i] < shape[i])
				break;
			in -= by_axis[i] * shape[i];
			index[i] = 0;
		}
	}
}

/* The next block; false after the last. */
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
	auto_free uint8_t *out = malloc(PIECE_BYTES);
	struct block b = { 0 };
	uint64_t below = p->bytes, step;
	struct zarr_view v;
	int r = out ? 0 : fail(-ENOMEM, "cannot transpose an array");

	if (p->rank == 0)
		return r < 0 ? r : run_view(p->input[0], p->view, 0, p->bytes, piece, sink, arg);
	/* The first axis one of whose positions fits a piece. */
	for (b.axis = 0; (below /= p->shape[b.axis]) > PIECE_BYTES; b.axis++)
		;
	step = PIECE_BYTES / below;
	b.count = MIN(step, p->shape[b.axis]);
	do {
		if (r >= 0)
			r = block_view(p, &b, &v);
		if (r >= 0)
			r = zarr_read_into(p->input[0], &v, 0, v.bytes, piece);
		if (r < 0)
			return r;
		permute(p, &b, &v, piece, out);
		r = sink(arg, out, v.bytes);
	} while (r >= 0 && block_next(p, &b, step));
	return r;
}

int derived_run(const struct derived_plan *p, derived_sink *sink, void *arg)
{
	auto_free uint8_t *piece = malloc(PIECE_BYTES);

	if (!piece)
		return fail(-ENOMEM, "cannot compute an array");
	if (p->bytes == 0)
		return 0;
	switch (p->fn) {
	case VALUE_FN_SCALE:
		return run_scale(p, piece, sink, arg);
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
