/* SPDX-License-Identifier: Apache-2.0 */
/*
 * t_frame.c - the envelope: lengths, checksum, versions, and the memory that a zstd frame can cost.
 */
#include "tests/unit/lib/ocdbt_test.h"

#include <zstd.h>

static int open_leaf(struct span stored)
{
	auto_buf hold = { 0 };
	struct span body = NONE;

	return ocdbt_frame_open(OCDBT_BTREENODE, stored, 1 * MiB, &hold, &body);
}

/* Make an envelope of compression 1 around these bytes. */
static void wrap(struct span frame, struct buf *ret)
{
	assert_int_equal(ocdbt_frame_pack(OCDBT_BTREENODE, NULL, frame, ret), 0);
	ret->p[13] = 1;
	test_fix_crc(ret);
}

static void the_body_is_returned(void **state)
{
	auto_buf hold = { 0 };
	struct span plain, packed;

	assert_int_equal(ocdbt_frame_open(OCDBT_BTREENODE, VEC(leaf_inline), 100, &hold, &plain),
			 0);
	assert_int_equal(plain.n, 8);
	assert_int_equal(ocdbt_frame_open(OCDBT_BTREENODE, VEC(leaf_zstd), 100, &hold, &packed), 0);
	assert_true(span_eq(plain, packed));
}

static void packed_records_can_be_opened(void **state)
{
	static const int levels[] = { 0, 1, 5, 22, -7, -131072 };
	auto_buf body = { 0 };

	for (int i = 0; i < 300000; i++)
		buf_add_byte(&body, (uint8_t)((unsigned)i * (unsigned)i >> 7));
	for (size_t i = 0; i < ARRAY_LEN(levels); i++) {
		struct ocdbt_config c = { .compression = OCDBT_ZSTD, .zstd_level = levels[i] };
		auto_buf record = { 0 }, hold = { 0 };
		struct span back;

		assert_int_equal(ocdbt_frame_pack(OCDBT_MANIFEST, &c, buf_span(&body), &record), 0);
		assert_int_equal(ocdbt_frame_open(OCDBT_MANIFEST, buf_span(&record), 1 * MiB, &hold,
						  &back),
				 0);
		assert_true(span_eq(back, buf_span(&body)));
		/* It is not a record of another kind. */
		assert_int_equal(ocdbt_frame_open(OCDBT_BTREENODE, buf_span(&record), 1 * MiB,
						  &hold, &back),
				 -EUCLEAN);
	}
}

static void damage_is_refused(void **state)
{
	/* The content of a plain body is not checked here; a truncated frame is refused. */
	test_falsify(VEC(leaf_zstd), open_leaf);
	test_falsify(VEC(leaf_mixed), open_leaf);
}

static void refusals_name_both_values(void **state)
{
	static const struct {
		size_t at;
		uint8_t byte;
		bool fix;
		int code;
		const char *text;
	} cases[] = {
		{ 0, 0x0d, true, -EUCLEAN,
		  "not a B+tree node: magic 0ddb20de, should be 0cdb20de" },
		{ 4, 0x1b, false, -EUCLEAN, "B+tree node declares 27 bytes, has 26" },
		{ 12, 1, true, -EOPNOTSUPP, "B+tree node of format version 1, known is 0" },
		{ 13, 2, true, -EOPNOTSUPP, "B+tree node with compression 2, known are 0 and 1" },
		{ 0x12, 0x62, false, -EBADMSG, "stored 5632120a" },
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		auto_buf b = { 0 };

		buf_add_span(&b, VEC(leaf_inline));
		b.p[cases[i].at] = cases[i].byte;
		if (cases[i].fix)
			test_fix_crc(&b);
		assert_int_equal(open_leaf(buf_span(&b)), cases[i].code);
		if (!strstr(err_text(cases[i].code), cases[i].text))
			fail_msg("'%s' says '%s'", cases[i].text, err_text(cases[i].code));
	}
}

/* Longer spellings of version and compression than necessary are legal. */
static void overlong_numbers_are_read(void **state)
{
	auto_buf b = { 0 }, hold = { 0 };
	struct span body;

	buf_add_span(&b, span_of(vec_leaf_inline, 12));
	buf_add_str(&b, "\x80\x80");
	buf_add(&b, "\x00\x80\x00", 3);
	buf_add_span(&b, span_of(vec_leaf_inline + 14, 12));
	test_fix_crc(&b);
	assert_int_equal(ocdbt_frame_open(OCDBT_BTREENODE, buf_span(&b), 100, &hold, &body), 0);
	assert_int_equal(body.n, 8);
}

