/* SPDX-License-Identifier: Apache-2.0 */
/*
 * t_codec_zstd_in_place.c - frames that are decoded into pieces which the caller retains: the same
 * bytes and errors as with a copy, wherever the pieces are in memory; no history but theirs.
 */
#include "tests/unit/lib/codec_unit.h"

#include <zstd.h>

#define PIECE (1 * MiB)
#define MOST (5 * MiB + 12345)

/* Where piece i is put, for at least two pieces at a time. */
enum place { APART, IN_TURN, AFTER_ONE_ANOTHER, BEFORE_ONE_ANOTHER };

struct pieces {
	enum place place;
	uint8_t *memory; /* room for MOST + 2 * PIECE */
	uint8_t *apart[2];
};

static uint8_t *piece_memory(struct pieces *k, size_t i)
{
	switch (k->place) {
	case APART:
		free(k->apart[i % 2]);
		k->apart[i % 2] = malloc(PIECE);
		return k->apart[i % 2];
	case IN_TURN:
		return k->memory + i % 2 * PIECE;
	case AFTER_ONE_ANOTHER:
		return k->memory + i * PIECE;
	default:
		return k->memory + (MOST / PIECE - i) * PIECE;
	}
}

/*
 * Decode the first `need` of n bytes to out; pieces but the last two are overwritten. Returns
 * whether it was done in place.
 */
static int decode_first(struct span object, enum place place, size_t in_piece, uint8_t *out,
			size_t n, size_t need, bool *ret_in_place)
{
	auto_unit_chain u = { 0 };
	auto_of(codec_stream) struct codec_stream *s = NULL;
	struct unit_source source = { object, in_piece, NULL };
	struct pieces k = { .place = place, .memory = malloc(MOST + 2 * PIECE) };
	uint8_t *before = NULL, *old = NULL;
	int r;

	unit_chain_of(&u, CODEC_V2, "[{\"id\":\"zstd\"}]");
	r = codec_stream_open(&u.chain, unit_pull, &source, n, 64 * MiB, PIECE, &s);
	if (r >= 0)
		*ret_in_place = codec_stream_needs_before(s);
	for (size_t at = 0; r >= 0 && at < need; at += PIECE) {
		size_t part = MIN(PIECE, need - at);
		uint8_t *p = piece_memory(&k, at / PIECE);

		if (old && place > IN_TURN)
			memset(old, 0xdd, PIECE);
		r = codec_stream_read(s, before, p, part);
		memcpy(out + at, p, part);
		old = before;
		before = p;
	}
	free(source.last);
	free(k.memory);
	free(k.apart[0]);
	free(k.apart[1]);
	return r;
}

static int decode(struct span object, enum place place, size_t in_piece, uint8_t *out, size_t n,
		  bool *ret_in_place)
{
	return decode_first(object, place, in_piece, out, n, n, ret_in_place);
}

/* Bytes with matches at all distances up to `far`. */
static void fill(uint8_t *p, size_t n, size_t far, unsigned seed)
{
	for (size_t i = 0; i < n; i++) {
		seed = seed * 1664525u + 1013904223u;
		p[i] = (uint8_t)(seed >> 24);
		if (i > far && seed >> 28 == 0) {
			size_t len = MIN((size_t)40, n - i), from = i - 1 - seed % far;

			for (size_t j = 0; j < len; j++)
				p[i + j] = p[from + j];
			i += len - 1;
		}
	}
}

/* Encode, ending a block after each `flush` bytes. */
static void encode(struct buf *b, int level, int window_log, bool summed, struct span in,
		   size_t flush)
{
	ZSTD_CCtx *c = ZSTD_createCCtx();
	size_t left;

	ZSTD_CCtx_setParameter(c, ZSTD_c_compressionLevel, level);
	ZSTD_CCtx_setParameter(c, ZSTD_c_windowLog, window_log);
	ZSTD_CCtx_setParameter(c, ZSTD_c_checksumFlag, summed);
	assert_int_equal(buf_reserve(b, ZSTD_compressBound(in.n) + in.n / flush * 20), 0);
	for (bool last = false; !last;) {
		size_t n = MIN(flush, in.n);
		ZSTD_inBuffer from = { in.p, n, 0 };

		last = n == in.n;
		do {
			ZSTD_outBuffer to = { b->p, b->cap, b->n };

			left = ZSTD_compressStream2(c, &to, &from,
						    last ? ZSTD_e_end : ZSTD_e_flush);
			assert_false(ZSTD_isError(left));
			b->n = to.pos;
		} while (left);
		in = span_from(in, n);
	}
	ZSTD_freeCCtx(c);
}

