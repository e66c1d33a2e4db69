/* SPDX-License-Identifier: Apache-2.0 */
/*
 * t_codec_encoder.c - pushing pieces: the same objects as whole, exact totals, errors of the sink,
 * chains that cannot be written in pieces.
 */
#include "tests/unit/lib/codec_unit.h"

#define ZSTD3 "{\"name\":\"zstd\",\"configuration\":{\"level\":1}}"
#define GZIP3 "{\"name\":\"gzip\",\"configuration\":{\"level\":1}}"
#define CRC3 "{\"name\":\"crc32c\"}"

static void chains_in_pieces_decode_what_they_encoded(void **state)
{
	static const char *const chains[] = {
		"[]",
		"[" ZSTD3 "]",
		"[" GZIP3 "]",
		"[" CRC3 "]",
		"[" ZSTD3 "," CRC3 "]",
		"[" CRC3 "," ZSTD3 "]",
		"[" ZSTD3 "," GZIP3 "," CRC3 "]",
		"[" CRC3 "," CRC3 "]",
	};
	static const size_t pieces[] = { 1, 777, 65536, 200000 };
	auto_free uint8_t *in = malloc(200000), *out = malloc(200000);

	unit_fill(in, 200000, 1);
	for (size_t i = 0; i < ARRAY_LEN(chains); i++) {
		auto_unit_chain u = { 0 };

		unit_chain_of(&u, CODEC_V3, chains[i]);
		assert_true(codec_writes_pieces(&u.chain));
		for (size_t k = 0; k < ARRAY_LEN(pieces); k++) {
			size_t n = pieces[k] == 1 ? 3000 : 200000;
			auto_buf object = { 0 };

			assert_int_equal(unit_encode_pieces(&u.chain, span_of(in, n), pieces[k],
							    &object),
					 0);
			assert_int_equal(codec_decode(&u.chain, buf_span(&object), out, n), 0);
			assert_memory_equal(in, out, n);
		}
	}
}

static void totals_are_exact(void **state)
{
	static const char *const chains[] = { "[]", "[" ZSTD3 "]", "[" CRC3 "]" };

	for (size_t i = 0; i < ARRAY_LEN(chains); i++) {
		auto_unit_chain u = { 0 };
		auto_of(codec_encoder) struct codec_encoder *e = NULL;
		auto_buf out = { 0 };

		unit_chain_of(&u, CODEC_V3, chains[i]);
		assert_int_equal(codec_encoder_open(&u.chain, 6, unit_sink, &out, &e), 0);
		assert_int_equal(codec_encoder_push(e, span_str("abc")), 0);
		assert_int_equal(codec_encoder_finish(e), -EINVAL);
		assert_int_equal(codec_encoder_push(e, span_str("defg")), -EINVAL);
		assert_int_equal(codec_encoder_push(e, span_str("")), 0);
		assert_int_equal(codec_encoder_push(e, span_str("def")), 0);
		assert_int_equal(codec_encoder_finish(e), 0);
		assert_int_equal(codec_encoder_push(e, span_str("g")), -EINVAL);
		assert_int_equal(codec_encoder_finish(e), -EINVAL);
	}
}

static int full_sink(void *arg, struct span out)
{
	size_t *room = arg;

	if (out.n > *room)
		return fail(-ENOSPC, "disk is full");
	*room -= out.n;
	return 0;
}

static void an_error_of_the_sink_is_returned_and_final(void **state)
{
	static const char *const chains[] = { "[]", "[" ZSTD3 "]", "[" GZIP3 "]",
					      "[" ZSTD3 "," CRC3 "]" };
	auto_free uint8_t *in = malloc(300000);

	for (size_t i = 0; i < 300000; i++)
		in[i] = (uint8_t)rand();
	for (size_t i = 0; i < ARRAY_LEN(chains); i++) {
		auto_unit_chain u = { 0 };
		auto_of(codec_encoder) struct codec_encoder *e = NULL;
		size_t room = 200000;
		int r;

		unit_chain_of(&u, CODEC_V3, chains[i]);
		assert_int_equal(codec_encoder_open(&u.chain, 300000, full_sink, &room, &e), 0);
		r = codec_encoder_push(e, span_of(in, 300000));
		if (r >= 0)
			r = codec_encoder_finish(e);
		assert_int_equal(r, -ENOSPC);
		assert_string_equal(err_text(-ENOSPC), "disk is full");
		assert_int_equal(codec_encoder_push(e, span_str("")), -ENOSPC);
		assert_int_equal(codec_encoder_finish(e), -ENOSPC);
	}
}

static void chains_that_cannot_be_written_in_pieces_are_refused(void **state)
{
	static const struct {
		const char *chain, *text;
	} cases[] = {
		{ "[{\"name\":\"blosc\",\"configuration\":{\"cname\":\"lz4\",\"clevel\":5,\"shuffle\":"
		  "\"noshuffle\",\"blocksize\":0}}]",
		  "cannot write codec 'blosc' piece by piece" },
		{ "[" GZIP3 "," ZSTD3 "]",
		  "cannot write codec 'zstd' piece by piece after another compressor: "
		  "it must declare its content size" },
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		auto_unit_chain u = { 0 };
		struct codec_encoder *e = NULL;
		auto_buf out = { 0 };

		unit_chain_of(&u, CODEC_V3, cases[i].chain);
		assert_false(codec_writes_pieces(&u.chain));
		assert_int_equal(codec_encoder_open(&u.chain, 10, unit_sink, &out, &e),
				 -EOPNOTSUPP);
		assert_string_equal(err_text(-EOPNOTSUPP), cases[i].text);
		assert_null(e);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(chains_in_pieces_decode_what_they_encoded),
		cmocka_unit_test(totals_are_exact),
		cmocka_unit_test(an_error_of_the_sink_is_returned_and_final),
		cmocka_unit_test(chains_that_cannot_be_written_in_pieces_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
