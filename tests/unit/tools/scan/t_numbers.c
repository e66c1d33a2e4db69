/* SPDX-License-Identifier: Apache-2.0 */
/*
 * t_numbers.c - sums, extremes, histograms and differences of elements.
 */
#include "tests/unit/lib/unit.h"

#include <math.h>
#include <stdlib.h>

#include "core/dtype/cast.h"
#include "tools/scan/numbers.h"

static void close_to(double a, double b)
{
	if (!(fabs(a - b) <= 1e-12 * MAX(1.0, fabs(b))))
		fail_msg("%.17g is not %.17g", a, b);
}

static double number(size_t i)
{
	return (double)((i * 2654435761u) % 1000) / 7 - 50;
}

static void moments_are_those_of_the_definition(void **state)
{
	static double x[10001];
	struct numbers s = { 0 }, parts = { 0 };
	double sum = 0, square = 0;
	size_t n = ARRAY_LEN(x);

	for (size_t i = 0; i < n; i++)
		sum += x[i] = number(i);
	for (size_t i = 0; i < n; i++)
		square += (x[i] - sum / (double)n) * (x[i] - sum / (double)n);
	numbers_add(&s, DTYPE_FLOAT64, x, n);
	assert_int_equal(s.n, n);
	close_to(s.mean, sum / (double)n);
	close_to(numbers_std(&s), sqrt(square / (double)n));
	/* In parts of any size it is the same. */
	for (size_t i = 0, m; i < n; i += m) {
		struct numbers part = { 0 };

		m = MIN(n - i, i % 777 + 1);
		numbers_add(&part, DTYPE_FLOAT64, x + i, m);
		numbers_merge(&parts, DTYPE_FLOAT64, &part);
	}
	close_to(parts.mean, s.mean);
	close_to(numbers_std(&parts), numbers_std(&s));
	assert_true(parts.min == s.min && parts.max == s.max && parts.zeros == s.zeros);
}

static void a_large_offset_loses_no_digits(void **state)
{
	static double x[5000];
	struct numbers s = { 0 };

	for (size_t i = 0; i < ARRAY_LEN(x); i++)
		x[i] = 1e9 + (i & 1 ? 0.5 : -0.5);
	numbers_add(&s, DTYPE_FLOAT64, x, ARRAY_LEN(x));
	assert_true(fabs(numbers_std(&s) - 0.5) < 1e-6);
}

static void nan_and_infinities_are_counted_apart(void **state)
{
	float x[3000];
	struct numbers s = { 0 };

	for (size_t i = 0; i < ARRAY_LEN(x); i++)
		x[i] = i % 10 == 3 ? NAN :
		       i % 10 == 5 ? INFINITY :
		       i % 10 == 7 ? -INFINITY :
		       i % 10 == 8 ? -0.0f :
				     2;
	numbers_add(&s, DTYPE_FLOAT32, x, ARRAY_LEN(x));
	assert_int_equal(s.nan, 300);
	assert_int_equal(s.inf, 600);
	assert_int_equal(s.zeros, 300);
	assert_int_equal(s.n, 2100);
	assert_true(s.min == 0 && s.max == 2);
}

static void huge_numbers_have_a_mean(void **state)
{
	double x[] = { 1.7e308, 1.7e308, 1.7e308, 1.7e308 };
	struct numbers s = { 0 };

	numbers_add(&s, DTYPE_FLOAT64, x, 4);
	assert_true(s.mean == 1.7e308 && s.max == 1.7e308);
}

static void extremes_of_wide_integers_are_exact(void **state)
{
	int64_t x[] = { INT64_MAX, INT64_MAX - 1, INT64_MIN + 1, 0 };
	uint64_t u[] = { UINT64_MAX - 1, 3, UINT64_MAX };
	struct numbers s = { 0 }, t = { 0 }, whole = { 0 };
	auto_buf lo = { 0 }, hi = { 0 };

	numbers_add(&s, DTYPE_INT64, x, 4);
	numbers_add(&t, DTYPE_UINT64, u, 2);
	numbers_merge(&whole, DTYPE_UINT64, &t);
	t = (struct numbers){ 0 };
	numbers_add(&t, DTYPE_UINT64, u + 2, 1);
	numbers_merge(&whole, DTYPE_UINT64, &t);
	numbers_print_range(&s, DTYPE_INT64, &lo, &hi);
	assert_string_equal(buf_str(&lo), "-9223372036854775807");
	assert_string_equal(buf_str(&hi), "9223372036854775807");
	buf_clear(&lo);
	buf_clear(&hi);
	numbers_print_range(&whole, DTYPE_UINT64, &lo, &hi);
	assert_string_equal(buf_str(&lo), "3");
	assert_string_equal(buf_str(&hi), "18446744073709551615");
}

