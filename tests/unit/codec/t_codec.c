/* SPDX-License-Identifier: Apache-2.0 */
/*
 * t_codec.c - metadata of codecs, accepted and written as by TensorStore 0.1.86; whole objects
 * through chains; where an object may end.
 */
#include "tests/unit/lib/codec_unit.h"

#include "core/base/crc32c.h"
#include "core/base/wire.h"

#define ZSTD3 "{\"name\":\"zstd\",\"configuration\":{\"level\":1}}"
#define GZIP3 "{\"name\":\"gzip\",\"configuration\":{\"level\":1}}"
#define BLOSC3                                                                   \
	"{\"name\":\"blosc\",\"configuration\":{\"cname\":\"lz4\",\"clevel\":5," \
	"\"shuffle\":\"noshuffle\",\"blocksize\":0}}"
#define CRC3 "{\"name\":\"crc32c\"}"

#define FRAME "28b52ffd2010810000 00000100020003000400050006000700"
#define MEMBER "1f8b0800000000000403636060646062606660616065606360670000edd915c810000000"
#define PLAIN "00000100020003000400050006000700"

static const uint8_t plain[16] = { 0, 0, 1, 0, 2, 0, 3, 0, 4, 0, 5, 0, 6, 0, 7, 0 };

static const struct {
	enum codec_dialect dialect;
	const char *text, *printed; /* NULL: refused with r */
	int r;
} documents[] = {
	{ CODEC_V2, "{\"id\":\"zstd\"}", "{\"id\":\"zstd\",\"level\":1}", 0 },
	{ CODEC_V2, "{\"id\":\"zstd\",\"level\":-131072}", "{\"id\":\"zstd\",\"level\":-131072}",
	  0 },
	{ CODEC_V2, "{\"id\":\"zstd\",\"level\":3.0}", "{\"id\":\"zstd\",\"level\":3}", 0 },
	{ CODEC_V2, "{\"id\":\"zstd\",\"level\":23}", NULL, -EUCLEAN },
	{ CODEC_V2, "{\"id\":\"zstd\",\"level\":-131073}", NULL, -EUCLEAN },
	{ CODEC_V2, "{\"id\":\"zstd\",\"level\":null}", NULL, -EUCLEAN },
	{ CODEC_V2, "{\"id\":\"zstd\",\"level\":\"1\"}", NULL, -EUCLEAN },
	{ CODEC_V2, "{\"id\":\"zstd\",\"level\":1,\"checksum\":false}", NULL, -EUCLEAN },
	{ CODEC_V2, "{\"id\":\"gzip\",\"level\":9}", "{\"id\":\"gzip\",\"level\":9}", 0 },
	{ CODEC_V2, "{\"id\":\"zlib\"}", "{\"id\":\"zlib\",\"level\":1}", 0 },
	{ CODEC_V2, "{\"id\":\"zlib\",\"level\":10}", NULL, -EUCLEAN },
	{ CODEC_V2, "{\"id\":\"bz2\"}", "{\"id\":\"bz2\",\"level\":1}", 0 },
	{ CODEC_V2, "{\"id\":\"bz2\",\"level\":0}", NULL, -EUCLEAN },
	{ CODEC_V2, "{\"id\":\"blosc\"}",
	  "{\"blocksize\":0,\"clevel\":5,\"cname\":\"lz4\",\"id\":\"blosc\",\"shuffle\":-1}", 0 },
	{ CODEC_V2, "{\"id\":\"blosc\",\"blocksize\":9223372036854775808}",
	  "{\"blocksize\":9223372036854775808,\"clevel\":5,\"cname\":\"lz4\",\"id\":\"blosc\","
	  "\"shuffle\":-1}",
	  0 },
	{ CODEC_V2, "{\"id\":\"blosc\",\"blocksize\":-1}", NULL, -EUCLEAN },
	{ CODEC_V2, "{\"id\":\"blosc\",\"shuffle\":3}", NULL, -EUCLEAN },
	{ CODEC_V2, "{\"id\":\"blosc\",\"shuffle\":true}", NULL, -EUCLEAN },
	{ CODEC_V2, "{\"id\":\"blosc\",\"cname\":\"lz5\"}", NULL, -EUCLEAN },
	{ CODEC_V2, "{\"id\":\"blosc\",\"typesize\":4}", NULL, -EUCLEAN },
	{ CODEC_V2, "{\"id\":\"lz4\"}", NULL, -EOPNOTSUPP },
	{ CODEC_V2, "{\"id\":\"crc32c\"}", NULL, -EOPNOTSUPP },
	{ CODEC_V2, "{\"id\":1}", NULL, -EUCLEAN },
	{ CODEC_V2, "{\"level\":1}", NULL, -EUCLEAN },
	{ CODEC_V2, "\"zstd\"", NULL, -EUCLEAN },
	{ CODEC_V3, ZSTD3, "{\"configuration\":{\"checksum\":false,\"level\":1},\"name\":\"zstd\"}",
	  0 },
	{ CODEC_V3, "{\"name\":\"zstd\",\"configuration\":{\"level\":22,\"checksum\":true}}",
	  "{\"configuration\":{\"checksum\":true,\"level\":22},\"name\":\"zstd\"}", 0 },
	{ CODEC_V3, "{\"name\":\"zstd\"}", NULL, -EUCLEAN },
	{ CODEC_V3, "{\"name\":\"zstd\",\"configuration\":{}}", NULL, -EUCLEAN },
	{ CODEC_V3, "{\"name\":\"zstd\",\"configuration\":null}", NULL, -EUCLEAN },
	{ CODEC_V3, "{\"name\":\"zstd\",\"configuration\":{\"level\":1,\"checksum\":1}}", NULL,
	  -EUCLEAN },
	{ CODEC_V3, "{\"name\":\"zstd\",\"configuration\":{\"level\":1,\"x\":1}}", NULL, -EUCLEAN },
	{ CODEC_V3, "{\"name\":\"zstd\",\"configuration\":{\"level\":1},\"must_understand\":false}",
	  NULL, -EUCLEAN },
	{ CODEC_V3, GZIP3, "{\"configuration\":{\"level\":1},\"name\":\"gzip\"}", 0 },
	{ CODEC_V3, "{\"name\":\"gzip\"}", NULL, -EUCLEAN },
	{ CODEC_V3, "{\"name\":\"zlib\",\"configuration\":{\"level\":1}}", NULL, -EOPNOTSUPP },
	{ CODEC_V3, "{\"name\":\"bz2\",\"configuration\":{\"level\":1}}", NULL, -EOPNOTSUPP },
	{ CODEC_V3, CRC3, CRC3, 0 },
	{ CODEC_V3, "{\"name\":\"crc32c\",\"configuration\":{}}", CRC3, 0 },
	{ CODEC_V3, "{\"name\":\"crc32c\",\"configuration\":{\"a\":1}}", NULL, -EUCLEAN },
	{ CODEC_V3, "\"crc32c\"", NULL, -EUCLEAN },
	{ CODEC_V3, BLOSC3,
	  "{\"configuration\":{\"blocksize\":0,\"clevel\":5,\"cname\":\"lz4\","
	  "\"shuffle\":\"noshuffle\"},\"name\":\"blosc\"}",
	  0 },
	{ CODEC_V3,
	  "{\"name\":\"blosc\",\"configuration\":{\"cname\":\"lz4\",\"clevel\":5,\"shuffle\":"
	  "\"shuffle\",\"typesize\":4,\"blocksize\":0}}",
	  "{\"configuration\":{\"blocksize\":0,\"clevel\":5,\"cname\":\"lz4\",\"shuffle\":\"shuffle\","
	  "\"typesize\":4},\"name\":\"blosc\"}",
	  0 },
	{ CODEC_V3,
	  "{\"name\":\"blosc\",\"configuration\":{\"cname\":\"lz4\",\"clevel\":5,\"shuffle\":"
	  "\"shuffle\",\"blocksize\":0}}",
	  NULL, -EUCLEAN },
	{ CODEC_V3,
	  "{\"name\":\"blosc\",\"configuration\":{\"cname\":\"lz4\",\"clevel\":5,\"shuffle\":"
	  "\"bitshuffle\",\"typesize\":256,\"blocksize\":0}}",
	  NULL, -EUCLEAN },
	{ CODEC_V3,
	  "{\"name\":\"blosc\",\"configuration\":{\"cname\":\"lz4\",\"clevel\":5,\"shuffle\":"
	  "\"noshuffle\",\"blocksize\":715827543}}",
	  NULL, -EUCLEAN },
	{ CODEC_V3,
	  "{\"name\":\"blosc\",\"configuration\":{\"cname\":\"lz4\",\"clevel\":5,\"shuffle\":"
	  "1,\"typesize\":1,\"blocksize\":0}}",
	  NULL, -EUCLEAN },
};

