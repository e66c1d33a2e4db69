/* SPDX-License-Identifier: Apache-2.0 */
/*
 * t_codec_zlib.c - gzip and zlib: test vectors, one member, checksums that are always read.
 */
#include "tests/unit/lib/codec_unit.h"

#define RAW_DEFLATE "636060646062606660616065606360670000"
#define ZLIB "7801" RAW_DEFLATE "00b8001d"
#define GZIP "1f8b0800000000000403" RAW_DEFLATE "edd915c810000000"

static const uint8_t plain[16] = { 0, 0, 1, 0, 2, 0, 3, 0, 4, 0, 5, 0, 6, 0, 7, 0 };

static void vectors_and_verdicts(void **state)
{
	static const struct {
		const char *what, *chain, *object;
		int r;
	} cases[] = {
		{ "zlib", "[{\"id\":\"zlib\"}]", ZLIB, 0 },
		{ "gzip", "[{\"id\":\"gzip\"}]", GZIP, 0 },
		{ "gzip in zlib", "[{\"id\":\"zlib\"}]", GZIP, -EUCLEAN },
		{ "zlib in gzip", "[{\"id\":\"gzip\"}]", ZLIB, -EUCLEAN },
		{ "bare deflate", "[{\"id\":\"zlib\"}]", RAW_DEFLATE, -EUCLEAN },
		{ "nothing", "[{\"id\":\"gzip\"}]", "", -EUCLEAN },
		{ "zlib without its checksum", "[{\"id\":\"zlib\"}]", "7801" RAW_DEFLATE,
		  -EUCLEAN },
		{ "gzip without its checksum", "[{\"id\":\"gzip\"}]",
		  "1f8b0800000000000403" RAW_DEFLATE, -EUCLEAN },
		{ "zlib, checksum wrong", "[{\"id\":\"zlib\"}]", "7801" RAW_DEFLATE "00b8001c",
		  -EBADMSG },
		{ "gzip, checksum wrong", "[{\"id\":\"gzip\"}]",
		  "1f8b0800000000000403" RAW_DEFLATE "ecd915c810000000", -EBADMSG },
		{ "gzip, length wrong", "[{\"id\":\"gzip\"}]",
		  "1f8b0800000000000403" RAW_DEFLATE "edd915c811000000", -EBADMSG },
		{ "gzip with a name", "[{\"id\":\"gzip\"}]",
		  "1f8b0808000000000403 6e616d6500" RAW_DEFLATE "edd915c810000000", 0 },
		{ "gzip, header checksum wrong", "[{\"id\":\"gzip\"}]",
		  "1f8b0802000000000403 0000" RAW_DEFLATE "edd915c810000000", -EBADMSG },
		{ "gzip, reserved flag", "[{\"id\":\"gzip\"}]",
		  "1f8b0880000000000403" RAW_DEFLATE "edd915c810000000", -EUCLEAN },
		{ "zlib, preset dictionary", "[{\"id\":\"zlib\"}]",
		  "78bb00000001" RAW_DEFLATE "00b8001d", -EUCLEAN },
		{ "second member", "[{\"id\":\"gzip\"}]", GZIP GZIP, -EUCLEAN },
		{ "an empty member before", "[{\"id\":\"gzip\"}]",
		  "1f8b080000000000040303000000000000000000" GZIP, -EUCLEAN },
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		auto_unit_chain u = { 0 };
		auto_buf object = { 0 };
		uint8_t out[16];
		int r;

		unit_chain_of(&u, CODEC_V2, cases[i].chain);
		unit_hex(&object, cases[i].object);
		r = unit_decode(&u.chain, buf_span(&object), out, sizeof(out));
		if (r != cases[i].r)
			fail_msg("%s: gave %d: %s", cases[i].what, r, err_text(r));
		if (r == 0)
			assert_memory_equal(out, plain, sizeof(plain));
		/* Decoding to one byte less fails. */
		assert_true(codec_decode(&u.chain, buf_span(&object), out, 15) < 0);
	}
}

static void whole_and_piecewise_output_is_the_vector(void **state)
{
	static const char *const chains[] = { "[{\"id\":\"zlib\",\"level\":1}]",
					      "[{\"id\":\"gzip\",\"level\":1}]" };
	static const char *const want[] = { ZLIB, GZIP };

	for (size_t i = 0; i < 2; i++) {
		auto_unit_chain u = { 0 };
		auto_buf hex = { 0 }, whole = { 0 }, pieces = { 0 };

		unit_chain_of(&u, CODEC_V2, chains[i]);
		unit_hex(&hex, want[i]);
		assert_int_equal(codec_encode(&u.chain, span_of(plain, 16), &whole), 0);
		assert_true(span_eq(buf_span(&whole), buf_span(&hex)));
		assert_int_equal(unit_encode_pieces(&u.chain, span_of(plain, 16), 3, &pieces), 0);
		assert_true(span_eq(buf_span(&pieces), buf_span(&hex)));
	}
}

static void long_objects_decode(void **state)
{
	size_t n = 3000000;
	auto_free uint8_t *in = malloc(n), *out = malloc(n);

	unit_fill(in, n, 2);
	for (int level = 0; level <= 9; level += 3) {
		auto_unit_chain u = { 0 };
		auto_buf text = { 0 }, object = { 0 };

		buf_addf(&text, "[{\"id\":\"gzip\",\"level\":%d}]", level);
		unit_chain_of(&u, CODEC_V2, buf_str(&text));
		assert_int_equal(unit_encode_pieces(&u.chain, span_of(in, n), 100000, &object), 0);
		assert_int_equal(unit_decode(&u.chain, buf_span(&object), out, n), 0);
		assert_memory_equal(in, out, n);
	}
}

static void memory_is_small_and_known(void **state)
{
	auto_unit_chain u = { 0 };
	auto_buf object = { 0 };
	auto_of(codec_stream) struct codec_stream *s = NULL;
	auto_free uint8_t *in = calloc(1, 1000000);
	struct unit_source source;
	uint64_t before;

	unit_chain_of(&u, CODEC_V2, "[{\"id\":\"gzip\"}]");
	assert_int_equal(codec_encode(&u.chain, span_of(in, 1000000), &object), 0);
	source = (struct unit_source){ buf_span(&object), 100, NULL };
	assert_int_equal(codec_stream_open(&u.chain, unit_pull, &source, 1000000, 0, 0, &s), 0);
	before = codec_stream_memory(s);
	assert_int_equal(codec_stream_read(s, NULL, in, 500000), 0);
	assert_true(codec_stream_memory(s) == before && before < 64 * KiB);
	free(source.last);
}

static void falsified_streams_never_decode_to_other_bytes(void **state)
{
	static const char *const chains[] = { "[{\"id\":\"zlib\"}]", "[{\"id\":\"gzip\"}]" };
	uint8_t in[100];

	unit_fill(in, sizeof(in), 8);
	for (size_t i = 0; i < 2; i++) {
		auto_unit_chain u = { 0 };
		auto_buf object = { 0 };

		unit_chain_of(&u, CODEC_V2, chains[i]);
		assert_int_equal(codec_encode(&u.chain, span_of(in, sizeof(in)), &object), 0);
		unit_falsify(&u.chain, buf_span(&object), in, sizeof(in), true);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(vectors_and_verdicts),
		cmocka_unit_test(whole_and_piecewise_output_is_the_vector),
		cmocka_unit_test(long_objects_decode),
		cmocka_unit_test(memory_is_small_and_known),
		cmocka_unit_test(falsified_streams_never_decode_to_other_bytes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