static void nothing_has_no_extremes(void **state)
{
	struct numbers s = { 0 };
	auto_buf out = { 0 };

	numbers_add(&s, DTYPE_FLOAT32, "", 0);
	assert_int_equal(numbers_json(&s, DTYPE_FLOAT32, &out), 0);
	assert_string_equal(
		buf_str(&out),
		"\"min\": null, \"max\": null, \"mean\": null, \"std\": null, \"nan\": 0, \"inf\": 0, \"zeros\": 0");
}

static void complex_numbers_count_twice(void **state)
{
	float x[] = { 1, -2, NAN, 4 };
	struct numbers s = { 0 };
	auto_buf lo = { 0 }, hi = { 0 };

	numbers_add(&s, DTYPE_COMPLEX64, x, 2);
	assert_int_equal(s.n, 3);
	assert_int_equal(s.nan, 1);
	numbers_print_range(&s, DTYPE_COMPLEX64, &lo, &hi);
	assert_string_equal(buf_str(&lo), "-2.0");
}

static void bins_hold_every_finite_number(void **state)
{
	double x[] = { 0, 0.5, 1, 1, 48, 47.5, 24, NAN, INFINITY };
	double wide[] = { -1.7e308, 1.7e308, 0 };
	uint64_t bins[NUMBERS_BINS] = { 0 }, one[NUMBERS_BINS] = { 0 }, far[NUMBERS_BINS] = { 0 };

	numbers_histogram(DTYPE_FLOAT64, x, ARRAY_LEN(x), 0, 48, bins);
	assert_int_equal(bins[0], 2);
	assert_int_equal(bins[1], 2);
	assert_int_equal(bins[24], 1);
	assert_int_equal(bins[47], 2);
	numbers_histogram(DTYPE_FLOAT64, x, 1, 0, 0, one);
	assert_int_equal(one[0], 1);
	numbers_histogram(DTYPE_FLOAT64, wide, 3, -1.7e308, 1.7e308, far);
	assert_int_equal(far[0], 1);
	assert_int_equal(far[NUMBERS_BINS / 2], 1);
	assert_int_equal(far[NUMBERS_BINS - 1], 1);
}

static struct numbers_diff compare(enum dtype t, const double *a, const double *b, size_t n,
				   double absolute, double relative)
{
	uint8_t x[16 * 16], y[16 * 16];
	struct numbers_diff d = { 0 };

	cast(t, x, DTYPE_FLOAT64, a, n);
	cast(t, y, DTYPE_FLOAT64, b, n);
	numbers_compare(&d, t, x, y, n, (struct tolerance){ absolute, relative }, 100);
	return d;
}

static void differences(void **state)
{
	static const struct {
		enum dtype t;
		double a, b, absolute;
		uint64_t n, ulp;
		double abs, relative;
	} cases[] = {
		{ DTYPE_FLOAT32, 1, 1, 0, 0, 0, 0 },
		{ DTYPE_FLOAT32, 1, 1.0000001192092896, 0, 1, 1, 1.1920928955078125e-07 },
		{ DTYPE_FLOAT32, 1, 1.0000001192092896, 1e-6, 0, 0, 0 },
		{ DTYPE_FLOAT64, 1, 1 + 0x1p-52, 0, 1, 1, 0x1p-52 },
		{ DTYPE_BFLOAT16, 1, 1.0078125, 0, 1, 1, 0.0078125 },
		{ DTYPE_FLOAT16, -1, 1, 0, 1, 2 * 0x3c00, 2 },
		{ DTYPE_FLOAT8_E4M3FN, 448, -448, 0, 1, 2 * 0x7e, 896 },
		{ DTYPE_FLOAT32, 0.0, -0.0, 0, 1, 0, 0 },
		{ DTYPE_FLOAT32, 0.0, -0.0, 1e-30, 0, 0, 0 },
		{ DTYPE_FLOAT32, INFINITY, -INFINITY, 0, 1, 2u * 0x7f800000u, INFINITY },
		{ DTYPE_FLOAT32, NAN, -NAN, 0, 0, 0, 0 },
		{ DTYPE_INT32, 5, -3, 0, 1, 0, 8 },
		{ DTYPE_INT32, 5, -3, 8, 0, 0, 0 },
		{ DTYPE_BOOL, 1, 0, 0, 1, 0, 1 },
		/* Relative to the second one, as by numpy.isclose(); no infinity is near. */
		{ DTYPE_FLOAT64, 110, 100, 0, 0, 0, 0, 0.1 },
		{ DTYPE_FLOAT32, 5, 3, 1, 0, 0, 0, 0.5 },
		{ DTYPE_INT32, 91, 100, 0, 0, 0, 0, 0.09 },
		{ DTYPE_INT32, 100, 90, 0, 1, 0, 10, 0.1 },
		{ DTYPE_FLOAT64, 1, INFINITY, 0, 1, 0x7ff0000000000000u - 0x3ff0000000000000u,
		  INFINITY, 1 },
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct numbers_diff d = compare(cases[i].t, &cases[i].a, &cases[i].b, 1,
						cases[i].absolute, cases[i].relative);

		if (d.n != cases[i].n || d.max_ulp != cases[i].ulp || d.max_abs != cases[i].abs)
			fail_msg("case %zu: n %llu ulp %llu abs %.17g", i, (unsigned long long)d.n,
				 (unsigned long long)d.max_ulp, d.max_abs);
		assert_int_equal(d.n ? d.first : 100, 100);
	}
}

