/* SPDX-License-Identifier: Apache-2.0 */
/*
 * t_codec_blosc.c - Blosc: test vectors, every compressor and shuffle, block by block, blocks in
 * any order, hostile headers.
 */
#include "tests/unit/lib/codec_unit.h"

#include "core/base/wire.h"

#define BLOSC3                                                                                       \
	"[{\"name\":\"blosc\",\"configuration\":{\"cname\":\"%s\",\"clevel\":%d,\"shuffle\":\"%s\"," \
	"\"typesize\":%d,\"blocksize\":%d}}]"

static void chain_with(struct unit_chain *u, const char *cname, int level, const char *shuffle,
		       int typesize, int blocksize)
{
	char text[256];

	snprintf(text, sizeof(text), BLOSC3, cname, level, shuffle, typesize, blocksize);
	unit_chain_of(u, CODEC_V3, text);
}

static void the_vectors(void **state)
{
	static const char *const objects[] = {
		"02012104 00040000 00040000 50000000 14000000 0b000000 1f010100e7500101010101 0b000000"
		"1f020100e7500202020202 0b000000 1f030100e7500303030303 0b000000 1f040100e7500404040404",
		"02012404 00040000 00040000 74000000 14000000 10000000 1fff01000c1f000100c7500000000000"
		"18000000 1f0001000c1fff01000c0f3f000c0f020089500000000000 10000000"
		"1fff01002c1f000100a7500000000000 18000000"
		"1f0001002c1fff01000c0f5f002c0f020049500000000000",
	};
	auto_unit_chain u = { 0 };

	chain_with(&u, "lz4", 5, "shuffle", 4, 0);
	for (size_t i = 0; i < ARRAY_LEN(objects); i++) {
		auto_buf object = { 0 };
		uint8_t out[1024];

		unit_hex(&object, objects[i]);
		if (unit_decode(&u.chain, buf_span(&object), out, sizeof(out)) < 0)
			fail_msg("vector %zu: %s", i, unit_last_note());
		for (size_t k = 0; k < sizeof(out); k++)
			assert_int_equal(out[k], k % 4 + 1);
	}
}

/* The product of compressors, shuffles, element sizes, block sizes and lengths. */
static void everything_decodes_whole_and_block_by_block(void **state)
{
	static const char *const cnames[] = { "blosclz", "lz4", "lz4hc", "snappy", "zlib", "zstd" };
	static const char *const shuffles[] = { "noshuffle", "shuffle", "bitshuffle" };
	static const int typesizes[] = { 1, 2, 3, 4, 8, 16, 17 };
	static const int blocksizes[] = { 0, 256, 4096 };
	static const size_t sizes[] = { 1, 127, 128, 1000, 4096, 70001 };
	static uint8_t in[70001], out[70001];

	unit_fill(in, sizeof(in), 4);
	for (size_t c = 0; c < ARRAY_LEN(cnames); c++)
		for (size_t s = 0; s < ARRAY_LEN(shuffles); s++)
			for (size_t t = 0; t < ARRAY_LEN(typesizes); t++)
				for (size_t b = 0; b < ARRAY_LEN(blocksizes); b++) {
					auto_unit_chain u = { 0 };

					chain_with(&u, cnames[c], 5, shuffles[s], typesizes[t],
						   blocksizes[b]);
					for (size_t k = 0; k < ARRAY_LEN(sizes); k++) {
						auto_buf object = { 0 };

						assert_int_equal(codec_encode(&u.chain,
									      span_of(in, sizes[k]),
									      &object),
								 0);
						if (unit_decode(&u.chain, buf_span(&object), out,
								sizes[k]) < 0)
							fail_msg("%s %s %d %d %zu: %s", cnames[c],
								 shuffles[s], typesizes[t],
								 blocksizes[b], sizes[k],
								 unit_last_note());
						assert_memory_equal(in, out, sizes[k]);
					}
				}
}

#define MANY 500000

