/* SPDX-License-Identifier: Apache-2.0 */
/*
 * t_wire.c - fixed integers, varints, and a reader that has failed.
 */
#include "tests/unit/lib/unit.h"

#include "core/base/crc32c.h"
#include "core/base/digest.h"
#include "core/base/wire.h"

static void fixed_integers_have_their_byte_order(void **state)
{
	static const uint8_t bytes[] = {
		0x0c, 0xdb, 0x3a, 0x2a, 1, 2, 3, 4, 5, 6, 7, 8, 0x34, 0x12
	};
	struct wire w = wire_of(span_of(bytes, sizeof(bytes)));

	assert_int_equal(wire_u32be(&w), 0x0cdb3a2a);
	assert_int_equal(wire_u64le(&w), 0x0807060504030201);
	assert_int_equal(wire_u16le(&w), 0x1234);
	assert_int_equal(wire_left(&w), 0);
	assert_true(wire_ok(&w));
}

static void varints_are_read_back(void **state)
{
	static const uint64_t values[] = { 0,         1,     127,      128,
					   300,       65535, 1u << 31, UINT64_MAX - 1,
					   UINT64_MAX };

	for (size_t i = 0; i < ARRAY_LEN(values); i++) {
		auto_buf b = { 0 };
		struct wire w;

		assert_int_equal(wire_put_varint(&b, values[i]), 0);
		w = wire_of(buf_span(&b));
		assert_int_equal(wire_varint(&w, UINT64_MAX), values[i]);
		assert_true(wire_ok(&w));
		assert_int_equal(wire_left(&w), 0);
		/* Truncated after each byte. */
		for (size_t n = 0; n < b.n; n++) {
			w = wire_of(span_of(b.p, n));
			wire_varint(&w, UINT64_MAX);
			assert_false(wire_ok(&w));
		}
	}
}

static void varints_out_of_range_fail(void **state)
{
	static const struct {
		const char *bytes;
		size_t n;
		uint64_t max;
		bool ok;
	} cases[] = {
		{ "\x80\x00", 2, 10, true }, /* over-long is legal */
		{ "\x0b", 1, 10, false },
		{ "\xff\xff\xff\xff\x0f", 5, UINT32_MAX, true },
		{ "\xff\xff\xff\xff\x1f", 5, UINT32_MAX, false },
		{ "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 10, UINT64_MAX, true },
		{ "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02", 10, UINT64_MAX, false },
		{ "\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x00", 11, UINT64_MAX, false },
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct wire w = wire_of(span_of(cases[i].bytes, cases[i].n));

		wire_varint(&w, cases[i].max);
		assert_int_equal(wire_ok(&w), cases[i].ok);
	}
}

static void a_failed_reader_stays_failed(void **state)
{
	struct wire w = wire_of(span_str("abc"));

	assert_int_equal(wire_u32le(&w), 0);
	assert_int_equal(wire_u8(&w), 0);
	assert_int_equal(wire_bytes(&w, 1).n, 0);
	assert_int_equal(wire_left(&w), 0);
	assert_false(wire_ok(&w));
}

static void checksums_match_published_values(void **state)
{
	static const uint8_t zeros[32];
	uint8_t d[32];

	assert_int_equal(crc32c(span_str("123456789")), 0xe3069283);
	assert_int_equal(crc32c(span_of(zeros, 32)), 0x8a9136aa);
	assert_int_equal(crc32c_more(crc32c(span_str("1234")), span_str("56789")), 0xe3069283);
	assert_int_equal(crc32c_join(crc32c(span_str("1234")), crc32c(span_str("56789")), 5),
			 0xe3069283);
	assert_int_equal(crc32c_join(0, crc32c(span_of(zeros, 32)), 32), 0x8a9136aa);
	assert_int_equal(crc32c_join(crc32c(span_of(zeros, 32)), 0, 0), 0x8a9136aa);
	sha256(span_str("abc"), d);
	assert_int_equal(d[0], 0xba);
	assert_int_equal(d[31], 0xad);
}

static void base64_in_both_directions(void **state)
{
	auto_buf text = { 0 }, back = { 0 };

	assert_int_equal(base64_put(&text, span_str("params.dense.kernel"), BASE64_URL), 0);
	assert_string_equal(buf_str(&text), "cGFyYW1zLmRlbnNlLmtlcm5lbA==");
	assert_int_equal(base64_get(&back, buf_span(&text), BASE64_URL), 0);
	assert_string_equal(buf_str(&back), "params.dense.kernel");
	assert_int_equal(base64_get(&back, span_str("abc"), BASE64_STD), -EUCLEAN);
	assert_int_equal(base64_get(&back, span_str("ab-="), BASE64_STD), -EUCLEAN);
	assert_int_equal(base64_get(&back, span_str("=abc"), BASE64_STD), -EUCLEAN);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(fixed_integers_have_their_byte_order),
		cmocka_unit_test(varints_are_read_back),
		cmocka_unit_test(varints_out_of_range_fail),
		cmocka_unit_test(a_failed_reader_stays_failed),
		cmocka_unit_test(checksums_match_published_values),
		cmocka_unit_test(base64_in_both_directions),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
