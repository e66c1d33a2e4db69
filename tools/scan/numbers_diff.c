/* SPDX-License-Identifier: Apache-2.0 */
/*
 * numbers_diff.c - compares two arrays of elements. No I/O.
 */
#include <math.h>

#include "core/base/wire.h"
#include "core/dtype/cast.h"
#include "tools/scan/numbers.h"

#define BLOCK 512 /* elements per block */

/*
 * Map the bits of a float to an integer with the same order as the values: adjacent values differ
 * by one.
 */
static int64_t numbers_place_of(enum dtype t, const uint8_t *p)
{
	const struct dtype_info *info = dtype_info(t);
	uint64_t u = 0, sign;

	for (unsigned i = 0; i < info->size; i++)
		u |= (uint64_t)p[i] << (8 * i);
	/* A type without a sign has bits in order already. */
	if (t == DTYPE_FLOAT8_E8M0FNU)
		return (int64_t)u;
	sign = (uint64_t)1 << (info->bits - 1);
	u &= 2 * sign - 1;
	return u & sign ? -(int64_t)(u & (sign - 1)) : (int64_t)u;
}

static uint64_t numbers_distance(int64_t a, int64_t b)
{
	return a > b ? (uint64_t)a - (uint64_t)b : (uint64_t)b - (uint64_t)a;
}

/* |a - b| of 64-bit integers, exactly, for which doubles have too few digits. */
static double int_distance(enum dtype t, const uint8_t *a, const uint8_t *b)
{
	uint64_t x = get_u64le(a), y = get_u64le(b);

	if (t == DTYPE_INT64)
		return (double)numbers_distance((int64_t)x, (int64_t)y);
	return (double)(x > y ? x - y : y - x);
}

/*
 * Compare one number with different bits. Returns whether it counts as different; *ret_far is its
 * difference, NaN where one of both is NaN.
 */
static bool numbers_differ(struct numbers_diff *d, enum dtype t, const uint8_t *a, const uint8_t *b,
			   double x, double y, struct tolerance tolerance, double *ret_far)
{
	double far;

	*ret_far = NAN;
	if (isnan(x) || isnan(y)) {
		d->one_nan += isnan(x) != isnan(y);
		return isnan(x) != isnan(y);
	}
	far = t == DTYPE_INT64 || t == DTYPE_UINT64 ? int_distance(t, a, b) :
	      x == y                                ? 0 :
						      fabs(x - y);
	*ret_far = far;
	d->squares += far * far;
	if ((tolerance.absolute > 0 || tolerance.relative > 0) && isfinite(far) &&
	    far <= tolerance.absolute + tolerance.relative * fabs(y))
		return false;
	d->max_abs = MAX(d->max_abs, far);
	if (dtype_info(t)->kind == DTYPE_KIND_FLOAT) {
		d->max_ulp = MAX(d->max_ulp,
				 numbers_distance(numbers_place_of(t, a), numbers_place_of(t, b)));
		d->has_ulp = true;
	}
	return true;
}

/* Count an element that differs, of `words` numbers x of the first array and their differences. */
static void numbers_found(struct numbers_diff *d, uint64_t at, const double *x, const double *far,
			  size_t words)
{
	if (d->n++ == 0)
		d->first = at;
	for (size_t w = 0; w < words; w++)
		if (!isnan(far[w]) && !isnan(x[w])) {
			d->squares_other += far[w] * far[w];
			d->squares_a += x[w] * x[w];
		}
}

void numbers_compare(struct numbers_diff *d, enum dtype t, const void *a, const void *b, size_t n,
		     struct tolerance tolerance, uint64_t first)
{
	size_t size = dtype_info(t)->size,
	       words = dtype_info(t)->kind == DTYPE_KIND_COMPLEX ? 2 : 1;
	/* The type of the floats in an element: the element itself, or a half of a complex one. */
	enum dtype word = t == DTYPE_COMPLEX64  ? DTYPE_FLOAT32 :
			  t == DTYPE_COMPLEX128 ? DTYPE_FLOAT64 :
						  t;
	const uint8_t *pa = a, *pb = b;

