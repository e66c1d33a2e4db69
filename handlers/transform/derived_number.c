/* SPDX-License-Identifier: Apache-2.0 */
/*
 * derived_number.c - value functions of an array and a number: scale, add.
 *
 * Invariants: dtype and elements are those that numpy gives for `array * number` and `array +
 * number` with a Python number, to the bit.
 */
#include <errno.h>

#include "core/base/err.h"
#include "core/dtype/cast.h"
#include "handlers/transform/derived.h"

/* Parse the number. Sets *is_int when it is written as an integer. */
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

bool derived_is_number(struct span args)
{
	double factor;
	int64_t whole;
	bool is_int;

	return parse_factor(args, &factor, &whole, &is_int);
}

int derived_number_plan(const struct zarr_meta *m, struct span args, struct derived_plan *p)
{
	const struct dtype_info *info = dtype_info(m->dtype);
	int64_t whole;
	double factor;
	bool is_int;

	if (!parse_factor(args, &factor, &whole, &is_int) || m->dtype == DTYPE_INT2 ||
	    m->dtype == DTYPE_INT4)
		return fail(-EINVAL, "%s(%.*s) of %s", value_fn_name(p->fn), SPAN_ARG(args),
			    info->name);
	p->factor = args;
	/*
	 * As numpy does: the number takes the array's dtype, except that a fraction turns integers
	 * into float64, and dtypes of ml_dtypes into float32.
	 */
	if (info->kind == DTYPE_KIND_BOOL)
		p->dtype = is_int ? DTYPE_INT64 : DTYPE_FLOAT64;
	else if ((info->kind == DTYPE_KIND_INT || info->kind == DTYPE_KIND_UINT) && !is_int)
		p->dtype = DTYPE_FLOAT64;
	else if (m->dtype >= DTYPE_FLOAT4_E2M1FN && m->dtype <= DTYPE_BFLOAT16 && !is_int)
		p->dtype = DTYPE_FLOAT32;
	return 0;
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

/* Multiply by f + 0j, as numpy does. */
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

/* The dtype in which the operation is computed. */
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

static void add_floats(float *x, size_t n, float f)
{
	for (size_t i = 0; i < n; i++)
		x[i] += f;
}

static void add_doubles(double *x, size_t n, double f)
{
	for (size_t i = 0; i < n; i++)
		x[i] += f;
}

/* Add f + 0j, as numpy does. */
static void add_complex(enum dtype t, void *p, size_t n, double f)
{
	for (size_t i = 0; i < n; i++) {
		if (t == DTYPE_COMPLEX64) {
			((float *)p)[2 * i] += (float)f;
			((float *)p)[2 * i + 1] += 0.0f;
		} else {
			((double *)p)[2 * i] += f;
			((double *)p)[2 * i + 1] += 0.0;
		}
	}
}

/* Multiply n elements by the number, or add it. */
static void scale_elements(enum value_fn fn, enum dtype result, void *p, size_t n, struct span args)
{
	bool adds = fn == VALUE_FN_ADD;
	enum dtype work = work_type(result);
	double factor = 0;
	int64_t whole = 0;
	bool is_int;

	parse_factor(args, &factor, &whole, &is_int);
	if (work == DTYPE_FLOAT64) {
		(adds ? add_doubles : scale_doubles)(p, n, factor);
	} else if (work == DTYPE_FLOAT32) {
		uint8_t rounded[8];
		float f;

		/* The number is first rounded to the array's dtype. */
		cast(result, rounded, DTYPE_FLOAT64, &factor, 1);
		cast(DTYPE_FLOAT32, &f, result, rounded, 1);
		(adds ? add_floats : scale_floats)(p, n, f);
	} else if (dtype_info(work)->kind == DTYPE_KIND_COMPLEX) {
		(adds ? add_complex : scale_complex)(work, p, n, factor);
	} else {
		for (size_t i = 0; i < n; i++)
			((uint64_t *)p)[i] = adds ? ((uint64_t *)p)[i] + (uint64_t)whole :
						    ((uint64_t *)p)[i] * (uint64_t)whole;
	}
}

int derived_number_run(const struct derived_plan *p, void *piece, derived_sink *sink, void *arg)
{
	struct zarr_view v = *p->view;
	enum dtype work = work_type(p->dtype);
	size_t item = dtype_info(work)->size, out_item = dtype_info(p->dtype)->size;
	auto_free void *out = malloc(DERIVED_PIECE_BYTES);
	int r;

	if (!out)
		return fail(-ENOMEM, "cannot scale an array");
	v.plain = work == v.dtype;
	v.dtype = work;
	r = zarr_view_finish(&v);
	for (uint64_t off = 0; r >= 0 && off < v.bytes; off += DERIVED_PIECE_BYTES) {
		size_t n = (size_t)MIN(v.bytes - off, (uint64_t)DERIVED_PIECE_BYTES) / item;

		r = zarr_read_into(p->input[0], &v, off, n * item, piece);
		if (r < 0)
			break;
		scale_elements(p->fn, p->dtype, piece, n, p->factor);
		cast(p->dtype, out, work, piece, n);
		r = sink(arg, out, n * out_item);
	}
	return r;
}
