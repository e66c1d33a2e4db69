/* SPDX-License-Identifier: Apache-2.0 */
/*
 * t_cast.c - the rules of cast.h by example (test_casts.py compares everything with numpy), blocks,
 * conversion in place and of unaligned memory.
 */
#include "tests/unit/lib/unit.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/dtype/cast.h"

static uint64_t cast_bits(enum dtype to, enum dtype from, uint64_t bits)
{
	uint64_t out = 0;

	cast(to, &out, from, &bits, 1);
	return out;
}

static uint64_t of_f64(enum dtype to, double d)
{
	uint64_t bits;

	memcpy(&bits, &d, 8);
	return cast_bits(to, DTYPE_FLOAT64, bits);
}

static void examples(void **state)
{
	static const struct {
		enum dtype to, from;
		uint64_t in, out;
	} cases[] = {
		/* float32 -> int: the results of x86-64 for 3e9, -1 and NaN. */
		{ DTYPE_INT32, DTYPE_FLOAT32, 0x4f32d05e, 0x80000000 },
		{ DTYPE_UINT32, DTYPE_FLOAT32, 0x4f32d05e, 0xb2d05e00 },
		{ DTYPE_UINT32, DTYPE_FLOAT32, 0xbf800000, 0xffffffff },
		{ DTYPE_UINT32, DTYPE_FLOAT32, 0x7fc00000, 0x80000000 },
		{ DTYPE_INT8, DTYPE_FLOAT32, 0x4f32d05e, 0 },
		{ DTYPE_INT8, DTYPE_FLOAT32, 0x43960000, 0x2c }, /* 300 */
		{ DTYPE_UINT8, DTYPE_FLOAT32, 0xbf800000, 0xff },
		{ DTYPE_INT64, DTYPE_FLOAT32, 0x7fc00000, 0x8000000000000000 },
		{ DTYPE_UINT64, DTYPE_FLOAT32, 0x7fc00000, 0x8000000000000000 },
		{ DTYPE_UINT64, DTYPE_FLOAT32, 0xbf800000, 0xffffffffffffffff },
		{ DTYPE_UINT64, DTYPE_FLOAT32, 0x5f000000, 0x8000000000000000 }, /* 2^63 */
		{ DTYPE_UINT64, DTYPE_FLOAT32, 0x5f800000, 0 },                  /* 2^64 */
		{ DTYPE_UINT32, DTYPE_FLOAT16, 0x7e00, 0 },
		{ DTYPE_INT4, DTYPE_FLOAT32, 0x4f32d05e, 0 },
		{ DTYPE_INT4, DTYPE_FLOAT32, 0xc0000000, 0x0e },
		/* float8 -> int: NaN is 0, infinity the end of the range. */
		{ DTYPE_INT32, DTYPE_FLOAT8_E5M2, 0x7e, 0 },
		{ DTYPE_INT32, DTYPE_FLOAT8_E5M2, 0x7c, 0x7fffffff },
		{ DTYPE_INT8, DTYPE_FLOAT8_E5M2, 0xfc, 0x80 },
		{ DTYPE_UINT16, DTYPE_FLOAT8_E5M2, 0x7c, 0xffff },
		{ DTYPE_UINT64, DTYPE_FLOAT8_E5M2, 0xfc, 0 },
		{ DTYPE_INT2, DTYPE_FLOAT8_E5M2, 0x7c, 3 },
		{ DTYPE_BOOL, DTYPE_FLOAT8_E5M2, 0x7e, 1 },
		/* Integers. */
		{ DTYPE_INT4, DTYPE_INT8, 0xff, 0x0f },
		{ DTYPE_INT64, DTYPE_INT4, 0x08, 0xfffffffffffffff8 },
		{ DTYPE_INT64, DTYPE_INT4, 0x3f, 0xffffffffffffffff },
		{ DTYPE_INT2, DTYPE_INT4, 0x0e, 0x02 },
		{ DTYPE_UINT8, DTYPE_INT2, 0x02, 0xfe },
		{ DTYPE_BOOL, DTYPE_INT64, 0x100000000, 1 },
		{ DTYPE_UINT16, DTYPE_BOOL, 2, 1 },
		{ DTYPE_FLOAT32, DTYPE_UINT64, 0xffffffffffffffff, 0x5f800000 },
		{ DTYPE_FLOAT32, DTYPE_INT64, 0x4000004000000001, 0x5e800001 },
		{ DTYPE_BFLOAT16, DTYPE_INT32, 0x01010001, 0x4b80 },
		/* Small floats. */
		{ DTYPE_FLOAT16, DTYPE_BFLOAT16, 0x7f81, 0x7e00 },
		{ DTYPE_FLOAT64, DTYPE_BFLOAT16, 0xff81, 0xfff8200000000000 },
		{ DTYPE_FLOAT64, DTYPE_FLOAT16, 0x7c01, 0x7ff0040000000000 },
		{ DTYPE_FLOAT64, DTYPE_FLOAT32, 0x7f800001, 0x7ff8000020000000 },
		{ DTYPE_COMPLEX64, DTYPE_FLOAT32, 0x7f800001, 0x7f800001 },
		{ DTYPE_FLOAT8_E4M3FN, DTYPE_FLOAT8_E8M0FNU, 0x80, 0x40 },
		{ DTYPE_FLOAT8_E8M0FNU, DTYPE_INT8, 0x04, 0x81 },
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		uint64_t out = cast_bits(cases[i].to, cases[i].from, cases[i].in);

		if (out != cases[i].out)
			fail_msg("%s %llx -> %s: %llx, not %llx", dtype_info(cases[i].from)->name,
				 (unsigned long long)cases[i].in, dtype_info(cases[i].to)->name,
				 (unsigned long long)out, (unsigned long long)cases[i].out);
	}
}

