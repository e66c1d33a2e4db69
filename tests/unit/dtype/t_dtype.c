/* SPDX-License-Identifier: Apache-2.0 */
/*
 * t_dtype.c - every spelling of every type, and texts that are not one.
 */
#include "tests/unit/lib/unit.h"

#include "core/dtype/dtype.h"

static void every_type_is_found_by_each_of_its_names(void **state)
{
	for (int t = DTYPE_BOOL; t < DTYPE_COUNT; t++) {
		const struct dtype_info *i = dtype_info(t);
		bool big = true;

		assert_int_equal(dtype_by_name(span_str(i->name)), t);
		assert_int_equal(dtype_by_v2(span_str(i->v2), &big), t);
		assert_false(big);
		if (i->safetensors)
			assert_int_equal(dtype_by_safetensors(span_str(i->safetensors)), t);
		if (i->npy[1] != 'V')
			assert_int_equal(dtype_by_npy(span_str(i->npy), &big), t);
		assert_int_equal(dtype_by_npy(span_str(i->name), &big), t);
		assert_int_equal(i->size % i->word, 0);
		assert_true(i->bits == 8 * i->size || (i->size == 1 && i->bits < 8));
	}
}

static void names_that_people_write(void **state)
{
	static const struct {
		const char *text;
		enum dtype t;
	} cases[] = {
		{ "bf16", DTYPE_BFLOAT16 },
		{ "f16", DTYPE_FLOAT16 },
		{ "f32", DTYPE_FLOAT32 },
		{ "f64", DTYPE_FLOAT64 },
		{ "i8", DTYPE_INT8 },
		{ "i64", DTYPE_INT64 },
		{ "u16", DTYPE_UINT16 },
		{ "c64", DTYPE_COMPLEX64 },
		{ "c128", DTYPE_COMPLEX128 },
		{ "f8_e4m3fn", DTYPE_FLOAT8_E4M3FN },
		{ "F8_E4M3", DTYPE_FLOAT8_E4M3FN },
		{ "BF16", DTYPE_BFLOAT16 },
		{ "Bf16", DTYPE_BFLOAT16 },
		{ "FLOAT32", DTYPE_FLOAT32 },
		{ "Int8", DTYPE_INT8 },
		{ "bool", DTYPE_BOOL },
		{ "bfloat16", DTYPE_BFLOAT16 },
		{ "int4", DTYPE_INT4 },
		/* In numpy this is an int32. */
		{ "i4", DTYPE_UNKNOWN },
		{ "f8", DTYPE_UNKNOWN },
		{ "f4_e2m1fn", DTYPE_UNKNOWN },
		{ "f", DTYPE_UNKNOWN },
		{ "", DTYPE_UNKNOWN },
		{ "f128", DTYPE_UNKNOWN },
		{ "bf32", DTYPE_UNKNOWN },
		{ "f32x", DTYPE_UNKNOWN },
		{ "<f4", DTYPE_UNKNOWN },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		if (dtype_by_user(span_str(cases[i].text)) != cases[i].t)
			fail_msg("'%s'", cases[i].text);
	for (int t = DTYPE_BOOL; t < DTYPE_COUNT; t++)
		assert_int_equal(dtype_by_user(span_str(dtype_info(t)->name)), t);
}

static void v2_spellings(void **state)
{
	static const struct {
		const char *text;
		enum dtype t;
		bool big;
	} cases[] = {
		{ "|b1", DTYPE_BOOL, false },
		{ "<b1", DTYPE_BOOL, false },
		{ ">b1", DTYPE_BOOL, false },
		{ ">i1", DTYPE_INT8, false },
		{ ">i2", DTYPE_INT16, true },
		{ "<u8", DTYPE_UINT64, false },
		{ ">f8", DTYPE_FLOAT64, true },
		{ ">c16", DTYPE_COMPLEX128, true },
		{ "bfloat16", DTYPE_BFLOAT16, false },
		{ "float8_e4m3fn", DTYPE_FLOAT8_E4M3FN, false },
		{ "int4", DTYPE_INT4, false },
		{ "|i2" },
		{ "=i2" },
		{ "i2" },
		{ "<i3" },
		{ "<f1" },
		{ "<f16" },
		{ "|b2" },
		{ "<bfloat16" },
		{ "float32" },
		{ "int8" },
		{ "bool" },
		{ "|V2" },
		{ "<V1" },
		{ "|S5" },
		{ "<U4" },
		{ "<M8[ns]" },
		{ "|O" },
		{ "uint4" },
		{ "float8_e4m3" },
		{ "" },
		{ "<" },
		{ "<i" },
		{ "<i22" },
		{ "<i2 " },
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		bool big = false;

		if (dtype_by_v2(span_str(cases[i].text), &big) != cases[i].t)
			fail_msg("'%s'", cases[i].text);
		assert_int_equal(big, cases[i].big);
	}
	/* A NUL inside does not end the text. */
	assert_int_equal(dtype_by_v2(span_of("<i2\0", 4), &(bool){ 0 }), DTYPE_UNKNOWN);
	assert_int_equal(dtype_by_v2(span_of("\0i2", 3), &(bool){ 0 }), DTYPE_UNKNOWN);
}

static void npy_descriptions(void **state)
{
	static const struct {
		const char *text;
		enum dtype t;
		bool big;
	} cases[] = {
		{ "<f4", DTYPE_FLOAT32, false },
		{ ">f4", DTYPE_FLOAT32, true },
		{ "=f4", DTYPE_FLOAT32, false },
		{ "|f4", DTYPE_FLOAT32, false },
		{ "f4", DTYPE_FLOAT32, false },
		{ "float32", DTYPE_FLOAT32, false },
		{ "|b1", DTYPE_BOOL, false },
		{ ">i1", DTYPE_INT8, false },
		{ "<V2", DTYPE_BFLOAT16, false },
		{ "|V2", DTYPE_BFLOAT16, false },
		{ ">V2", DTYPE_BFLOAT16, false },
		{ "V2", DTYPE_BFLOAT16, false },
		{ "<f1", DTYPE_FLOAT8_E5M2, false },
		{ "|f1", DTYPE_FLOAT8_E5M2, false },
		{ "bfloat16", DTYPE_BFLOAT16, false },
		{ "float8_e5m2", DTYPE_FLOAT8_E5M2, false },
		{ "<V1" },
		{ "|V1" },
		{ "|V4" },
		{ "|S5" },
		{ "<U4" },
		{ "<M8[ns]" },
		{ "|O" },
		{ "<f16" },
		{ "<W4" },
		{ "<float32" },
		{ "" },
		{ "<" },
		{ "uint4" },
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		bool big = false;

		if (dtype_by_npy(span_str(cases[i].text), &big) != cases[i].t)
			fail_msg("'%s'", cases[i].text);
		assert_int_equal(big, cases[i].big);
	}
}

static void safetensors_names(void **state)
{
	static const char *const none[] = { "F4",  "F6_E2M3", "F6_E3M2", "C128",
					    "f32", "",        "F8",      "F8_E3M4" };

	for (size_t i = 0; i < ARRAY_LEN(none); i++)
		assert_int_equal(dtype_by_safetensors(span_str(none[i])), DTYPE_UNKNOWN);
	assert_int_equal(dtype_by_safetensors(span_str("F8_E4M3")), DTYPE_FLOAT8_E4M3FN);
	assert_null(dtype_info(DTYPE_FLOAT4_E2M1FN)->safetensors);
	assert_null(dtype_info(DTYPE_COMPLEX128)->safetensors);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_type_is_found_by_each_of_its_names),
		cmocka_unit_test(names_that_people_write),
		cmocka_unit_test(v2_spellings),
		cmocka_unit_test(npy_descriptions),
		cmocka_unit_test(safetensors_names),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