static void every_frame_decodes_to_its_bytes(void **state)
{
	static const struct {
		int level, log;
		bool summed;
		size_t n, flush;
	} cases[] = {
		{ 1, 19, true, MOST, SIZE_MAX },        { 1, 19, false, MOST, 100001 },
		{ 3, 19, true, MOST, 300001 },          { 1, 17, false, MOST, 4097 },
		{ 9, 18, true, 3 * MiB, 131073 },       { 1, 19, false, 2 * MiB + 1, SIZE_MAX },
		{ 1, 10, true, 2 * MiB - 1, SIZE_MAX }, { 1, 19, false, MiB, SIZE_MAX },
		{ -5, 19, true, MOST, SIZE_MAX },       { 19, 19, true, 2 * MiB, SIZE_MAX },
		{ 1, 19, true, 1, SIZE_MAX },
	};
	static const size_t in_pieces[] = { 512 * KiB, 65537, SIZE_MAX };
	auto_free uint8_t *in = malloc(MOST), *out = malloc(MOST);

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		auto_buf object = { 0 };

		fill(in, cases[i].n, (size_t)1 << (cases[i].log - 1), (unsigned)i);
		encode(&object, cases[i].level, cases[i].log, cases[i].summed,
		       span_of(in, cases[i].n), cases[i].flush);
		for (enum place place = APART; place <= BEFORE_ONE_ANOTHER; place++) {
			bool in_place = false;
			int r;

			memset(out, 0xee, cases[i].n);
			r = decode(buf_span(&object), place, in_pieces[(i + place) % 3], out,
				   cases[i].n, &in_place);
			if (r < 0)
				fail_msg("case %zu, place %d: %s", i, place, err_text(r));
			assert_true(in_place);
			assert_memory_equal(in, out, cases[i].n);
		}
	}
}

/* The block that crosses the end of a short piece has history in both pieces. */
static void a_part_of_a_frame_ends_anywhere(void **state)
{
	auto_free uint8_t *in = malloc(MOST), *out = malloc(MOST);
	auto_buf object = { 0 };

	fill(in, MOST, 500 * KiB, 3);
	encode(&object, 3, 19, true, span_of(in, MOST), SIZE_MAX);
	for (size_t need = 64 * KiB; need < MOST; need += 50001) {
		bool in_place = false;
		int r = decode_first(buf_span(&object), need % 4, 512 * KiB, out, MOST, need,
				     &in_place);

		if (r < 0)
			fail_msg("%zu bytes: %s", need, err_text(r));
		assert_true(in_place);
		assert_memory_equal(in, out, need);
	}
}

static void a_history_that_is_not_retained_is_copied(void **state)
{
	auto_free uint8_t *in = malloc(MOST), *out = malloc(MOST);
	auto_buf object = { 0 };
	bool in_place = true;

	fill(in, MOST, 3 * MiB, 1);
	encode(&object, 3, 22, false, span_of(in, MOST), SIZE_MAX);
	assert_int_equal(decode(buf_span(&object), APART, 512 * KiB, out, MOST, &in_place), 0);
	assert_false(in_place);
	assert_memory_equal(in, out, MOST);
}