static void metadata_is_accepted_and_written_as_by_tensorstore(void **state)
{
	for (size_t i = 0; i < ARRAY_LEN(documents); i++) {
		auto_unit_chain u = { 0 };
		auto_buf text = { 0 }, printed = { 0 };
		int r;

		buf_addf(&text, "[%s]", documents[i].text);
		r = unit_chain_parse(&u, documents[i].dialect, buf_str(&text), 4);
		if (r != documents[i].r)
			fail_msg("%s gave %d: %s", documents[i].text, r, err_text(r));
		if (r < 0)
			continue;
		assert_int_equal(codec_print(u.chain.codec[0], documents[i].dialect, &printed), 0);
		assert_string_equal(buf_str(&printed), documents[i].printed);
	}
}

static void only_v3_codecs_after_the_bytes_codec_are_known(void **state)
{
	static const char *const yes[] = { "zstd", "gzip", "blosc", "crc32c" };
	static const char *const no[] = { "zlib", "bz2", "bytes", "transpose", "sharding_indexed",
					  "",     "zst" };

	for (size_t i = 0; i < ARRAY_LEN(yes); i++)
		assert_true(codec_is_known(span_str(yes[i])));
	for (size_t i = 0; i < ARRAY_LEN(no); i++)
		assert_false(codec_is_known(span_str(no[i])));
}

