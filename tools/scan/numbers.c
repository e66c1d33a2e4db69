/* SPDX-License-Identifier: Apache-2.0 */
/*
 * numbers.c - sums, extremes and histograms of elements of every type. No I/O.
 *
 * numbers_diff.c compares two arrays.
 */
#include "tools/scan/numbers.h"

#include <math.h>

#include "core/dtype/cast.h"
#include "core/base/wire.h"

#define BLOCK 1024 /* numbers per block: 8 KiB */

/* Convert elements to doubles, and complex ones to two doubles. Returns the number of doubles. */
static size_t to_doubles(enum dtype t, const uint8_t *p, size_t n, double *out)
{
	switch (t) {
	case DTYPE_COMPLEX64:
		cast(DTYPE_FLOAT64, out, DTYPE_FLOAT32, p, 2 * n);
		return 2 * n;
	case DTYPE_COMPLEX128:
		memcpy(out, p, 16 * n);
		return 2 * n;
	default:
		cast(DTYPE_FLOAT64, out, t, p, n);
		return n;
	}
}

/* Move finite numbers to the front. Returns how many there are. */
static size_t keep_finite(struct numbers *s, double *x, size_t n)
{
	size_t n_retained = 0;

	for (size_t i = 0; i < n; i++) {
		if (isfinite(x[i])) {
			x[n_retained++] = x[i];
			continue;
		}
		if (isnan(x[i]))
			s->nan++;
		else
			s->inf++;
	}
	return n_retained;
}

static bool all_finite(const double *x, size_t n)
{
	double sum[4] = { 0 };
	size_t i;

	/* The product is zero except for infinities and NaN. */
	for (i = 0; i + 4 <= n; i += 4)
		for (int k = 0; k < 4; k++)
			sum[k] += x[i + (size_t)k] * 0.0;
	for (; i < n; i++)
		sum[0] += x[i] * 0.0;
	return sum[0] + sum[1] + sum[2] + sum[3] == 0.0;
}

static void merge_moments(struct numbers *s, uint64_t n, double mean, double m2)
{
	double delta = mean - s->mean, a = (double)s->n, b = (double)n;

	if (n == 0)
		return;
	if (s->n == 0) {
		s->mean = mean;
		s->m2 = m2;
	} else {
		s->mean += delta * (b / (a + b));
		s->m2 += m2 + delta * delta * (a * b / (a + b));
	}
	s->n += n;
}

/* Add finite numbers. */
static void add_block(struct numbers *s, const double *x, size_t n)
{
	double lo = x[0], hi = x[0], sum[4] = { 0 }, square[4] = { 0 }, mean;
	size_t zeros = 0, i;

	for (i = 0; i < n; i++) {
		lo = x[i] < lo ? x[i] : lo;
		hi = x[i] > hi ? x[i] : hi;
		zeros += x[i] == 0;
		sum[i & 3] += x[i];
	}
	mean = (sum[0] + sum[1] + (sum[2] + sum[3])) / (double)n;
	/* The sum of numbers near the end of the range is not finite. */
	if (!isfinite(mean)) {
		mean = 0;
		for (i = 0; i < n; i++)
			mean += (x[i] - mean) / (double)(i + 1);
	}
	for (i = 0; i < n; i++)
		square[i & 3] += (x[i] - mean) * (x[i] - mean);
	if (s->n == 0 || lo < s->min)
		s->min = lo;
	if (s->n == 0 || hi > s->max)
		s->max = hi;
	s->zeros += zeros;
	merge_moments(s, n, mean, square[0] + square[1] + (square[2] + square[3]));
}

static void add_ints(struct numbers *s, enum dtype t, const uint8_t *p, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		uint64_t u = get_u64le(p + 8 * i);
		int64_t v = (int64_t)u;

		if (!s->has_int) {
			s->int_min = s->int_max = v;
			s->has_int = true;
		}
		if (t == DTYPE_INT64 ? v < s->int_min : u < (uint64_t)s->int_min)
			s->int_min = v;
		if (t == DTYPE_INT64 ? v > s->int_max : u > (uint64_t)s->int_max)
			s->int_max = v;
	}
}

static bool is_int64(enum dtype t)
{
	return t == DTYPE_INT64 || t == DTYPE_UINT64;
}

void numbers_add(struct numbers *s, enum dtype t, const void *p, size_t n)
{
	size_t size = dtype_info(t)->size;
	const uint8_t *at = p;
	double x[2 * BLOCK];

	if (is_int64(t))
		add_ints(s, t, at, n);
	for (size_t i = 0; i < n; i += BLOCK) {
		size_t m = to_doubles(t, at + i * size, MIN((size_t)BLOCK, n - i), x);

		if (!all_finite(x, m))
			m = keep_finite(s, x, m);
		if (m)
			add_block(s, x, m);
	}
}