static void nan_on_one_side_is_a_difference(void **state)
{
	double a[] = { 1, NAN, 3 }, b[] = { 1, 2, 3 };
	struct numbers_diff d = compare(DTYPE_FLOAT32, a, b, 3, 1e9, 0);

	assert_int_equal(d.n, 1);
	assert_int_equal(d.one_nan, 1);
	assert_int_equal(d.first, 101);
}

static void wide_integers_differ_exactly(void **state)
{
	int64_t a[] = { INT64_MAX }, b[] = { INT64_MAX - 1 };
	uint64_t u[] = { UINT64_MAX }, v[] = { UINT64_MAX - 3 };
	struct numbers_diff d = { 0 }, e = { 0 };

	numbers_compare(&d, DTYPE_INT64, a, b, 1, (struct tolerance){ 0 }, 0);
	assert_true(d.n == 1 && d.max_abs == 1);
	numbers_compare(&e, DTYPE_UINT64, u, v, 1, (struct tolerance){ 3, 0 }, 0);
	assert_int_equal(e.n, 0);
}

static void types_are_compared_as_numbers(void **state)
{
	float a[] = { 1, 2, 0.0f, NAN, 5 };
	double b[] = { 1, 2.5, -0.0, NAN, 5 };
	struct numbers_diff d = { 0 };

	numbers_compare_mixed(&d, DTYPE_FLOAT32, a, DTYPE_FLOAT64, b, 5, (struct tolerance){ 0 },
			      7);
	assert_int_equal(d.n, 1);
	assert_int_equal(d.first, 8);
	assert_true(d.max_abs == 0.5 && !d.has_ulp);
	assert_true(d.squares == 0.25 && d.squares_other == 0.25 && d.squares_a == 4);
}

static void sums_are_of_elements_beyond_the_tolerance(void **state)
{
	double a[] = { 1, 1, 2, INFINITY }, b[] = { 1.25, 1, 5, 0 };
	struct numbers_diff d = compare(DTYPE_COMPLEX64, a, b, 3, 0, 0);

	/* Real parts; the equal imaginary ones are zero. */
	assert_true(d.n == 2 && d.squares == 9.0625 && d.squares_other == 9.0625 &&
		    d.squares_a == 5);
	d = compare(DTYPE_COMPLEX64, a, b, 4, 0, 0);
	assert_true(d.n == 3 && isinf(d.squares) && isinf(d.squares_other) && isinf(d.squares_a));
	d = compare(DTYPE_FLOAT32, a, b, 3, 0.5, 0);
	assert_true(d.n == 1 && d.squares == 9.0625 && d.squares_other == 9 && d.squares_a == 4);
	/* An element with one other part differs as a whole. */
	d = (struct numbers_diff){ 0 };
	numbers_compare(&d, DTYPE_COMPLEX128, (double[]){ 3, 4 }, (double[]){ 3, 5 }, 1,
			(struct tolerance){ 0 }, 0);
	assert_true(d.n == 1 && d.squares_other == 1 && d.squares_a == 25);
}

static void parts_of_a_difference_add_up(void **state)
{
	struct numbers_diff a = { .n = 2, .first = 70, .max_abs = 1, .max_ulp = 9, .has_ulp = true },
			    b = { .n = 1,
				  .first = 3,
				  .max_abs = 4,
				  .max_ulp = 2,
				  .squares = 3,
				  .squares_other = 2,
				  .squares_a = 1 };

	numbers_diff_merge(&a, &b);
	assert_true(a.n == 3 && a.first == 3 && a.max_abs == 4 && a.max_ulp == 9);
	assert_true(a.squares == 3 && a.squares_other == 2 && a.squares_a == 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(moments_are_those_of_the_definition),
		cmocka_unit_test(a_large_offset_loses_no_digits),
		cmocka_unit_test(nan_and_infinities_are_counted_apart),
		cmocka_unit_test(huge_numbers_have_a_mean),
		cmocka_unit_test(extremes_of_wide_integers_are_exact),
		cmocka_unit_test(nothing_has_no_extremes),
		cmocka_unit_test(complex_numbers_count_twice),
		cmocka_unit_test(bins_hold_every_finite_number),
		cmocka_unit_test(differences),
		cmocka_unit_test(nan_on_one_side_is_a_difference),
		cmocka_unit_test(wide_integers_differ_exactly),
		cmocka_unit_test(types_are_compared_as_numbers),
		cmocka_unit_test(sums_are_of_elements_beyond_the_tolerance),
		cmocka_unit_test(parts_of_a_difference_add_up),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