static void an_error_names_codec_and_member(void **state)
{
	auto_unit_chain u = { 0 }, v = { 0 };

	assert_int_equal(unit_chain_parse(&u, CODEC_V3,
					  "[{\"name\":\"gzip\",\"configuration\":{\"level\":10}}]",
					  4),
			 -EUCLEAN);
	assert_string_equal(err_text(-EUCLEAN),
			    "codec 'gzip': member 'level' is 10, not from 0 to 9");
	assert_int_equal(unit_chain_parse(&v, CODEC_V3, "[{\"name\":\"pcodec\"}]", 4), -EOPNOTSUPP);
	assert_string_equal(err_text(-EOPNOTSUPP), "codec 'pcodec' is not supported");
}

/* Append a checksum of everything so far. */
static void add_crc(struct buf *b)
{
	wire_put_u32le(b, crc32c(buf_span(b)));
}

/*
 * Bytes after an object are ignored only in v3, only after the whole object, and not when the codec
 * requires an exact end. TensorStore decides each case in the same way.
 */
static void where_an_object_ends(void **state)
{
	static const struct {
		enum codec_dialect dialect;
		const char *chain, *object, *tail;
		int crc; /* where a checksum is added: 1 before, 2 after the tail */
		int r;
	} cases[] = {
		{ CODEC_V2, "[]", PLAIN, "", 0, 0 },
		{ CODEC_V2, "[]", PLAIN, "00", 0, -EUCLEAN },
		{ CODEC_V3, "[]", PLAIN, "00", 0, -EUCLEAN },
		{ CODEC_V2, "[{\"id\":\"zstd\"}]", FRAME, "", 0, 0 },
		{ CODEC_V2, "[{\"id\":\"zstd\"}]", FRAME, "78", 0, -EUCLEAN },
		{ CODEC_V2, "[{\"id\":\"zstd\"}]", FRAME, FRAME, 0, -EUCLEAN },
		{ CODEC_V3, "[" ZSTD3 "]", FRAME, "78", 0, 0 },
		{ CODEC_V3, "[" ZSTD3 "]", FRAME, FRAME, 0, 0 },
		{ CODEC_V2, "[{\"id\":\"gzip\"}]", MEMBER, "78", 0, -EUCLEAN },
		{ CODEC_V3, "[" GZIP3 "]", MEMBER, "78", 0, 0 },
		{ CODEC_V3, "[" GZIP3 "]", MEMBER, MEMBER, 0, 0 },
		{ CODEC_V3, "[" CRC3 "]", PLAIN, "7878", 1, 0 },
		{ CODEC_V3, "[" CRC3 "]", PLAIN, "", 0, -EUCLEAN },
		{ CODEC_V3, "[" CRC3 "]", PLAIN, "00000000", 0, -EBADMSG },
		{ CODEC_V3, "[" ZSTD3 "," CRC3 "]", FRAME, "", 1, 0 },
		{ CODEC_V3, "[" ZSTD3 "," CRC3 "]", FRAME, "78", 1, -EBADMSG },
		{ CODEC_V3, "[" ZSTD3 "," CRC3 "]", FRAME, "78", 2, -EUCLEAN },
		{ CODEC_V3, "[" ZSTD3 "," CRC3 "]", FRAME, "00000000", 0, -EBADMSG },
		{ CODEC_V3, "[" BLOSC3 "]", "02013301100000001000000020000000" PLAIN, "", 0, 0 },
		{ CODEC_V3, "[" BLOSC3 "]", "02013301100000001000000020000000" PLAIN, "78", 0,
		  -EUCLEAN },
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		auto_unit_chain u = { 0 };
		auto_buf object = { 0 };
		uint8_t out[16];
		int r;

		unit_chain_of(&u, cases[i].dialect, cases[i].chain);
		unit_hex(&object, cases[i].object);
		if (cases[i].crc == 1)
			add_crc(&object);
		unit_hex(&object, cases[i].tail);
		if (cases[i].crc == 2)
			add_crc(&object);
		r = unit_decode(&u.chain, buf_span(&object), out, sizeof(out));
		if (r != cases[i].r)
			fail_msg("case %zu (%s) gave %d: %s", i, cases[i].chain, r, err_text(r));
		if (r == 0)
			assert_memory_equal(out, plain, sizeof(plain));
	}
}