void numbers_merge(struct numbers *s, enum dtype t, const struct numbers *from)
{
	if (from->n && (s->n == 0 || from->min < s->min))
		s->min = from->min;
	if (from->n && (s->n == 0 || from->max > s->max))
		s->max = from->max;
	if (from->has_int && is_int64(t)) {
		uint64_t lo = (uint64_t)from->int_min, hi = (uint64_t)from->int_max;

		if (!s->has_int ||
		    (t == DTYPE_INT64 ? from->int_min < s->int_min : lo < (uint64_t)s->int_min))
			s->int_min = from->int_min;
		if (!s->has_int ||
		    (t == DTYPE_INT64 ? from->int_max > s->int_max : hi > (uint64_t)s->int_max))
			s->int_max = from->int_max;
		s->has_int = true;
	}
	s->nan += from->nan;
	s->inf += from->inf;
	s->zeros += from->zeros;
	merge_moments(s, from->n, from->mean, from->m2);
}

static uint64_t bits_of(double v)
{
	uint64_t bits;

	memcpy(&bits, &v, sizeof(bits));
	return bits;
}

static double double_of(uint64_t bits)
{
	double v;

	memcpy(&v, &bits, sizeof(v));
	return v;
}

int numbers_pack(const struct numbers *s, struct buf *out)
{
	const uint64_t words[] = {
		s->n,
		s->nan,
		s->inf,
		s->zeros,
		bits_of(s->min),
		bits_of(s->max),
		bits_of(s->mean),
		bits_of(s->m2),
		s->has_int,
		(uint64_t)s->int_min,
		(uint64_t)s->int_max,
	};
	int r = 0;

	for (size_t i = 0; i < ARRAY_LEN(words) && r >= 0; i++)
		r = wire_put_u64le(out, words[i]);
	return r;
}

void numbers_unpack(struct wire *w, struct numbers *ret)
{
	uint64_t words[11];

	for (size_t i = 0; i < ARRAY_LEN(words); i++)
		words[i] = wire_u64le(w);
	*ret = (struct numbers){
		.n = words[0],
		.nan = words[1],
		.inf = words[2],
		.zeros = words[3],
		.min = double_of(words[4]),
		.max = double_of(words[5]),
		.mean = double_of(words[6]),
		.m2 = double_of(words[7]),
		.has_int = words[8] != 0,
		.int_min = (int64_t)words[9],
		.int_max = (int64_t)words[10],
	};
}

double numbers_std(const struct numbers *s)
{
	return s->n ? sqrt(s->m2 / (double)s->n) : NAN;
}

static int print_extreme(const struct numbers *s, enum dtype t, double d, int64_t i,
			 struct buf *out)
{
	uint8_t element[LIMIT_ITEM_BYTES];

	if (s->n == 0)
		return buf_add_str(out, "null");
	if (dtype_info(t)->kind == DTYPE_KIND_COMPLEX)
		t = t == DTYPE_COMPLEX64 ? DTYPE_FLOAT32 : DTYPE_FLOAT64;
	/* The shortest text that reads back as 448 in such a type is 450, another number. */
	if (dtype_info(t)->kind == DTYPE_KIND_FLOAT && dtype_info(t)->size < sizeof(float))
		return json_put_double(out, d, JSON_PRETTY);
	if (is_int64(t))
		memcpy(element, &i, sizeof(i));
	else
		cast(t, element, DTYPE_FLOAT64, &d, 1);
	return dtype_value_print(t, element, out);
}

int numbers_print_range(const struct numbers *s, enum dtype t, struct buf *ret_min,
			struct buf *ret_max)
{
	int r = print_extreme(s, t, s->min, s->int_min, ret_min);

	return r < 0 ? r : print_extreme(s, t, s->max, s->int_max, ret_max);
}

static int put_or_null(const struct numbers *s, double d, struct buf *out)
{
	return s->n ? json_put_double(out, d, JSON_PRETTY) : buf_add_str(out, "null");
}

int numbers_json(const struct numbers *s, enum dtype t, struct buf *out)
{
	auto_buf min = { 0 }, max = { 0 }, mean = { 0 }, std = { 0 };

	if (numbers_print_range(s, t, &min, &max) < 0 || put_or_null(s, s->mean, &mean) < 0 ||
	    put_or_null(s, numbers_std(s), &std) < 0)
		return -ENOMEM;
	return buf_addf(
		out,
		"\"min\": %.*s, \"max\": %.*s, \"mean\": %.*s, \"std\": %.*s, \"nan\": %llu, "
		"\"inf\": %llu, \"zeros\": %llu",
		SPAN_ARG(buf_span(&min)), SPAN_ARG(buf_span(&max)), SPAN_ARG(buf_span(&mean)),
		SPAN_ARG(buf_span(&std)), (unsigned long long)s->nan, (unsigned long long)s->inf,
		(unsigned long long)s->zeros);
}

void numbers_histogram(enum dtype t, const void *p, size_t n, double min, double max,
		       uint64_t bins[NUMBERS_BINS])
{
	size_t size = dtype_info(t)->size;
	/* Use halves, so that a range as wide as that of the type does not overflow. */
	double half = max / 2 - min / 2, x[2 * BLOCK];
	const uint8_t *at = p;

	for (size_t i = 0; i < n; i += BLOCK) {
		size_t m = to_doubles(t, at + i * size, MIN((size_t)BLOCK, n - i), x);

		for (size_t k = 0; k < m; k++) {
			double part;

			if (!isfinite(x[k]))
				continue;
			part = half > 0 ? (x[k] / 2 - min / 2) / half : 0;
			bins[MIN((size_t)NUMBERS_BINS - 1, (size_t)(part * NUMBERS_BINS))]++;
		}
	}
}
