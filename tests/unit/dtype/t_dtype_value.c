/* SPDX-License-Identifier: Apache-2.0 */
/*
 * t_dtype_value.c - one element as JSON text and back; texts that are not a value of a type.
 */
#include "tests/unit/lib/unit.h"

#include <string.h>

#include "core/dtype/dtype.h"

static int parse(enum dtype t, const char *text, void *element)
{
	auto_json d = { 0 };

	assert_int_equal(json_parse(span_str(text), "value", &d), 0);
	return dtype_value_parse(t, d.root, element);
}

static void values_are_printed_and_parsed(void **state)
{
	static const struct {
		enum dtype t;
		uint64_t bits;
		const char *text;
	} cases[] = {
		{ DTYPE_BOOL, 1, "true" },
		{ DTYPE_BOOL, 0, "false" },
		{ DTYPE_INT4, 0x08, "-8" },
		{ DTYPE_INT2, 0x03, "-1" },
		{ DTYPE_INT64, 0x8000000000000000, "-9223372036854775808" },
		{ DTYPE_UINT64, 0xffffffffffffffff, "18446744073709551615" },
		{ DTYPE_FLOAT64, 0x3fb999999999999a, "0.1" },
		{ DTYPE_FLOAT64, 0x4341c37937e08000, "1e+16" },
		{ DTYPE_FLOAT64, 1, "5e-324" },
		{ DTYPE_FLOAT64, 0x8000000000000000, "-0.0" },
		{ DTYPE_FLOAT64, 0x7ff0000000000000, "\"Infinity\"" },
		{ DTYPE_FLOAT32, 0x3dcccccd, "0.1" },
		{ DTYPE_FLOAT32, 0x7f7fffff, "3.4028235e+38" },
		{ DTYPE_FLOAT32, 1, "1e-45" },
		{ DTYPE_FLOAT32, 0xff800000, "\"-Infinity\"" },
		{ DTYPE_FLOAT32, 0x7fc00000, "\"NaN\"" },
		{ DTYPE_FLOAT16, 0x7bff, "65500.0" },
		{ DTYPE_FLOAT16, 0x2e66, "0.1" },
		{ DTYPE_BFLOAT16, 0x3dcd, "0.1" },
		{ DTYPE_BFLOAT16, 0x7f7f, "3.39e+38" },
		{ DTYPE_FLOAT8_E4M3FN, 0x7e, "450.0" },
		{ DTYPE_FLOAT8_E8M0FNU, 0x7f, "1.0" },
		{ DTYPE_FLOAT4_E2M1FN, 0x0f, "-6.0" },
		{ DTYPE_COMPLEX64, 0xbf8000003dcccccd, "[0.1, -1.0]" },
		{ DTYPE_COMPLEX64, 0x7f8000007fc00000, "[\"NaN\", \"Infinity\"]" },
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		uint8_t again[LIMIT_ITEM_BYTES] = { 0 };
		auto_buf text = { 0 };

		assert_int_equal(dtype_value_print(cases[i].t, &cases[i].bits, &text), 0);
		assert_string_equal(buf_str(&text), cases[i].text);
		assert_int_equal(parse(cases[i].t, cases[i].text, again), 0);
		assert_memory_equal(again, &cases[i].bits, dtype_info(cases[i].t)->size);
	}
}

static void high_bits_of_small_types_are_not_printed(void **state)
{
	uint8_t sign_extended = 0xff;
	auto_buf text = { 0 };

	assert_int_equal(dtype_value_print(DTYPE_INT4, &sign_extended, &text), 0);
	assert_string_equal(buf_str(&text), "-1");
	buf_clear(&text);
	assert_int_equal(dtype_value_print(DTYPE_FLOAT4_E2M1FN, &sign_extended, &text), 0);
	assert_string_equal(buf_str(&text), "-6.0");
}