/* The header declares a small window, but a match begins further back than two pieces. */
static void history_before_the_retained_pieces_is_refused(void **state)
{
	auto_free uint8_t *in = malloc(MOST), *out = malloc(MOST);
	auto_buf object = { 0 };

	fill(in, MOST, MiB / 2, 1);
	/* The second half of the fourth piece repeats the end of the first one. */
	memcpy(in + 3 * PIECE + PIECE / 2, in + PIECE - PIECE / 4, PIECE / 8);
	encode(&object, 9, 23, false, span_of(in, MOST), 4 * PIECE);
	assert_int_equal(object.p[4] & 0x20, 0);
	assert_int_equal(object.p[5], 13 << 3);
	object.p[5] = 9 << 3;
	for (enum place place = APART; place <= BEFORE_ONE_ANOTHER; place++) {
		bool in_place = false;
		int r = decode(buf_span(&object), place, 512 * KiB, out, MOST, &in_place);

		assert_true(in_place);
		assert_int_equal(r, -EUCLEAN);
		assert_string_equal(err_text(r), "cannot decode zstd: Data corruption detected");
	}
}

static void truncated_and_changed_frames_fail_as_with_a_copy(void **state)
{
	auto_free uint8_t *in = malloc(3 * PIECE), *a = malloc(3 * PIECE), *b = malloc(3 * PIECE);
	auto_unit_chain u = { 0 };
	auto_buf object = { 0 };

	unit_chain_of(&u, CODEC_V2, "[{\"id\":\"zstd\"}]");
	fill(in, 3 * PIECE, MiB / 4, 1);
	encode(&object, 1, 19, true, span_of(in, 3 * PIECE), 700001);
	for (size_t i = 0; i < 60; i++) {
		size_t at = object.n / 60 * i + 7, n = i % 2 ? at : object.n;
		bool in_place = false;
		int r, q;

		object.p[at] ^= 0x55;
		r = unit_stream(&u.chain, span_of(object.p, n), 70000, PIECE, UINT64_MAX, a,
				3 * PIECE);
		q = decode(span_of(object.p, n), (enum place)(i % 4), 70000, b, 3 * PIECE,
			   &in_place);
		object.p[at] ^= 0x55;
		assert_true(r < 0 && q < 0);
		/* A checksum is compared last, so that the other errors come first. */
		assert_true(q == -EUCLEAN || q == -EBADMSG);
	}
	/* One byte more, and one less, than the caller expects. */
	for (size_t n = 3 * PIECE - 1; n <= 3 * PIECE + 1; n += 2) {
		auto_buf unsized = { 0 };
		bool in_place = false;

		encode(&unsized, 1, 19, true, span_of(in, 3 * PIECE), 700001);
		assert_true(unsized.p[4] >> 6 == 0);
		assert_int_equal(decode(buf_span(&unsized), APART, 70000, a, MIN(n, 3 * PIECE),
					&in_place),
				 n > 3 * PIECE ? 0 : -EUCLEAN);
	}
}

static void pieces_of_other_sizes_are_refused(void **state)
{
	auto_free uint8_t *in = malloc(3 * PIECE), *out = malloc(3 * PIECE);
	auto_unit_chain u = { 0 };
	auto_buf object = { 0 };

	unit_chain_of(&u, CODEC_V2, "[{\"id\":\"zstd\"}]");
	fill(in, 3 * PIECE, MiB / 4, 1);
	encode(&object, 1, 19, true, span_of(in, 3 * PIECE), SIZE_MAX);
	for (int i = 0; i < 3; i++) {
		auto_of(codec_stream) struct codec_stream *s = NULL;
		struct unit_source source = { buf_span(&object), SIZE_MAX, NULL };
		size_t first = i == 0 ? PIECE + 1 : i == 1 ? PIECE - 1 : PIECE;

		assert_int_equal(codec_stream_open(&u.chain, unit_pull, &source, 3 * PIECE,
						   64 * MiB, PIECE, &s),
				 0);
		assert_int_equal(codec_stream_read(s, NULL, out, first), i == 0 ? -EINVAL : 0);
		if (i > 0)
			assert_int_equal(codec_stream_read(s, i == 1 ? out : NULL, out + PIECE,
							   PIECE),
					 -EINVAL);
		free(source.last);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_frame_decodes_to_its_bytes),
		cmocka_unit_test(a_part_of_a_frame_ends_anywhere),
		cmocka_unit_test(a_history_that_is_not_retained_is_copied),
		cmocka_unit_test(history_before_the_retained_pieces_is_refused),
		cmocka_unit_test(truncated_and_changed_frames_fail_as_with_a_copy),
		cmocka_unit_test(pieces_of_other_sizes_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
