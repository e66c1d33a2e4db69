/* SPDX-License-Identifier: Apache-2.0 */
/*
 * t_dtype_fill.c - fill values by example, v2 and v3; test_casts.py compares all with TensorStore.
 */
#include "tests/unit/lib/unit.h"

#include <string.h>

#include "core/dtype/dtype.h"

static int parse(enum dtype t, int version, const char *text, uint8_t *fill)
{
	auto_json d = { 0 };

	assert_int_equal(json_parse(span_str(text), "fill", &d), 0);
	return dtype_fill_parse(t, version, d.root, fill);
}

/* version 0: both versions. printed NULL: refused. */
static const struct {
	enum dtype t;
	int version;
	const char *text;
	uint64_t bits;
	const char *printed;
} cases[] = {
	{ DTYPE_BOOL, 0, "true", 1, "true" },
	{ DTYPE_BOOL, 0, "1", 0, NULL },
	{ DTYPE_INT32, 0, "-5.0", 0xfffffffb, "-5" },
	{ DTYPE_INT32, 0, "2147483648", 0, NULL },
	{ DTYPE_INT32, 0, "\"1\"", 0, NULL },
	{ DTYPE_UINT64, 0, "18446744073709551615", 0xffffffffffffffff, "18446744073709551615" },
	{ DTYPE_UINT64, 0, "9.3e18", 0x81103cb9fb220000, "9300000000000000000" },
	{ DTYPE_UINT8, 0, "-1", 0, NULL },
	{ DTYPE_INT4, 2, "8", 0x08, "-8" },
	{ DTYPE_INT4, 3, "8", 0, NULL },
	{ DTYPE_INT4, 0, "-1", 0x0f, "-1" },
	{ DTYPE_INT2, 2, "128", 0, NULL },
	{ DTYPE_FLOAT32, 0, "0.1", 0x3dcccccd, "0.10000000149011612" },
	{ DTYPE_FLOAT32, 0, "-0.0", 0x80000000, "-0.0" },
	{ DTYPE_FLOAT32, 0, "\"NaN\"", 0x7fc00000, "\"NaN\"" },
	{ DTYPE_FLOAT32, 0, "\"-Infinity\"", 0xff800000, "\"-Infinity\"" },
	{ DTYPE_FLOAT32, 0, "\"nan\"", 0, NULL },
	{ DTYPE_FLOAT32, 3, "\"0x7fc00001\"", 0x7fc00001, "\"0x7fc00001\"" },
	{ DTYPE_FLOAT32, 3, "\"0x3f800000\"", 0x3f800000, "1.0" },
	{ DTYPE_FLOAT32, 3, "\"0x1\"", 1, "1.401298464324817e-45" },
	{ DTYPE_FLOAT32, 3, "\"0x\"", 0, NULL },
	{ DTYPE_FLOAT32, 3, "\"0X1\"", 0, NULL },
	{ DTYPE_FLOAT32, 3, "\"0x123456789\"", 0, NULL },
	{ DTYPE_FLOAT32, 2, "\"0x1\"", 0x3f800000, "1.0" },
	{ DTYPE_FLOAT32, 2, "\" 1.5\\n\"", 0x3fc00000, "1.5" },
	{ DTYPE_FLOAT32, 2, "\"1.5x\"", 0, NULL },
	{ DTYPE_FLOAT32, 2, "\"1e400\"", 0, NULL },
	{ DTYPE_FLOAT32, 2, "\"1\\u0000\"", 0, NULL },
	{ DTYPE_FLOAT32, 3, "\"1.5\"", 0, NULL },
	{ DTYPE_FLOAT16, 0, "1.00048828125", 0x3c00, "1.0" },
	{ DTYPE_BFLOAT16, 0, "1e5", 0x47c3, "99840.0" },
	{ DTYPE_FLOAT8_E4M3FN, 0, "\"Infinity\"", 0x7f, "\"NaN\"" },
	{ DTYPE_FLOAT8_E4M3FN, 3, "\"-Infinity\"", 0xff, "\"0xff\"" },
	{ DTYPE_FLOAT8_E4M3FN, 0, "1.0625000000009095", 0x39, "1.125" },
	{ DTYPE_FLOAT8_E8M0FNU, 0, "0.0", 0x00, "0.0" },
	{ DTYPE_FLOAT8_E8M0FNU, 0, "1.0", 0x3f, "1.0" },
	{ DTYPE_FLOAT8_E8M0FNU, 0, "-2", 0x40, "2.0" },
	{ DTYPE_FLOAT8_E8M0FNU, 3, "\"0x80\"", 0x80, "-3.6893488147419103e+19" },
	{ DTYPE_FLOAT4_E2M1FN, 2, "1.0", 0, NULL },
	{ DTYPE_FLOAT4_E2M1FN, 2, "\"Ag==\"", 0x02, "\"Ag==\"" },
	{ DTYPE_FLOAT4_E2M1FN, 3, "1.0", 0x02, "1.0" },
	{ DTYPE_FLOAT4_E2M1FN, 3, "\"0xfe\"", 0x0e, "-4.0" },
	{ DTYPE_COMPLEX64, 0, "[1, \"NaN\"]", 0x7fc000003f800000, "[1.0,\"NaN\"]" },
	{ DTYPE_COMPLEX64, 2, "\"AACAPwAAAEA=\"", 0x400000003f800000, "[1.0,2.0]" },
	{ DTYPE_COMPLEX64, 2, "\"AACAPwAAAE\"", 0, NULL },
	{ DTYPE_COMPLEX64, 3, "\"AACAPwAAAEA=\"", 0, NULL },
	{ DTYPE_COMPLEX64, 0, "[1]", 0, NULL },
	{ DTYPE_COMPLEX64, 0, "1.0", 0, NULL },
};