static void numbers_are_rounded_and_words_accepted(void **state)
{
	uint8_t e[LIMIT_ITEM_BYTES] = { 0 };
	float f;

	assert_int_equal(parse(DTYPE_FLOAT32, "0.10000000149011612", e), 0);
	memcpy(&f, e, 4);
	assert_true(f == 0.1f);
	assert_int_equal(parse(DTYPE_FLOAT32, "3", e), 0);
	assert_int_equal(parse(DTYPE_INT32, "5.0", e), 0);
	assert_int_equal(e[0], 5);
	assert_int_equal(parse(DTYPE_UINT64, "1.8446744073709550e19", e), 0);
	assert_int_equal(parse(DTYPE_FLOAT16, "Infinity", e), 0);
	assert_int_equal(parse(DTYPE_FLOAT8_E4M3FN, "NaN", e), 0);
	assert_int_equal(e[0], 0x7f);
	assert_int_equal(parse(DTYPE_FLOAT8_E4M3FN, "464", e), 0);
	assert_int_equal(e[0], 0x7e);
	assert_int_equal(parse(DTYPE_COMPLEX128, "[1, \"-Infinity\"]", e), 0);
}

static void a_refused_value_leaves_the_element_unchanged(void **state)
{
	static const struct {
		enum dtype t;
		const char *text, *want;
	} cases[] = {
		{ DTYPE_BOOL, "1", "value is not true or false of bool" },
		{ DTYPE_INT8, "128", "value is out of the range of int8" },
		{ DTYPE_INT8, "-129", "value is out of the range of int8" },
		{ DTYPE_INT4, "8", "value is out of the range of int4" },
		{ DTYPE_INT2, "-3", "value is out of the range of int2" },
		{ DTYPE_INT64, "9223372036854775808", "value is not an integer of int64" },
		{ DTYPE_UINT8, "-1", "value is out of the range of uint8" },
		{ DTYPE_UINT8, "256", "value is out of the range of uint8" },
		{ DTYPE_UINT64, "18446744073709551616", "value is not an integer of uint64" },
		{ DTYPE_INT32, "1.5", "value is not an integer of int32" },
		{ DTYPE_INT32, "\"1\"", "value is not an integer of int32" },
		{ DTYPE_FLOAT32, "1e39", "value is out of the range of float32" },
		{ DTYPE_FLOAT16, "65520", "value is out of the range of float16" },
		{ DTYPE_FLOAT8_E4M3FN, "465", "value is out of the range of float8_e4m3fn" },
		{ DTYPE_FLOAT8_E4M3FN, "Infinity", "value is out of the range of float8_e4m3fn" },
		{ DTYPE_FLOAT8_E8M0FNU, "-1", "value is out of the range of float8_e8m0fnu" },
		{ DTYPE_FLOAT4_E2M1FN, "7", "value is out of the range of float4_e2m1fn" },
		{ DTYPE_FLOAT4_E2M1FN, "NaN", "value is out of the range of float4_e2m1fn" },
		{ DTYPE_FLOAT64, "\"nan\"", "value is not a number of float64" },
		{ DTYPE_FLOAT64, "null", "value is not a number of float64" },
		{ DTYPE_COMPLEX64, "1", "value is not [re, im] of complex64" },
		{ DTYPE_COMPLEX64, "[1, 2, 3]", "value is not [re, im] of complex64" },
		{ DTYPE_COMPLEX64, "[1, 1e39]", "value is out of the range of float32" },
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		uint8_t e[LIMIT_ITEM_BYTES], same[LIMIT_ITEM_BYTES];

		memset(e, 0x5a, sizeof(e));
		memset(same, 0x5a, sizeof(same));
		assert_int_equal(parse(cases[i].t, cases[i].text, e), -EINVAL);
		assert_string_equal(err_text(-EINVAL), cases[i].want);
		assert_memory_equal(e, same, sizeof(e));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(values_are_printed_and_parsed),
		cmocka_unit_test(high_bits_of_small_types_are_not_printed),
		cmocka_unit_test(numbers_are_rounded_and_words_accepted),
		cmocka_unit_test(a_refused_value_leaves_the_element_unchanged),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