/* Make an object of several split blocks, and the same with its blocks stored in another order. */
static void make_blocks(struct buf *object, struct buf *mixed, uint8_t *in, size_t n)
{
	auto_unit_chain u = { 0 };
	uint32_t blocks, at;

	unit_fill(in, n, 11);
	chain_with(&u, "lz4", 9, "shuffle", 4, 4096);
	assert_int_equal(codec_encode(&u.chain, span_of(in, n), object), 0);
	assert_int_equal(get_u32le(object->p + 8), 65536);
	assert_false(object->p[2] & 0x10);
	blocks = (uint32_t)(n / 65536 + 1);
	assert_int_equal(blocks, 8);
	buf_add(mixed, object->p, object->n);
	at = 16 + 4 * blocks;
	/* The last block first, then the others in order. */
	for (uint32_t k = 0; k < blocks; k++) {
		uint32_t i = (k + blocks - 1) % blocks;
		uint32_t start = get_u32le(object->p + 16 + 4 * i);
		uint32_t end = i + 1 < blocks ? get_u32le(object->p + 20 + 4 * i) :
						(uint32_t)object->n;

		memcpy(mixed->p + at, object->p + start, end - start);
		set_u32le(mixed->p + 16 + 4 * i, at);
		at += end - start;
	}
	assert_int_equal(at, object->n);
}

static void blocks_may_be_in_any_order(void **state)
{
	size_t n = MANY;
	auto_free uint8_t *in = malloc(n), *out = malloc(n);
	auto_buf object = { 0 }, mixed = { 0 };
	auto_unit_chain u = { 0 };

	make_blocks(&object, &mixed, in, n);
	assert_true(memcmp(object.p, mixed.p, object.n) != 0);
	chain_with(&u, "zstd", 1, "noshuffle", 1, 0);
	assert_int_equal(unit_decode(&u.chain, buf_span(&mixed), out, n), 0);
	assert_memory_equal(in, out, n);
}

/* Objects with blocks in order are decoded by ranges. */
static void ranges_are_decoded_from_their_blocks(void **state)
{
	size_t n = MANY, in_n;
	auto_free uint8_t *in = malloc(n), *out = malloc(n);
	auto_buf object = { 0 }, mixed = { 0 }, shared = { 0 };
	auto_unit_chain u = { 0 };
	auto_of(codec_blocks) struct codec_blocks *b = NULL;
	struct span s;
	uint64_t at;

	make_blocks(&object, &mixed, in, n);
	chain_with(&u, "zstd", 1, "noshuffle", 1, 0);
	for (size_t piece = 1000; piece <= n; piece *= 3) {
		assert_int_equal(unit_ranges(&u.chain, buf_span(&object), piece, out, n), 0);
		assert_memory_equal(in, out, n);
	}
	/* Objects whose blocks are not in order, or overlap, are decoded as streams. */
	assert_int_equal(unit_ranges(&u.chain, buf_span(&mixed), 1000, out, n), 1);
	buf_add(&shared, object.p, object.n);
	set_u32le(shared.p + 20, get_u32le(shared.p + 16) + 100);
	assert_int_equal(unit_ranges(&u.chain, buf_span(&shared), 1000, out, n), 1);
	/* One decoded byte needs one stored block. */
	s = buf_span(&object);
	assert_int_equal(codec_blocks_open(&u.chain, unit_read, &s, s.n, n, &b), 1);
	codec_blocks_span(b, 65536 * 3 + 7, 1, &at, &in_n);
	assert_int_equal(at, get_u32le(object.p + 16 + 12));
	assert_int_equal(at + in_n, get_u32le(object.p + 16 + 16));
	assert_int_equal(codec_blocks_head_bytes(b), 16 + 4 * 8);
}

static void memory_is_a_few_blocks(void **state)
{
	size_t n = 4000000;
	auto_free uint8_t *in = malloc(n), *out = malloc(n);
	auto_buf object = { 0 };
	auto_unit_chain u = { 0 };
	auto_of(codec_stream) struct codec_stream *s = NULL;
	struct unit_source source;
	uint64_t before;

	chain_with(&u, "lz4", 5, "shuffle", 4, 4096);
	unit_fill(in, n, 3);
	assert_int_equal(codec_encode(&u.chain, span_of(in, n), &object), 0);
	source = (struct unit_source){ buf_span(&object), 10000, NULL };
	assert_int_equal(codec_stream_open(&u.chain, unit_pull, &source, n, 70000, 0, &s), 0);
	before = codec_stream_memory(s);
	for (size_t at = 0; at < n; at += 1000)
		assert_int_equal(codec_stream_read(s, NULL, out + at, 1000), 0);
	assert_true(codec_stream_memory(s) <= before && before < 8 * 65536 + 8192);
	assert_memory_equal(in, out, n);
	free(source.last);
}

