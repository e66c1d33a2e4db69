/* SPDX-License-Identifier: Apache-2.0 */
/*
 * t_safetensors.c - the header of a safetensors file: the official writer's bytes, and what is
 * refused.
 */
#include "tests/unit/lib/unit.h"

#include "handlers/format/safetensors.h"

static struct st_tensor tensor(const char *name, enum dtype t, unsigned rank, const uint64_t *shape)
{
	struct st_tensor out = { .name = span_str(name),
				 .path = span_str(name),
				 .array = { t, rank, shape },
				 .bytes = dtype_info(t)->size };

	for (unsigned i = 0; i < rank; i++)
		out.bytes *= shape[i];
	return out;
}

static const uint64_t one[] = { 1 }, empty[] = { 4, 0 };

static void tensors_lie_widest_first_then_as_in_the_tree(void **state)
{
	struct st_tensor t[] = {
		tensor("z", DTYPE_FLOAT32, 1, one),       tensor("b", DTYPE_INT64, 1, one),
		tensor("a", DTYPE_FLOAT32, 0, NULL),      tensor("m", DTYPE_BFLOAT16, 1, one),
		tensor("e", DTYPE_FLOAT8_E4M3FN, 1, one), tensor("u", DTYPE_UINT8, 1, one),
		tensor("k", DTYPE_BOOL, 1, one),
	};
	static const char want[] =
		"{\"__metadata__\":{\"format\":\"pt\"},\"b\":{\"dtype\":\"I64\",\"shape\":[1],\"data_offsets\":[0,8]},"
		"\"z\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[8,12]},"
		"\"a\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[12,16]},"
		"\"m\":{\"dtype\":\"BF16\",\"shape\":[1],\"data_offsets\":[16,18]},"
		"\"e\":{\"dtype\":\"F8_E4M3\",\"shape\":[1],\"data_offsets\":[18,19]},"
		"\"u\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[19,20]},"
		"\"k\":{\"dtype\":\"BOOL\",\"shape\":[1],\"data_offsets\":[20,21]}}      ";
	auto_buf out = { 0 };

	for (size_t i = 0; i < ARRAY_LEN(t); i++)
		t[i].id = (uint32_t)i;
	assert_int_equal(safetensors_header(t, ARRAY_LEN(t), NULL, 0, &out), 0);
	assert_int_equal(out.n, 8 + 424);
	assert_memory_equal(out.p, "\xa8\x01\0\0\0\0\0\0", 8);
	assert_memory_equal(out.p + 8, want, 424);
	assert_true(span_eq(t[0].name, span_str("b")));
	assert_int_equal(t[0].off, out.n);
	assert_int_equal(t[6].off, out.n + 20);
}

static void texts_are_metadata(void **state)
{
	struct st_text text[] = {
		{ span_str("n\"1"), span_str("n"), span_str("line\n") },
		{ span_str("format"), span_str("format"), span_str("mine") },
	};
	auto_buf out = { 0 }, other = { 0 };

	assert_int_equal(safetensors_header(NULL, 0, text, 1, &out), 0);
	assert_non_null(strstr(buf_str(&out) + 8,
			       "{\"__metadata__\":{\"format\":\"pt\",\"n\\\"1\":\"line\\n\"}}"));
	/* A leaf that is called so is worth more than our own. */
	assert_int_equal(safetensors_header(NULL, 0, text, 2, &other), 0);
	assert_non_null(strstr(buf_str(&other) + 8, "\"format\":\"mine\""));
	assert_null(strstr(buf_str(&other) + 8, "\"pt\""));
}

static void nothing_at_all_is_a_file(void **state)
{
	struct st_tensor t[] = { tensor("e", DTYPE_INT8, 2, empty) };
	auto_buf out = { 0 };

	assert_int_equal(safetensors_header(t, 1, NULL, 0, &out), 0);
	assert_int_equal(t[0].off, out.n);
	assert_non_null(strstr(buf_str(&out) + 8, "\"shape\":[4,0],\"data_offsets\":[0,0]"));
}

static void names_that_cannot_be_keys_are_refused(void **state)
{
	static const struct {
		const char *a, *b, *text;
		enum dtype dtype;
		int code;
		const char *says;
	} cases[] = {
		{ "w", "w", NULL, DTYPE_INT8, -EINVAL, "'w' and 'w'" },
		{ "w", "v", "w", DTYPE_INT8, -EINVAL, "'w'" },
		{ "w", "__metadata__", NULL, DTYPE_INT8, -EINVAL, "__metadata__" },
		{ "w", "v", "__metadata__", DTYPE_INT8, -EINVAL, "__metadata__" },
		{ "w", "\xff", NULL, DTYPE_INT8, -EINVAL, "UTF-8" },
		{ "w", "v", NULL, DTYPE_INT4, -EOPNOTSUPP,
		  "'w': safetensors has no name for int4" },
		{ "w", "v", NULL, DTYPE_COMPLEX128, -EOPNOTSUPP, "complex128" },
		{ "w", "v", NULL, DTYPE_FLOAT4_E2M1FN, -EOPNOTSUPP, "float4_e2m1fn" },
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct st_tensor t[] = { tensor(cases[i].a, cases[i].dtype, 0, NULL),
					 tensor(cases[i].b, DTYPE_INT8, 0, NULL) };
		struct st_text text = { .text = span_str("x") };
		auto_buf out = { 0 };

		text.name = text.path = span_str(cases[i].text ? cases[i].text : "");
		assert_int_equal(safetensors_header(t, 2, &text, cases[i].text != NULL, &out),
				 cases[i].code);
		assert_non_null(strstr(err_text(cases[i].code), cases[i].says));
		assert_int_equal(out.n, 0);
	}
}

static void every_type_with_a_name_has_its_place(void **state)
{
	for (int t = DTYPE_BOOL; t < DTYPE_COUNT; t++) {
		struct st_tensor x[] = { tensor("w", t, 0, NULL),
					 tensor("k", DTYPE_BOOL, 0, NULL) };
		auto_buf out = { 0 };

		if (!dtype_info(t)->safetensors)
			continue;
		assert_int_equal(safetensors_header(x, 2, NULL, 0, &out), 0);
		/* Aligned, because nothing narrower is in front. */
		assert_true(t == DTYPE_BOOL || span_eq(x[0].name, span_str("w")));
		assert_int_equal((x[0].off - out.n) % dtype_info(t)->size, 0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(tensors_lie_widest_first_then_as_in_the_tree),
		cmocka_unit_test(texts_are_metadata),
		cmocka_unit_test(nothing_at_all_is_a_file),
		cmocka_unit_test(names_that_cannot_be_keys_are_refused),
		cmocka_unit_test(every_type_with_a_name_has_its_place),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