/* Between two codecs no bytes may be left, not even in v3; and inner checksums are checked. */
static void chains_fit_together_exactly(void **state)
{
	static const struct {
		/* inner: the input of the outermost codec, made by hand */
		const char *chain, *outer, *inner;
		int crc, r;
	} cases[] = {
		{ "[" ZSTD3 "," GZIP3 "]", "[" GZIP3 "]", FRAME, 0, 0 },
		{ "[" ZSTD3 "," GZIP3 "]", "[" GZIP3 "]", FRAME "6a", 0, -EUCLEAN },
		{ "[" GZIP3 "," ZSTD3 "]", "[" ZSTD3 "]", MEMBER, 0, 0 },
		{ "[" GZIP3 "," ZSTD3 "]", "[" ZSTD3 "]", MEMBER "6a", 0, -EUCLEAN },
		{ "[" ZSTD3 "," BLOSC3 "]", "[" BLOSC3 "]", FRAME, 0, 0 },
		{ "[" ZSTD3 "," BLOSC3 "]", "[" BLOSC3 "]", FRAME "6a", 0, -EUCLEAN },
		{ "[" CRC3 "," ZSTD3 "]", "[" ZSTD3 "]", PLAIN, 1, 0 },
		{ "[" CRC3 "," ZSTD3 "]", "[" ZSTD3 "]", PLAIN "00000000", 0, -EBADMSG },
		{ "[" CRC3 "," ZSTD3 "]", "[" ZSTD3 "]", PLAIN, 0, -EUCLEAN },
		{ "[" CRC3 "," ZSTD3 "]", "[" ZSTD3 "]", PLAIN "0000000000", 0, -EUCLEAN },
		{ "[" BLOSC3 "," ZSTD3 "]", "[" ZSTD3 "]", "02013301100000001000000020000000" PLAIN,
		  0, 0 },
		{ "[" BLOSC3 "," ZSTD3 "]", "[" ZSTD3 "]",
		  "02013301100000001000000020000000" PLAIN "78", 0, -EUCLEAN },
		{ "[" CRC3 "," CRC3 "]", "[" CRC3 "]", PLAIN, 1, 0 },
		{ "[" CRC3 "," CRC3 "]", "[" CRC3 "]", PLAIN "00000000", 0, -EBADMSG },
		{ "[" ZSTD3 "," CRC3 "," GZIP3 "]", "[" GZIP3 "]", FRAME, 1, 0 },
		{ "[" ZSTD3 "," CRC3 "," GZIP3 "]", "[" GZIP3 "]", FRAME "00000000", 0, -EBADMSG },
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		auto_unit_chain all = { 0 }, outer = { 0 };
		auto_buf inner = { 0 }, object = { 0 };
		uint8_t out[16];
		int r;

		unit_chain_of(&all, CODEC_V3, cases[i].chain);
		unit_chain_of(&outer, CODEC_V3, cases[i].outer);
		unit_hex(&inner, cases[i].inner);
		if (cases[i].crc)
			add_crc(&inner);
		assert_int_equal(codec_encode(&outer.chain, buf_span(&inner), &object), 0);
		r = unit_decode(&all.chain, buf_span(&object), out, sizeof(out));
		if (r != cases[i].r)
			fail_msg("case %zu (%s) gave %d: %s", i, cases[i].chain, r, err_text(r));
		if (r == 0)
			assert_memory_equal(out, plain, sizeof(plain));
	}
}