static void blocks_larger_than_the_window_are_refused_with_both_numbers(void **state)
{
	auto_free uint8_t *in = malloc(MANY), *out = malloc(MANY);
	auto_buf object = { 0 }, mixed = { 0 };
	auto_unit_chain u = { 0 };
	unsigned long long need;

	make_blocks(&object, &mixed, in, MANY);
	chain_with(&u, "lz4", 5, "shuffle", 4, 0);
	assert_int_equal(unit_stream(&u.chain, buf_span(&object), 100, MANY, 65599, out, MANY),
			 -EFBIG);
	assert_string_equal(
		err_text(-EFBIG),
		"blosc object needs 65600 bytes for a block and the index, the limit is 65599");
	assert_int_equal(unit_stream(&u.chain, buf_span(&object), 100, MANY, 65600, out, MANY), 0);
	/* The last block comes first in the object, and must be held until the end. */
	assert_int_equal(unit_stream(&u.chain, buf_span(&mixed), 100, MANY, 65600, out, MANY),
			 -EFBIG);
	/*
	 * The first message has the number of bytes that is needed, so a caller with more room can
	 * start again with it.
	 */
	assert_int_equal(sscanf(err_text(-EFBIG),
				"blosc blocks are out of order by %llu bytes, the limit is 65600",
				&need),
			 1);
	assert_int_equal(unit_stream(&u.chain, buf_span(&mixed), 100, MANY, need, out, MANY), 0);
	assert_memory_equal(in, out, MANY);
	assert_int_equal(unit_stream(&u.chain, buf_span(&mixed), 100, MANY, need - 1, out, MANY),
			 -EFBIG);
}

static void headers_are_checked(void **state)
{
	static const struct {
		const char *what;
		unsigned at, len;
		uint32_t value;
		bool stored;
		int r;
	} cases[] = {
		{ "version 1", 0, 1, 1, false, -EUCLEAN },
		{ "version 3", 0, 1, 3, false, -EUCLEAN },
		{ "version of the inner format", 1, 1, 2, false, -EUCLEAN },
		{ "reserved flag", 2, 1, 0x29, false, -EUCLEAN },
		{ "format 5", 2, 1, 0xa1, false, -EUCLEAN },
		{ "format 7", 2, 1, 0xe1, false, -EUCLEAN },
		{ "stored, though it is not", 2, 1, 0x23, false, -EUCLEAN },
		{ "element size 0", 3, 1, 0, false, -EUCLEAN },
		{ "no bytes", 4, 4, 0, false, -EUCLEAN },
		{ "one byte more", 4, 4, MANY + 1, false, -EUCLEAN },
		{ "2^31 bytes", 4, 4, 0x80000000, false, -EUCLEAN },
		{ "block size 0", 8, 4, 0, false, -EUCLEAN },
		{ "block size 1", 8, 4, 1, false, -EUCLEAN },
		{ "block size above the whole", 8, 4, MANY + 1, false, -EUCLEAN },
		{ "object size 0", 12, 4, 0, false, -EUCLEAN },
		{ "object size less by one", 12, 4, UINT32_MAX, false, -EUCLEAN },
		{ "block at the header", 16, 4, 0, false, -EUCLEAN },
		{ "block in the index", 16, 4, 20, false, -EUCLEAN },
		{ "block after the end", 16, 4, 0x7fffffff, false, -EUCLEAN },
		{ "block at -1", 16, 4, 0xffffffff, false, -EUCLEAN },
		{ "stored: element size 0", 3, 1, 0, true, -EUCLEAN },
		{ "stored: any format", 2, 1, 0xe2, true, 0 },
		{ "stored: reserved flag", 2, 1, 0x0a, true, -EUCLEAN },
		{ "stored: block size 0", 8, 4, 0, true, -EUCLEAN },
		{ "stored: fewer bytes", 4, 4, MANY - 1, true, -EUCLEAN },
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		auto_free uint8_t *in = malloc(MANY), *out = malloc(MANY);
		auto_buf object = { 0 }, mixed = { 0 };
		auto_unit_chain u = { 0 };
		uint32_t value = cases[i].value;
		int r;

		make_blocks(&object, &mixed, in, MANY);
		chain_with(&u, "lz4", 0, "noshuffle", 1, 0);
		if (cases[i].stored) {
			buf_clear(&object);
			assert_int_equal(codec_encode(&u.chain, span_of(in, MANY), &object), 0);
		}
		if (cases[i].at == 12 && value)
			value = (uint32_t)object.n - 1;
		for (unsigned k = 0; k < cases[i].len; k++)
			object.p[cases[i].at + k] = (uint8_t)(value >> (8 * k));
		r = unit_decode(&u.chain, buf_span(&object), out, MANY);
		if (r != cases[i].r)
			fail_msg("%s: gave %d: %s", cases[i].what, r, err_text(r));
	}
}