static void values(void **state)
{
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		for (int version = 2; version <= 3; version++) {
			uint8_t fill[LIMIT_ITEM_BYTES], same[LIMIT_ITEM_BYTES];
			auto_buf text = { 0 };
			int r;

			if (cases[i].version && cases[i].version != version)
				continue;
			memset(fill, 0x5a, sizeof(fill));
			memset(same, 0x5a, sizeof(same));
			r = parse(cases[i].t, version, cases[i].text, fill);
			if (r != (cases[i].printed ? 0 : -EUCLEAN))
				fail_msg("%s, v%d: '%s' gave %d", dtype_info(cases[i].t)->name,
					 version, cases[i].text, r);
			if (r < 0) {
				assert_memory_equal(fill, same, sizeof(fill));
				continue;
			}
			assert_memory_equal(fill, &cases[i].bits, dtype_info(cases[i].t)->size);
			assert_int_equal(dtype_fill_print(cases[i].t, version, fill, &text), 0);
			assert_string_equal(buf_str(&text), cases[i].printed);
		}
	}
}

/* A printed value parses to the same bytes, for every byte of the small types. */
static void printed_values_parse_again(void **state)
{
	for (int t = DTYPE_BOOL; t < DTYPE_COUNT; t++) {
		if (dtype_info(t)->size != 1)
			continue;
		for (int version = 2; version <= 3; version++) {
			for (unsigned b = 0; b < 1u << (t == DTYPE_BOOL ? 1 : dtype_info(t)->bits);
			     b++) {
				uint8_t fill[LIMIT_ITEM_BYTES] = { (uint8_t)b },
					again[LIMIT_ITEM_BYTES];
				auto_buf text = { 0 };

				assert_int_equal(dtype_fill_print(t, version, fill, &text), 0);
				assert_int_equal(parse(t, version, buf_str(&text), again), 0);
				/* v2 has only one NaN. */
				if (version == 2 && strcmp(buf_str(&text), "\"NaN\"") == 0)
					continue;
				if (again[0] != b)
					fail_msg("%s v%d: %02x prints as %s, which is %02x",
						 dtype_info(t)->name, version, b, buf_str(&text),
						 again[0]);
			}
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(values),
		cmocka_unit_test(printed_values_parse_again),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