static void every_chain_decodes_what_it_encoded(void **state)
{
	static const char *const chains[] = {
		"[]",
		"[" ZSTD3 "]",
		"[" GZIP3 "]",
		"[" BLOSC3 "]",
		"[" CRC3 "]",
		"[" ZSTD3 "," CRC3 "]",
		"[" CRC3 "," ZSTD3 "]",
		"[" GZIP3 "," ZSTD3 "," BLOSC3 "," CRC3 "]",
		"[" CRC3 "," CRC3 "," ZSTD3 "," CRC3 "]",
		"[" BLOSC3 "," GZIP3 "]",
	};
	static const size_t sizes[] = { 1, 3, 4, 127, 4096, 65536, 300001 };

	for (size_t i = 0; i < ARRAY_LEN(chains); i++) {
		auto_unit_chain u = { 0 };

		unit_chain_of(&u, CODEC_V3, chains[i]);
		for (size_t k = 0; k < ARRAY_LEN(sizes); k++) {
			auto_free uint8_t *in = malloc(sizes[k]), *out = malloc(sizes[k]);
			auto_buf object = { 0 };

			unit_fill(in, sizes[k], (unsigned)i);
			/* The object is appended; bytes before it are unchanged. */
			buf_add_str(&object, "head");
			assert_int_equal(codec_encode(&u.chain, span_of(in, sizes[k]), &object), 0);
			assert_memory_equal(object.p, "head", 4);
			assert_int_equal(unit_decode(&u.chain, span_from(buf_span(&object), 4), out,
						     sizes[k]),
					 0);
			assert_memory_equal(in, out, sizes[k]);
			/* Decoding to one byte less or more fails. */
			assert_int_equal(codec_decode(&u.chain, span_from(buf_span(&object), 4),
						      out, sizes[k] - 1) < 0,
					 1);
			uint8_t *more = malloc(sizes[k] + 1);
			assert_int_equal(codec_decode(&u.chain, span_from(buf_span(&object), 4),
						      more, sizes[k] + 1) < 0,
					 1);
			free(more);
		}
	}
}

static void a_failed_encode_leaves_the_output_unchanged(void **state)
{
	auto_unit_chain u = { 0 };
	auto_buf out = { 0 };

	unit_chain_of(&u, CODEC_V3, "[" CRC3 "," BLOSC3 "]");
	u.chain.codec[0] = u.chain.codec[1];
	buf_add_str(&out, "kept");
	assert_int_equal(codec_encode(&u.chain, span_of(NULL, 0), &out), -EINVAL);
	assert_int_equal(out.n, 4);
	assert_memory_equal(out.p, "kept", 4);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(metadata_is_accepted_and_written_as_by_tensorstore),
		cmocka_unit_test(only_v3_codecs_after_the_bytes_codec_are_known),
		cmocka_unit_test(an_error_names_codec_and_member),
		cmocka_unit_test(where_an_object_ends),
		cmocka_unit_test(chains_fit_together_exactly),
		cmocka_unit_test(every_chain_decodes_what_it_encoded),
		cmocka_unit_test(a_failed_encode_leaves_the_output_unchanged),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