static void bytes_up_to_the_declared_end_belong_to_the_object(void **state)
{
	auto_free uint8_t *in = malloc(MANY), *out = malloc(MANY);
	auto_buf object = { 0 }, mixed = { 0 };
	auto_unit_chain u = { 0 };

	make_blocks(&object, &mixed, in, MANY);
	chain_with(&u, "lz4", 0, "noshuffle", 1, 0);
	buf_add_str(&object, "slack");
	assert_true(unit_decode(&u.chain, buf_span(&object), out, MANY) < 0);
	set_u32le(object.p + 12, (uint32_t)object.n);
	assert_int_equal(unit_decode(&u.chain, buf_span(&object), out, MANY), 0);
	assert_memory_equal(in, out, MANY);
}

static void the_automatic_shuffle_of_v2_follows_the_element(void **state)
{
	uint8_t in[4096];

	unit_fill(in, sizeof(in), 1);
	for (size_t item = 1; item <= 8; item *= 2) {
		auto_unit_chain u = { 0 };
		auto_buf object = { 0 };

		assert_int_equal(unit_chain_parse(&u, CODEC_V2, "[{\"id\":\"blosc\"}]", item), 0);
		assert_int_equal(codec_encode(&u.chain, span_of(in, sizeof(in)), &object), 0);
		assert_int_equal(object.p[3], item);
		assert_int_equal(object.p[2] & 5, item == 1 ? 4 : 1);
	}
}

/* Splits that are sampled: some are stored, some compressed by letters, some by matches. */
static void splits_of_long_blocks(void **state)
{
	enum { N = 3 * 512 * 1024 + 24000 };
	static uint8_t in[N], out[N];
	const struct {
		const char *kind;
		size_t most; /* of 1000 bytes */
	} rows[] = { { "random", 1001 }, { "zeros", 2 }, { "floats", 920 }, { "rows", 60 } };

	for (size_t i = 0; i < ARRAY_LEN(rows); i++)
		for (size_t item = 2; item <= 8; item *= 2) {
			auto_unit_chain u = { 0 };
			auto_buf object = { 0 };

			unit_fill(in, N, 7);
			for (size_t k = 0; k < N && i > 0; k++) {
				if (i == 1)
					in[k] = 0;
				/* The last byte of each element has few values, some of them rare. */
				if (i == 2 && k % item == item - 1)
					in[k] = (uint8_t)(60 + __builtin_ctz(in[k] | 0x80));
				if (i == 3 && k >= 512)
					in[k] = in[k - 512];
			}
			chain_with(&u, "zstd", 1, "shuffle", (int)item, 512 * 1024);
			assert_int_equal(codec_encode(&u.chain, span_of(in, N), &object), 0);
			if (object.n > N / 1000 * rows[i].most)
				fail_msg("%s of %zu: %zu bytes", rows[i].kind, item, object.n);
			assert_false(object.p[2] & 0x10);
			assert_int_equal(unit_decode(&u.chain, buf_span(&object), out, N), 0);
			assert_memory_equal(in, out, N);
		}
}

static void falsified_objects_fail_cleanly(void **state)
{
	static const char *const cnames[] = { "blosclz", "lz4", "snappy", "zlib", "zstd" };
	uint8_t in[600];

	for (size_t i = 0; i < sizeof(in); i++)
		in[i] = (uint8_t)(i % 2 ? i / 40 : 3);
	for (size_t i = 0; i < ARRAY_LEN(cnames); i++) {
		auto_unit_chain u = { 0 };
		auto_buf object = { 0 };

		chain_with(&u, cnames[i], 9, "shuffle", 2, 256);
		assert_int_equal(codec_encode(&u.chain, span_of(in, sizeof(in)), &object), 0);
		assert_false(object.p[2] & 2);
		unit_falsify(&u.chain, buf_span(&object), in, sizeof(in), false);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_vectors),
		cmocka_unit_test(everything_decodes_whole_and_block_by_block),
		cmocka_unit_test(blocks_may_be_in_any_order),
		cmocka_unit_test(ranges_are_decoded_from_their_blocks),
		cmocka_unit_test(memory_is_a_few_blocks),
		cmocka_unit_test(blocks_larger_than_the_window_are_refused_with_both_numbers),
		cmocka_unit_test(headers_are_checked),
		cmocka_unit_test(bytes_up_to_the_declared_end_belong_to_the_object),
		cmocka_unit_test(the_automatic_shuffle_of_v2_follows_the_element),
		cmocka_unit_test(splits_of_long_blocks),
		cmocka_unit_test(falsified_objects_fail_cleanly),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