	for (size_t i = 0; i < n; i += BLOCK) {
		size_t m = MIN((size_t)BLOCK, n - i);
		double x[2 * BLOCK], y[2 * BLOCK];

		/* Most blocks are equal. */
		if (!memcmp(pa + i * size, pb + i * size, m * size))
			continue;
		cast(DTYPE_FLOAT64, x, word, pa + i * size, m * words);
		cast(DTYPE_FLOAT64, y, word, pb + i * size, m * words);
		for (size_t k = 0; k < m; k++) {
			const uint8_t *ea = pa + (i + k) * size, *eb = pb + (i + k) * size;
			double far[2] = { 0 };
			bool is_other = false;

			if (!memcmp(ea, eb, size))
				continue;
			for (size_t w = 0; w < words; w++) {
				size_t at = w * size / words;

				if (memcmp(ea + at, eb + at, size / words))
					is_other |= numbers_differ(d, word, ea + at, eb + at,
								   x[k * words + w],
								   y[k * words + w], tolerance,
								   &far[w]);
			}
			if (is_other)
				numbers_found(d, first + i + k, x + k * words, far, words);
		}
	}
}

void numbers_compare_mixed(struct numbers_diff *d, enum dtype ta, const void *a, enum dtype tb,
			   const void *b, size_t n, struct tolerance tolerance, uint64_t first)
{
	size_t sa = dtype_info(ta)->size, sb = dtype_info(tb)->size;
	const uint8_t *pa = a, *pb = b;

	for (size_t i = 0; i < n; i += BLOCK) {
		size_t m = MIN((size_t)BLOCK, n - i);
		double x[2 * BLOCK], y[2 * BLOCK];

		cast(DTYPE_COMPLEX128, x, ta, pa + i * sa, m);
		cast(DTYPE_COMPLEX128, y, tb, pb + i * sb, m);
		for (size_t k = 0; k < m; k++) {
			double far[2] = { 0 };
			bool is_other = false;

			for (size_t w = 0; w < 2; w++) {
				double va = x[2 * k + w], vb = y[2 * k + w];

				/* Zeros of different signs are equal when types differ. */
				if (va != vb && !(isnan(va) && isnan(vb)))
					is_other |= numbers_differ(d, DTYPE_COMPLEX128, NULL, NULL,
								   va, vb, tolerance, &far[w]);
			}
			if (is_other)
				numbers_found(d, first + i + k, x + 2 * k, far, 2);
		}
	}
}

void numbers_compare_narrow(struct numbers_diff *d, enum dtype ta, const void *a, enum dtype tb,
			    const void *b, size_t n, struct tolerance tolerance)
{
	size_t sa = dtype_info(ta)->size, sb = dtype_info(tb)->size;
	enum dtype t = sb > sa ? ta : tb;
	const uint8_t *pa = a, *pb = b;

	for (size_t i = 0; i < n; i += BLOCK) {
		size_t m = MIN((size_t)BLOCK, n - i);
		uint8_t x[16 * BLOCK], y[16 * BLOCK];

		cast(t, x, ta, pa + i * sa, m);
		cast(t, y, tb, pb + i * sb, m);
		numbers_compare(d, t, x, y, m, tolerance, i);
	}
}

void numbers_diff_merge(struct numbers_diff *d, const struct numbers_diff *from)
{
	if (from->n && (d->n == 0 || from->first < d->first))
		d->first = from->first;
	d->n += from->n;
	d->one_nan += from->one_nan;
	d->max_abs = MAX(d->max_abs, from->max_abs);
	d->max_ulp = MAX(d->max_ulp, from->max_ulp);
	d->has_ulp |= from->has_ulp;
	d->squares += from->squares;
	d->squares_other += from->squares_other;
	d->squares_a += from->squares_a;
}
