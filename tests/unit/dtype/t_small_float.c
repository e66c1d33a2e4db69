/* SPDX-License-Identifier: Apache-2.0 */
/*
 * t_small_float.c - bits of the float types below 32 bits: special values, rounding to nearest, and
 * the round trip of every code.
 */
#include "tests/unit/lib/unit.h"

#include <math.h>
#include <stdlib.h>

#include "core/dtype/small_float.h"

static const enum dtype smalls[] = {
	DTYPE_FLOAT4_E2M1FN,      DTYPE_FLOAT8_E3M4, DTYPE_FLOAT8_E4M3FN,   DTYPE_FLOAT8_E4M3FNUZ,
	DTYPE_FLOAT8_E4M3B11FNUZ, DTYPE_FLOAT8_E5M2, DTYPE_FLOAT8_E5M2FNUZ, DTYPE_FLOAT8_E8M0FNU,
};

static unsigned codes_of(enum dtype t)
{
	return t == DTYPE_FLOAT4_E2M1FN ? 16 : 256;
}

static void special_values(void **state)
{
	static const struct {
		enum dtype t;
		uint8_t one, top, inf, minus_inf, nan, minus_nan, minus_zero;
		float largest;
	} cases[] = {
		{ DTYPE_FLOAT4_E2M1FN, 0x02, 0x07, 0x07, 0x0f, 0x08, 0x00, 0x08, 6 },
		{ DTYPE_FLOAT8_E3M4, 0x30, 0x6f, 0x70, 0xf0, 0x78, 0xf8, 0x80, 15.5 },
		{ DTYPE_FLOAT8_E4M3FN, 0x38, 0x7e, 0x7f, 0xff, 0x7f, 0xff, 0x80, 448 },
		{ DTYPE_FLOAT8_E4M3FNUZ, 0x40, 0x7f, 0x80, 0x80, 0x80, 0x80, 0x00, 240 },
		{ DTYPE_FLOAT8_E4M3B11FNUZ, 0x58, 0x7f, 0x80, 0x80, 0x80, 0x80, 0x00, 30 },
		{ DTYPE_FLOAT8_E5M2, 0x3c, 0x7b, 0x7c, 0xfc, 0x7e, 0xfe, 0x80, 57344 },
		{ DTYPE_FLOAT8_E5M2FNUZ, 0x40, 0x7f, 0x80, 0x80, 0x80, 0x80, 0x00, 57344 },
		{ DTYPE_FLOAT8_E8M0FNU, 0x7f, 0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0x1p127f },
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		enum dtype t = cases[i].t;

		assert_true(small_is(t));
		assert_int_equal(small_from_f64(t, 1), cases[i].one);
		assert_true(small_to_f32(t, cases[i].one) == 1);
		assert_int_equal(small_from_f64(t, cases[i].largest), cases[i].top);
		assert_true(small_to_f32(t, cases[i].top) == cases[i].largest);
		assert_int_equal(small_from_f64(t, INFINITY), cases[i].inf);
		assert_int_equal(small_from_f64(t, -INFINITY), cases[i].minus_inf);
		assert_int_equal(small_from_f64(t, NAN), cases[i].nan);
		assert_int_equal(small_from_f64(t, -NAN), cases[i].minus_nan);
		assert_int_equal(small_from_f64(t, -0.0), cases[i].minus_zero);
		assert_int_equal(small_from_f64(t, 1e300), cases[i].inf);
	}
	assert_false(small_is(DTYPE_FLOAT16));
	assert_false(small_is(DTYPE_UINT8));
	/* Bits above the low four are ignored. */
	assert_true(small_to_f32(DTYPE_FLOAT4_E2M1FN, 0xf2) == 1);
	assert_true(small_to_f32(DTYPE_FLOAT8_E8M0FNU, 0) == 0x1p-127f);
}

static void every_code_survives_a_round_trip(void **state)
{
	for (size_t i = 0; i < ARRAY_LEN(smalls); i++) {
		for (unsigned code = 0; code < codes_of(smalls[i]); code++) {
			float x = small_to_f32(smalls[i], (uint8_t)code);

			if (isnan(x))
				assert_true(isnan(small_to_f32(smalls[i],
							       small_from_f64(smalls[i], x))) ||
					    smalls[i] == DTYPE_FLOAT4_E2M1FN);
			else
				assert_int_equal(small_from_f64(smalls[i], x), code);
		}
	}
	for (unsigned h = 0; h < 65536; h++) {
		assert_int_equal(f16_from_f32(f16_to_f32((uint16_t)h)), h);
		assert_int_equal(f16_from_f64(f16_to_f64((uint16_t)h)), h);
		if (!isnan(f32_of(h << 16)))
			assert_int_equal(bf16_from_f32(f32_of(h << 16)), h);
	}
}