/* float64 is rounded to float32 first, as in ml_dtypes; float16 is not. */
static void double_rounding_is_that_of_ml_dtypes(void **state)
{
	assert_int_equal(of_f64(DTYPE_FLOAT8_E4M3FN, 1 + 0x1p-4 + 0x1p-40), 0x38);
	assert_int_equal(of_f64(DTYPE_FLOAT8_E5M2, 1 + 0x1p-3 + 0x1p-40), 0x3c);
	assert_int_equal(of_f64(DTYPE_BFLOAT16, 1 + 0x1p-8 + 0x1p-40), 0x3f80);
	assert_int_equal(of_f64(DTYPE_FLOAT16, 1 + 0x1p-11 + 0x1p-40), 0x3c01);
}

static void complex_numbers(void **state)
{
	float z[4] = { 1.5f, -2, 0, 3 };
	double w[4];
	float re[2];
	uint8_t b[2];

	cast(DTYPE_COMPLEX128, w, DTYPE_COMPLEX64, z, 2);
	assert_true(w[0] == 1.5 && w[1] == -2 && w[2] == 0 && w[3] == 3);
	cast(DTYPE_FLOAT32, re, DTYPE_COMPLEX64, z, 2);
	assert_true(re[0] == 1.5f && re[1] == 0);
	cast(DTYPE_BOOL, b, DTYPE_COMPLEX64, z, 2);
	assert_true(b[0] == 1 && b[1] == 1);
	w[3] = 0;
	cast(DTYPE_BOOL, b, DTYPE_COMPLEX128, w, 2);
	assert_true(b[0] == 1 && b[1] == 0);
	cast(DTYPE_COMPLEX128, w, DTYPE_FLOAT32, re, 2);
	assert_true(w[0] == 1.5 && w[1] == 0 && w[2] == 0 && w[3] == 0);
}

/* Blocks, tables and the last few elements give the same as single elements. */
static void arrays_convert_like_single_elements(void **state)
{
	static const size_t counts[] = { 0, 1, 7, 9, 511, 512, 513, 1023, 1024, 1100 };
	static uint8_t in[1100 * 16], whole[1100 * 16 + 1], one[1100 * 16];
	unsigned seed = 1;

	for (size_t i = 0; i < sizeof(in); i++) {
		seed = seed * 1664525u + 1013904223u;
		in[i] = (uint8_t)(seed >> 24);
	}
	for (int from = DTYPE_BOOL; from < DTYPE_COUNT; from++) {
		for (int to = DTYPE_BOOL; to < DTYPE_COUNT; to++) {
			size_t a = dtype_info(from)->size, b = dtype_info(to)->size;

			for (size_t k = 0; k < 1100; k++)
				cast(to, one + k * b, from, in + k * a, 1);
			for (size_t i = 0; i < ARRAY_LEN(counts); i++) {
				/* Unaligned, and not one byte too far. */
				memset(whole, 0xee, sizeof(whole));
				cast(to, whole + 1, from, in, counts[i]);
				if (memcmp(whole + 1, one, counts[i] * b) != 0)
					fail_msg("%s -> %s: %zu elements", dtype_info(from)->name,
						 dtype_info(to)->name, counts[i]);
				assert_int_equal(whole[0], 0xee);
				if (counts[i] < 1100)
					assert_int_equal(whole[1 + counts[i] * b], 0xee);
			}
			if (a != b)
				continue;
			memcpy(whole, in, 1100 * a);
			cast(to, whole, from, whole, 1100);
			assert_memory_equal(whole, one, 1100 * b);
		}
	}
}

static void swapping_changes_words_not_elements(void **state)
{
	static const struct {
		enum dtype t;
		const char *before, *after;
	} cases[] = {
		{ DTYPE_UINT8, "abcdefgh", "abcdefgh" },
		{ DTYPE_BFLOAT16, "abcdefgh", "badcfehg" },
		{ DTYPE_INT32, "abcdefgh", "dcbahgfe" },
		{ DTYPE_COMPLEX64, "abcdefgh", "dcbahgfe" },
		{ DTYPE_FLOAT64, "abcdefgh", "hgfedcba" },
		{ DTYPE_COMPLEX128, "abcdefghijklmnop", "hgfedcbaponmlkji" },
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		char text[17];
		size_t n = strlen(cases[i].before);

		memcpy(text, cases[i].before, n + 1);
		cast_swap(cases[i].t, text, n / dtype_info(cases[i].t)->size);
		assert_string_equal(text, cases[i].after);
	}
}

static void unused_bits_are_cleared(void **state)
{
	uint8_t bytes[3] = { 0xff, 0x3f, 0xf8 };

	cast_canonical(DTYPE_INT8, bytes, 3);
	assert_int_equal(bytes[0], 0xff);
	cast_canonical(DTYPE_INT4, bytes, 3);
	assert_true(bytes[0] == 0x0f && bytes[1] == 0x0f && bytes[2] == 0x08);
	cast_canonical(DTYPE_INT2, bytes, 3);
	assert_true(bytes[0] == 3 && bytes[1] == 3 && bytes[2] == 0);
	bytes[0] = 0xfe;
	cast(DTYPE_FLOAT4_E2M1FN, bytes, DTYPE_FLOAT4_E2M1FN, bytes, 1);
	assert_int_equal(bytes[0], 0x0e);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(examples),
		cmocka_unit_test(double_rounding_is_that_of_ml_dtypes),
		cmocka_unit_test(complex_numbers),
		cmocka_unit_test(arrays_convert_like_single_elements),
		cmocka_unit_test(swapping_changes_words_not_elements),
		cmocka_unit_test(unused_bits_are_cleared),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
