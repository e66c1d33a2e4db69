/* SPDX-License-Identifier: Apache-2.0 */
/*
 * t_codec_crc32c.c - the checksum after the bytes: test vector, known and unknown length, damage.
 */
#include "tests/unit/lib/codec_unit.h"

#define CRC3 "{\"name\":\"crc32c\"}"

static const uint8_t plain[16] = { 0, 0, 1, 0, 2, 0, 3, 0, 4, 0, 5, 0, 6, 0, 7, 0 };

static void the_vector(void **state)
{
	auto_unit_chain u = { 0 };
	auto_buf object = { 0 }, pieces = { 0 }, hex = { 0 };
	uint8_t out[16];

	unit_chain_of(&u, CODEC_V3, "[" CRC3 "]");
	assert_int_equal(codec_encode(&u.chain, span_of(plain, 16), &object), 0);
	unit_hex(&hex, "e69872ee");
	assert_int_equal(object.n, 20);
	assert_memory_equal(object.p + 16, hex.p, 4);
	assert_int_equal(unit_encode_pieces(&u.chain, span_of(plain, 16), 5, &pieces), 0);
	assert_true(span_eq(buf_span(&object), buf_span(&pieces)));
	assert_int_equal(unit_decode(&u.chain, buf_span(&object), out, 16), 0);
	assert_memory_equal(out, plain, 16);
}

static void a_mismatch_names_both_values(void **state)
{
	auto_unit_chain u = { 0 };
	auto_buf object = { 0 };
	uint8_t out[16];

	unit_chain_of(&u, CODEC_V3, "[" CRC3 "]");
	assert_int_equal(codec_encode(&u.chain, span_of(plain, 16), &object), 0);
	object.p[16] ^= 1;
	assert_int_equal(codec_decode(&u.chain, buf_span(&object), out, 16), -EBADMSG);
	assert_string_equal(err_text(-EBADMSG), "crc32c is ee7298e6, stored ee7298e7");
	assert_int_equal(unit_stream(&u.chain, buf_span(&object), 3, 2, 0, out, 16), -EBADMSG);
}

/* After a compressor, the place of the checksum is known only when the input ends. */
static void a_checksum_at_an_unknown_place(void **state)
{
	static const size_t sizes[] = { 1, 2, 3, 4, 5, 6, 7, 8, 9, 65530, 65536, 200000 };
	auto_unit_chain u = { 0 };

	unit_chain_of(&u, CODEC_V3,
		      "[{\"name\":\"gzip\",\"configuration\":{\"level\":0}}," CRC3
		      ",{\"name\":\"gzip\",\"configuration\":{\"level\":1}}]");
	for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
		auto_free uint8_t *in = malloc(sizes[i]), *out = malloc(sizes[i]);
		auto_buf object = { 0 };

		unit_fill(in, sizes[i], 7);
		assert_int_equal(codec_encode(&u.chain, span_of(in, sizes[i]), &object), 0);
		assert_int_equal(unit_decode(&u.chain, buf_span(&object), out, sizes[i]), 0);
		assert_memory_equal(in, out, sizes[i]);
	}
}

static void falsified_objects_never_decode(void **state)
{
	static const char *const chains[] = { "[" CRC3 "]", "[" CRC3 "," CRC3 "]" };

	for (size_t i = 0; i < ARRAY_LEN(chains); i++) {
		auto_unit_chain u = { 0 };
		auto_buf object = { 0 };

		unit_chain_of(&u, CODEC_V3, chains[i]);
		assert_int_equal(codec_encode(&u.chain, span_of(plain, 16), &object), 0);
		unit_falsify(&u.chain, buf_span(&object), plain, 16, true);
		/* Every change breaks the checksum: no changed object decodes at all. */
		for (size_t at = 0; at < object.n; at++) {
			uint8_t out[16];

			object.p[at] ^= 0x10;
			assert_true(unit_decode(&u.chain, buf_span(&object), out, 16) < 0);
			object.p[at] ^= 0x10;
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_vector),
		cmocka_unit_test(a_mismatch_names_both_values),
		cmocka_unit_test(a_checksum_at_an_unknown_place),
		cmocka_unit_test(falsified_objects_never_decode),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