/* The nearest finite number, found by comparing all; of two, the one with the even code. */
static double nearest(enum dtype t, double x)
{
	double best = NAN;
	unsigned at = 0;

	for (unsigned code = 0; code < codes_of(t); code++) {
		double y = small_to_f32(t, (uint8_t)code);

		if (!isfinite(y))
			continue;
		if (isnan(best) || fabs(y - x) < fabs(best - x) ||
		    (fabs(y - x) == fabs(best - x) && (at & 1) && !(code & 1))) {
			best = y;
			at = code;
		}
	}
	return best;
}

static void rounding_is_to_the_nearest_and_even(void **state)
{
	uint64_t seed = 1;

	for (size_t i = 0; i + 1 < ARRAY_LEN(smalls); i++) {
		enum dtype t = smalls[i];

		for (int n = 0; n < 20000; n++) {
			double x, y;

			seed = seed * 6364136223846793005u + 1442695040888963407u;
			x = ldexp((double)(seed >> 11), (int)(seed >> 5 & 31) - 72);
			/* Half-way between two neighbours, and just beside that. */
			if (n & 1) {
				uint8_t code = (uint8_t)(seed >> 20) % (codes_of(t) / 2 - 2);

				x = (small_to_f32(t, code) + (double)small_to_f32(t, code + 1)) / 2;
				if (n & 2)
					x = nextafter(x, n & 4 ? INFINITY : 0);
			}
			y = small_to_f32(t, small_from_f64(t, x));
			if (isfinite(y) && isfinite(x) && y != nearest(t, x))
				fail_msg("%s: %.17g gives %g, nearest is %g", dtype_info(t)->name,
					 x, y, nearest(t, x));
		}
	}
}

static void ties_of_float8_e8m0fnu_go_up(void **state)
{
	static const struct {
		double x;
		uint8_t code;
	} cases[] = {
		{ 1.25, 127 },   { 1.49, 127 },      { 1.5, 128 },        { 3, 129 },
		{ 0.75, 127 },   { 0x1p-127, 0 },    { 0x1.4p-127, 1 },   { 0x1.8p-128, 0 },
		{ 0x1p-149, 0 }, { 0x1.8p127, 255 }, { 0x1.7fp127, 254 }, { -1, 255 },
		{ 0, 255 },      { 1e300, 255 },
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++)
		assert_int_equal(small_from_f64(DTYPE_FLOAT8_E8M0FNU, cases[i].x), cases[i].code);
}

static void float16_is_rounded_once_and_keeps_payloads(void **state)
{
	/* Just above half-way; rounded to float it would be half-way, and then go to even. */
	double x = 1 + 0x1p-11 + 0x1p-40;

	assert_int_equal(f16_from_f64(x), 0x3c01);
	assert_int_equal(f16_from_f32((float)x), 0x3c00);
	assert_int_equal(f16_from_f64(65519.9), 0x7bff);
	assert_int_equal(f16_from_f64(65520), 0x7c00);
	assert_int_equal(f16_from_f64(0x1p-25), 0);
	assert_int_equal(f16_from_f64(0x1.8p-25), 1);
	assert_int_equal(f16_from_f32(f32_of(0x7f800001)), 0x7c01);
	assert_int_equal(f16_from_f32(f32_of(0xffbff534)), 0xfdff);
	assert_int_equal(f16_from_f64(f64_of(0xfff0040000000000)), 0xfc01);
	assert_int_equal(f32_bits(f16_to_f32(0x7c01)), 0x7f802000);
	assert_true(f64_bits(f16_to_f64(0xfc01)) == 0xfff0040000000000);
	assert_true(f16_to_f32(0x0001) == 0x1p-24f && f16_to_f32(0x83ff) == -0x1.ff8p-15f);
}

static void bfloat16_has_one_nan(void **state)
{
	assert_int_equal(bf16_from_f32(f32_of(0x7f800001)), 0x7fc0);
	assert_int_equal(bf16_from_f32(f32_of(0xffffffff)), 0xffc0);
	assert_int_equal(bf16_from_f32(f32_of(0x7f7fffff)), 0x7f80);
	assert_int_equal(bf16_from_f32(f32_of(0x3f808000)), 0x3f80);
	assert_int_equal(bf16_from_f32(f32_of(0x3f818000)), 0x3f82);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(special_values),
		cmocka_unit_test(every_code_survives_a_round_trip),
		cmocka_unit_test(rounding_is_to_the_nearest_and_even),
		cmocka_unit_test(ties_of_float8_e8m0fnu_go_up),
		cmocka_unit_test(float16_is_rounded_once_and_keeps_payloads),
		cmocka_unit_test(bfloat16_has_one_nan),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
