/* SPDX-License-Identifier: Apache-2.0 */
/*
 * t_codec_stream.c - pulling pieces: errors of the source are returned, a failed stream stays
 * failed, the end is checked, memory includes every stage.
 */
#include "tests/unit/lib/codec_unit.h"

#define ZSTD3 "{\"name\":\"zstd\",\"configuration\":{\"level\":1}}"
#define GZIP3 "{\"name\":\"gzip\",\"configuration\":{\"level\":1}}"
#define CRC3 "{\"name\":\"crc32c\"}"

struct failing {
	struct unit_source source;
	unsigned left; /* pulls that succeed */
};

static int failing_pull(void *arg, struct span *ret)
{
	struct failing *f = arg;

	if (f->left-- == 0)
		return fail(-EIO, "disk on fire");
	return unit_pull(&f->source, ret);
}

static void an_error_of_the_source_is_returned_and_final(void **state)
{
	static const char *const chains[] = {
		"[]",
		"[" ZSTD3 "]",
		"[" GZIP3 "]",
		"[" CRC3 "]",
		"[" ZSTD3 "," GZIP3 "," CRC3 "]",
		"[{\"name\":\"blosc\",\"configuration\":{\"cname\":\"lz4\",\"clevel\":5,\"shuffle\":"
		"\"noshuffle\",\"blocksize\":256}}]",
	};
	uint8_t in[3000], out[3000];

	unit_fill(in, sizeof(in), 1);
	for (size_t i = 0; i < ARRAY_LEN(chains); i++) {
		auto_unit_chain u = { 0 };
		auto_buf object = { 0 };

		unit_chain_of(&u, CODEC_V3, chains[i]);
		assert_int_equal(codec_encode(&u.chain, span_of(in, sizeof(in)), &object), 0);
		for (unsigned pulls = 0; pulls * 50 < object.n; pulls++) {
			struct failing f = { { buf_span(&object), 50, NULL }, pulls };
			auto_of(codec_stream) struct codec_stream *s = NULL;
			int r = codec_stream_open(&u.chain, failing_pull, &f, sizeof(in),
						  UINT64_MAX, 0, &s);

			if (r >= 0)
				r = codec_stream_read(s, NULL, out, sizeof(out));
			if (r != -EIO)
				fail_msg("%s with %u pulls gave %d", chains[i], pulls, r);
			assert_string_equal(err_text(-EIO), "disk on fire");
			if (s) {
				assert_int_equal(codec_stream_read(s, NULL, out, 1), -EIO);
				assert_int_equal(codec_stream_read(s, NULL, out, 0), -EIO);
			}
			free(f.source.last);
		}
	}
}

static void more_than_is_left_cannot_be_read(void **state)
{
	auto_unit_chain u = { 0 };
	auto_of(codec_stream) struct codec_stream *s = NULL;
	struct unit_source source = { span_str("abcdef"), 2, NULL };
	char out[8];

	unit_chain_of(&u, CODEC_V3, "[]");
	assert_int_equal(codec_stream_open(&u.chain, unit_pull, &source, 6, 0, 0, &s), 0);
	assert_int_equal(codec_stream_read(s, NULL, out, 7), -EINVAL);
	assert_int_equal(codec_stream_read(s, NULL, out, 4), 0);
	assert_int_equal(codec_stream_read(s, NULL, out + 4, 3), -EINVAL);
	assert_int_equal(codec_stream_read(s, NULL, out + 4, 2), 0);
	assert_memory_equal(out, "abcdef", 6);
	assert_int_equal(codec_stream_read(s, NULL, out, 0), 0);
	assert_int_equal(codec_stream_read(s, NULL, out, 1), -EINVAL);
	free(source.last);
}

static void the_last_read_checks_the_end(void **state)
{
	auto_unit_chain u = { 0 };
	auto_buf object = { 0 };
	auto_of(codec_stream) struct codec_stream *s = NULL;
	struct unit_source source;
	uint8_t in[1000], out[1000];

	unit_fill(in, sizeof(in), 2);
	unit_chain_of(&u, CODEC_V3, "[" GZIP3 "]");
	assert_int_equal(codec_encode(&u.chain, span_of(in, sizeof(in)), &object), 0);
	object.p[object.n - 1] ^= 1;
	source = (struct unit_source){ buf_span(&object), SIZE_MAX, NULL };
	assert_int_equal(
		codec_stream_open(&u.chain, unit_pull, &source, sizeof(in), UINT64_MAX, 0, &s), 0);
	assert_int_equal(codec_stream_read(s, NULL, out, 999), 0);
	assert_int_equal(codec_stream_read(s, NULL, out + 999, 1), -EBADMSG);
	free(source.last);
}

static void an_object_of_no_bytes_has_an_end_too(void **state)
{
	auto_unit_chain u = { 0 };

	unit_chain_of(&u, CODEC_V3, "[]");
	for (size_t n = 0; n < 2; n++) {
		auto_of(codec_stream) struct codec_stream *s = NULL;
		struct unit_source source = { span_of("x", n), 1, NULL };

		assert_int_equal(codec_stream_open(&u.chain, unit_pull, &source, 0, 0, 0, &s), 0);
		assert_int_equal(codec_stream_read(s, NULL, NULL, 0), n ? -EUCLEAN : 0);
		free(source.last);
	}
}

static void memory_counts_every_stage(void **state)
{
	auto_unit_chain one = { 0 }, two = { 0 };
	auto_of(codec_stream) struct codec_stream *a = NULL, *b = NULL;
	auto_buf x = { 0 }, y = { 0 };
	auto_free uint8_t *in = calloc(1, 100000);
	struct unit_source sx, sy;

	unit_chain_of(&one, CODEC_V3, "[" GZIP3 "]");
	unit_chain_of(&two, CODEC_V3, "[" GZIP3 "," GZIP3 "]");
	assert_int_equal(codec_encode(&one.chain, span_of(in, 100000), &x), 0);
	assert_int_equal(codec_encode(&two.chain, span_of(in, 100000), &y), 0);
	sx = (struct unit_source){ buf_span(&x), 10, NULL };
	sy = (struct unit_source){ buf_span(&y), 10, NULL };
	assert_int_equal(codec_stream_open(&one.chain, unit_pull, &sx, 100000, 0, 0, &a), 0);
	assert_int_equal(codec_stream_open(&two.chain, unit_pull, &sy, 100000, 0, 0, &b), 0);
	assert_true(codec_stream_memory(b) >= 2 * (codec_stream_memory(a) - 4096));
	assert_true(codec_stream_memory(b) < 300 * KiB);
	free(sx.last);
	free(sy.last);
}

static void closing_nothing_is_fine(void **state)
{
	codec_stream_close(NULL);
	codec_encoder_close(NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_error_of_the_source_is_returned_and_final),
		cmocka_unit_test(more_than_is_left_cannot_be_read),
		cmocka_unit_test(the_last_read_checks_the_end),
		cmocka_unit_test(an_object_of_no_bytes_has_an_end_too),
		cmocka_unit_test(memory_counts_every_stage),
		cmocka_unit_test(closing_nothing_is_fine),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
