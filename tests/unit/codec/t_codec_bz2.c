/* SPDX-License-Identifier: Apache-2.0 */
/*
 * t_codec_bz2.c - bzip2: test vector, one stream, damage.
 */
#include "tests/unit/lib/codec_unit.h"

#define BZ2 \
	"425a68313141592653598d566445000000c0007f802000219346210c08b816f39613e2ee48a70a1211aacc88a0"
#define EMPTY "425a683117724538509000000000"

static const uint8_t plain[16] = { 0, 0, 1, 0, 2, 0, 3, 0, 4, 0, 5, 0, 6, 0, 7, 0 };

static void vector_and_verdicts(void **state)
{
	static const struct {
		const char *what, *object;
		int r;
	} cases[] = {
		{ "one stream", BZ2, 0 },
		{ "a byte after it", BZ2 "78", -EUCLEAN },
		{ "a second stream", BZ2 BZ2, -EUCLEAN },
		{ "an empty stream after it", BZ2 EMPTY, -EUCLEAN },
		{ "an empty stream before", EMPTY BZ2, -EUCLEAN },
		{ "an empty stream", EMPTY, -EUCLEAN },
		{ "nothing", "", -EUCLEAN },
		{ "no bzip2", "425b68313141592653598d566445000000c0007f80", -EUCLEAN },
		{ "block checksum wrong",
		  "425a68313141592653598d566444000000c0007f802000219346210c08b816f39613e2ee48a70a1211aacc88a0",
		  -EUCLEAN },
	};
	auto_unit_chain u = { 0 };

	unit_chain_of(&u, CODEC_V2, "[{\"id\":\"bz2\"}]");
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		auto_buf object = { 0 };
		uint8_t out[16];
		int r;

		unit_hex(&object, cases[i].object);
		r = unit_decode(&u.chain, buf_span(&object), out, sizeof(out));
		if (r != cases[i].r)
			fail_msg("%s: gave %d: %s", cases[i].what, r, err_text(r));
		if (r == 0)
			assert_memory_equal(out, plain, sizeof(plain));
	}
}

static void whole_and_piecewise_output_is_the_vector(void **state)
{
	auto_unit_chain u = { 0 };
	auto_buf hex = { 0 }, whole = { 0 }, pieces = { 0 };

	unit_chain_of(&u, CODEC_V2, "[{\"id\":\"bz2\",\"level\":1}]");
	unit_hex(&hex, BZ2);
	assert_int_equal(codec_encode(&u.chain, span_of(plain, 16), &whole), 0);
	assert_true(span_eq(buf_span(&whole), buf_span(&hex)));
	assert_int_equal(unit_encode_pieces(&u.chain, span_of(plain, 16), 3, &pieces), 0);
	assert_true(span_eq(buf_span(&pieces), buf_span(&hex)));
}

static void long_objects_decode_in_bounded_memory(void **state)
{
	size_t n = 2500000;
	auto_free uint8_t *in = malloc(n), *out = malloc(n);

	unit_fill(in, n, 2);
	for (int level = 1; level <= 9; level += 8) {
		auto_unit_chain u = { 0 };
		auto_buf text = { 0 }, object = { 0 };
		auto_of(codec_stream) struct codec_stream *s = NULL;
		struct unit_source source;

		buf_addf(&text, "[{\"id\":\"bz2\",\"level\":%d}]", level);
		unit_chain_of(&u, CODEC_V2, buf_str(&text));
		assert_int_equal(codec_encode(&u.chain, span_of(in, n), &object), 0);
		assert_int_equal(codec_decode(&u.chain, buf_span(&object), out, n), 0);
		assert_memory_equal(in, out, n);
		source = (struct unit_source){ buf_span(&object), 1000, NULL };
		assert_int_equal(codec_stream_open(&u.chain, unit_pull, &source, n, 0, 0, &s), 0);
		for (size_t at = 0; at < n; at += 250000)
			assert_int_equal(codec_stream_read(s, NULL, out + at, 250000), 0);
		assert_true(codec_stream_memory(s) < 5 * MiB);
		assert_memory_equal(in, out, n);
		free(source.last);
	}
}

static void falsified_streams_never_decode_to_other_bytes(void **state)
{
	auto_unit_chain u = { 0 };
	auto_buf object = { 0 };
	uint8_t in[40];

	unit_chain_of(&u, CODEC_V2, "[{\"id\":\"bz2\"}]");
	unit_fill(in, sizeof(in), 8);
	assert_int_equal(codec_encode(&u.chain, span_of(in, sizeof(in)), &object), 0);
	unit_falsify(&u.chain, buf_span(&object), in, sizeof(in), true);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(vector_and_verdicts),
		cmocka_unit_test(whole_and_piecewise_output_is_the_vector),
		cmocka_unit_test(long_objects_decode_in_bounded_memory),
		cmocka_unit_test(falsified_streams_never_decode_to_other_bytes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