/* Make a frame as a stream, like TensorStore: without a content size. */
static void stream_frame(struct buf *ret, size_t n, int window_log, bool checksum)
{
	ZSTD_CCtx *ctx = ZSTD_createCCtx();
	auto_free uint8_t *in = calloc(1, n + 1);
	ZSTD_inBuffer src = { in, n, 0 };

	if (window_log)
		ZSTD_CCtx_setParameter(ctx, ZSTD_c_windowLog, window_log);
	ZSTD_CCtx_setParameter(ctx, ZSTD_c_checksumFlag, checksum);
	assert_int_equal(buf_reserve(ret, ZSTD_compressBound(n)), 0);
	for (bool is_end = false; !is_end;) {
		ZSTD_outBuffer out = { ret->p, ret->cap, ret->n };
		ZSTD_EndDirective how = src.pos < n ? ZSTD_e_continue : ZSTD_e_end;
		size_t left = ZSTD_compressStream2(ctx, &out, &src, how);

		assert_false(ZSTD_isError(left));
		ret->n = out.pos;
		is_end = how == ZSTD_e_end && left == 0;
	}
	ZSTD_freeCCtx(ctx);
}

static void frames_without_a_size_are_read(void **state)
{
	static const size_t sizes[] = { 1, 4096, 4097, 131072, 131073, 900000 };

	for (size_t i = 0; i < ARRAY_LEN(sizes); i++)
		for (int checksum = 0; checksum < 2; checksum++) {
			auto_buf frame = { 0 }, b = { 0 }, hold = { 0 };
			struct span body;

			stream_frame(&frame, sizes[i], 0, checksum);
			wrap(buf_span(&frame), &b);
			assert_int_equal(ocdbt_frame_open(OCDBT_BTREENODE, buf_span(&b), 1 * MiB,
							  &hold, &body),
					 0);
			assert_int_equal(body.n, sizes[i]);
		}
}

static void a_huge_window_costs_nothing(void **state)
{
	auto_buf frame = { 0 }, b = { 0 }, hold = { 0 };
	struct span body;

	stream_frame(&frame, 1000, 0, false);
	/* Window descriptor 21 << 3: 2^31 bytes. */
	assert_int_equal(frame.p[4] & 0x20, 0);
	frame.p[5] = 21 << 3;
	wrap(buf_span(&frame), &b);
	assert_int_equal(ocdbt_frame_open(OCDBT_BTREENODE, buf_span(&b), 1 * MiB, &hold, &body), 0);
	assert_int_equal(body.n, 1000);
	assert_true(hold.cap <= 128 * KiB + 64);
}

static void a_bomb_stops_at_the_limit(void **state)
{
	auto_buf frame = { 0 }, b = { 0 }, hold = { 0 };
	struct span body;

	stream_frame(&frame, 8 * MiB, 0, false);
	wrap(buf_span(&frame), &b);
	assert_true(b.n < 2000);
	assert_int_equal(ocdbt_frame_open(OCDBT_BTREENODE, buf_span(&b), 8 * MiB, &hold, &body), 0);
	buf_release(&hold);
	assert_int_equal(ocdbt_frame_open(OCDBT_BTREENODE, buf_span(&b), 8 * MiB - 1, &hold, &body),
			 -EFBIG);
	assert_null(hold.p);
	assert_non_null(strstr(err_text(-EFBIG), "8388607"));
}

static void one_frame_and_nothing_else(void **state)
{
	auto_buf frame = { 0 }, one = { 0 };
	static const uint8_t skippable[] = { 0x50, 0x2a, 0x4d, 0x18, 2, 0, 0, 0, 9, 9 };

	stream_frame(&frame, 5000, 0, true);
	for (int i = 0; i < 6; i++) {
		auto_buf f = { 0 }, b = { 0 };

		if (i == 1)
			buf_add(&f, skippable, sizeof(skippable));
		if (i != 5)
			buf_add_span(&f, buf_span(&frame));
		if (i == 2)
			buf_add(&f, skippable, sizeof(skippable));
		if (i == 3)
			buf_add_span(&f, buf_span(&frame));
		if (i == 4)
			buf_add_byte(&f, 0);
		wrap(buf_span(&f), &b);
		assert_int_equal(open_leaf(buf_span(&b)), i == 0 ? 0 : -EUCLEAN);
	}
	/* Truncated anywhere, or with any byte of the frame changed, it either fails or decodes. */
	wrap(buf_span(&frame), &one);
	test_falsify(buf_span(&one), open_leaf);
}

static void plain_bodies_have_the_same_limit(void **state)
{
	auto_buf b = { 0 }, hold = { 0 };
	uint8_t body[100] = { 0 };
	struct span back;

	assert_int_equal(ocdbt_frame_pack(OCDBT_BTREENODE, NULL, span_of(body, 100), &b), 0);
	assert_int_equal(ocdbt_frame_open(OCDBT_BTREENODE, buf_span(&b), 100, &hold, &back), 0);
	assert_int_equal(ocdbt_frame_open(OCDBT_BTREENODE, buf_span(&b), 99, &hold, &back), -EFBIG);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_body_is_returned),
		cmocka_unit_test(packed_records_can_be_opened),
		cmocka_unit_test(damage_is_refused),
		cmocka_unit_test(refusals_name_both_values),
		cmocka_unit_test(overlong_numbers_are_read),
		cmocka_unit_test(frames_without_a_size_are_read),
		cmocka_unit_test(a_huge_window_costs_nothing),
		cmocka_unit_test(a_bomb_stops_at_the_limit),
		cmocka_unit_test(one_frame_and_nothing_else),
		cmocka_unit_test(plain_bodies_have_the_same_limit),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
