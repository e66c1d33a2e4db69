/* SPDX-License-Identifier: Apache-2.0 */
/*
 * t_codec_zstd.c - one frame and nothing else, decided as by TensorStore; windows that cannot cause
 * an allocation; our frames declare their size; idle contexts are bounded.
 */
#include "tests/unit/lib/codec_unit.h"

#include <malloc.h>
#include <pthread.h>
#include <sys/resource.h>

#define PLAIN "000102030405060708090a0b0c0d0e0f"

static const uint8_t plain[16] = { 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15 };

static void verdicts_are_those_of_tensorstore(void **state)
{
	static const struct {
		const char *what, *object;
		int r;
	} cases[] = {
		{ "size declared", "28b52ffd2010810000" PLAIN, 0 },
		{ "no size", "28b52ffd0058810000" PLAIN, 0 },
		{ "size in two bytes, too large", "28b52ffd601000810000" PLAIN, -EUCLEAN },
		{ "size in four bytes", "28b52ffda010000000810000" PLAIN, 0 },
		{ "size in eight bytes", "28b52ffde01000000000000000810000" PLAIN, 0 },
		{ "size and window", "28b52ffd805810000000810000" PLAIN, 0 },
		{ "two blocks", "28b52ffd0058 400000 0001020304050607 410000 08090a0b0c0d0e0f", 0 },
		{ "an empty last block", "28b52ffd0058 800000" PLAIN "010000", 0 },
		{ "a truncated empty last block", "28b52ffd0058 800000" PLAIN "0100", -EUCLEAN },
		{ "no last block", "28b52ffd0058 800000" PLAIN, -EUCLEAN },
		{ "a damaged last block", "28b52ffd0058 800000" PLAIN "ffffff", -EUCLEAN },
		{ "one byte more", "28b52ffd0058 890000" PLAIN "7a", -EUCLEAN },
		{ "one byte more in a second block", "28b52ffd0058 800000" PLAIN "090000 7a",
		  -EUCLEAN },
		{ "one byte less", "28b52ffd0058 790000 000102030405060708090a0b0c0d0e", -EUCLEAN },
		{ "one byte more, declared", "28b52ffd2011 890000" PLAIN "7a", -EUCLEAN },
		{ "declares more than it has", "28b52ffd2011 810000" PLAIN, -EUCLEAN },
		{ "declares less than it has", "28b52ffd200f 810000" PLAIN, -EUCLEAN },
		{ "a skippable frame before", "502a4d18 04000000 61626364 28b52ffd2010810000" PLAIN,
		  -EUCLEAN },
		{ "an empty frame before", "28b52ffd0058010000 28b52ffd2010810000" PLAIN,
		  -EUCLEAN },
		{ "split over two frames",
		  "28b52ffd2008410000 0001020304050607 28b52ffd2008410000"
		  "08090a0b0c0d0e0f",
		  -EUCLEAN },
		{ "nothing", "", -EUCLEAN },
		{ "checksum wrong", "28b52ffd2410810000" PLAIN "00000000", -EBADMSG },
		{ "truncated checksum", "28b52ffd2410810000" PLAIN "0000", -EUCLEAN },
		{ "checksum missing", "28b52ffd2410810000" PLAIN, -EUCLEAN },
		{ "a dictionary", "28b52ffd210510810000" PLAIN, -EUCLEAN },
		{ "dictionary 0", "28b52ffd210010810000" PLAIN, 0 },
		{ "reserved bit", "28b52ffd2810810000" PLAIN, -EUCLEAN },
		{ "unused bit", "28b52ffd3010810000" PLAIN, 0 },
		{ "window 2^27", "28b52ffd0088810000" PLAIN, 0 },
		{ "window 2^31", "28b52ffd00a8810000" PLAIN, 0 },
		{ "window above 2^31", "28b52ffd00a9810000" PLAIN, -EFBIG },
		{ "window 2^32", "28b52ffd00b0810000" PLAIN, -EFBIG },
		{ "window 2^41", "28b52ffd00f8810000" PLAIN, -EFBIG },
		{ "frame of version 0.7", "27b52ffd2010810000" PLAIN, -EUCLEAN },
		{ "no magic", "2010810000" PLAIN, -EUCLEAN },
	};

	for (int dialect = CODEC_V2; dialect <= CODEC_V3; dialect++) {
		auto_unit_chain u = { 0 };

		unit_chain_of(&u, dialect,
			      dialect == CODEC_V2 ?
				      "[{\"id\":\"zstd\"}]" :
				      "[{\"name\":\"zstd\",\"configuration\":{\"level\":1}}]");
		for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
			auto_buf object = { 0 };
			uint8_t out[16];
			int r;

			unit_hex(&object, cases[i].object);
			r = unit_decode(&u.chain, buf_span(&object), out, sizeof(out));
			/* In v3 the first frame decides, too, even when it is too short. */
			if (r != cases[i].r)
				fail_msg("%s: gave %d: %s", cases[i].what, r, err_text(r));
			if (r == 0)
				assert_memory_equal(out, plain, sizeof(plain));
		}
	}
}

static void falsified_frames_never_decode_to_other_bytes(void **state)
{
	static const char *const chains[] = {
		"[{\"name\":\"zstd\",\"configuration\":{\"level\":3}}]",
		"[{\"name\":\"zstd\",\"configuration\":{\"level\":3,\"checksum\":true}}]",
	};
	uint8_t in[200];

	unit_fill(in, sizeof(in), 5);
	for (size_t i = 0; i < ARRAY_LEN(chains); i++) {
		auto_unit_chain u = { 0 };
		auto_buf object = { 0 };

		unit_chain_of(&u, CODEC_V3, chains[i]);
		assert_int_equal(codec_encode(&u.chain, span_of(in, sizeof(in)), &object), 0);
		unit_falsify(&u.chain, buf_span(&object), in, sizeof(in), i == 1);
	}
}

/*
 * Make a frame of raw blocks with a window of 2^log that repeats n bytes, without a declared size.
 */
static void raw_frame(struct buf *b, unsigned log, const uint8_t *p, size_t n)
{
	unit_hex(b, "28b52ffd00");
	buf_add_byte(b, (uint8_t)((log - 10) << 3));
	while (n) {
		size_t part = MIN(n, (size_t)(128 * KiB)), head = part << 3 | (part == n);

		for (int i = 0; i < 3; i++)
			buf_add_byte(b, (uint8_t)(head >> (8 * i)));
		buf_add(b, p, part);
		p += part;
		n -= part;
	}
}

static void a_large_window_costs_no_more_than_the_content(void **state)
{
	auto_unit_chain u = { 0 };
	auto_buf object = { 0 };
	auto_of(codec_stream) struct codec_stream *s = NULL;
	auto_free uint8_t *in = malloc(400000), *out = malloc(400000);
	struct unit_source source;

	unit_chain_of(&u, CODEC_V2, "[{\"id\":\"zstd\"}]");
	unit_fill(in, 400000, 1);
	raw_frame(&object, 31, in, 400000);
	source = (struct unit_source){ buf_span(&object), 1000, NULL };
	assert_int_equal(codec_stream_open(&u.chain, unit_pull, &source, 400000, 450000, 0, &s), 0);
	assert_true(codec_stream_memory(s) < 1200000);
	assert_int_equal(codec_stream_read(s, NULL, out, 400000), 0);
	assert_memory_equal(in, out, 400000);
	free(source.last);
}

#define LONG (4 * MiB)

/* Leaves that are read one after the other all have the window of level 1. */
static void a_usual_window_is_reused(void **state)
{
	auto_unit_chain u = { 0 };
	auto_buf object = { 0 };
	auto_free uint8_t *in = malloc(LONG), *out = malloc(LONG);
	struct rusage first, last;

	/*
	 * The program has these settings. Without them glibc would retain the memory of the first
	 * stream, and of earlier tests.
	 */
	mallopt(M_MMAP_THRESHOLD, 256 << 10);
	mallopt(M_TRIM_THRESHOLD, 1 << 20);
	malloc_trim(0);
	unit_chain_of(&u, CODEC_V2, "[{\"id\":\"zstd\"}]");
	unit_fill(in, LONG, 1);
	raw_frame(&object, 19, in, LONG);
	for (int i = 0; i < 9; i++) {
		auto_of(codec_stream) struct codec_stream *s = NULL;
		struct unit_source source = { buf_span(&object), 100000, NULL };

		assert_int_equal(
			codec_stream_open(&u.chain, unit_pull, &source, LONG, 512 * KiB, 0, &s), 0);
		assert_int_equal(codec_stream_read(s, NULL, out, LONG), 0);
		assert_memory_equal(in, out, LONG);
		free(source.last);
		getrusage(RUSAGE_SELF, i == 0 ? &first : &last);
	}
	/* Allocating a window each time would fault in more than 128 pages. (Sanitizers do so.) */
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
	assert_true(last.ru_minflt - first.ru_minflt < 8 * 64);
#endif
}

static void a_frame_that_needs_more_history_than_allowed_is_refused_with_both_numbers(void **state)
{
	static const struct {
		const char *head;
		uint64_t decoded, window;
		const char *text; /* NULL: opens */
	} cases[] = {
		{ "28b52ffd0058", 10000000, 2097152, NULL },
		{ "28b52ffd0058", 10000000, 2097151,
		  "zstd frame needs 2097152 bytes of history, the limit is 2097151" },
		/* A single segment: the window is its content. */
		{ "28b52ffda000000010", 268435456, 1048576,
		  "zstd frame needs 268435456 bytes of history, the limit is 1048576" },
		{ "28b52ffda000001000", 1048576, 1048576, NULL },
		/* A window that is larger than the declared content. */
		{ "28b52ffd80a800001000", 1048576, 1048576, NULL },
		{ "28b52ffd80a800001000", 1048576, 1048575,
		  "zstd frame needs 1048576 bytes of history, the limit is 1048575" },
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		auto_unit_chain u = { 0 };
		auto_buf object = { 0 };
		struct codec_stream *s = NULL;
		struct unit_source source;
		int r;

		unit_chain_of(&u, CODEC_V2, "[{\"id\":\"zstd\"}]");
		unit_hex(&object, cases[i].head);
		source = (struct unit_source){ buf_span(&object), SIZE_MAX, NULL };
		r = codec_stream_open(&u.chain, unit_pull, &source, cases[i].decoded,
				      cases[i].window, 0, &s);
		if (cases[i].text) {
			assert_int_equal(r, -EFBIG);
			assert_string_equal(err_text(-EFBIG), cases[i].text);
			assert_null(s);
		} else {
			assert_int_equal(r, 0);
			/* The history, and further buffers of libzstd. */
			if (codec_stream_memory(s) > cases[i].window + 512 * KiB)
				fail_msg("%llu bytes", (unsigned long long)codec_stream_memory(s));
		}
		codec_stream_close(s);
		free(source.last);
	}
}

static void our_frames_declare_their_size(void **state)
{
	static const size_t sizes[] = { 1, 255, 256, 70000, 3000000 };
	auto_unit_chain u = { 0 };

	unit_chain_of(&u, CODEC_V2, "[{\"id\":\"zstd\",\"level\":1}]");
	for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
		auto_free uint8_t *in = malloc(sizes[i]), *out = malloc(sizes[i]);
		auto_buf whole = { 0 }, pieces = { 0 };

		unit_fill(in, sizes[i], 9);
		assert_int_equal(codec_encode(&u.chain, span_of(in, sizes[i]), &whole), 0);
		assert_int_equal(unit_encode_pieces(&u.chain, span_of(in, sizes[i]), 4097, &pieces),
				 0);
		/* A single segment, or a size of four bytes or more. */
		assert_true(whole.p[4] & 0xe0);
		assert_true(pieces.p[4] & 0xe0);
		assert_int_equal(unit_decode(&u.chain, buf_span(&whole), out, sizes[i]), 0);
		assert_memory_equal(in, out, sizes[i]);
		assert_int_equal(unit_decode(&u.chain, buf_span(&pieces), out, sizes[i]), 0);
		assert_memory_equal(in, out, sizes[i]);
	}
}

static void levels_out_of_range_are_refused(void **state)
{
	auto_arena a = { 0 };
	const struct codec *c = NULL;

	assert_int_equal(codec_zstd_new(&a, 23, &c), -EINVAL);
	assert_int_equal(codec_zstd_new(&a, -131073, &c), -EINVAL);
	assert_null(c);
	for (int level = -5; level <= 22; level += 9) {
		auto_buf object = { 0 };
		uint8_t in[5000], out[5000];

		assert_int_equal(codec_zstd_new(&a, level, &c), 0);
		struct codec_chain chain = { CODEC_V2, 1, { c } };

		unit_fill(in, sizeof(in), 3);
		assert_int_equal(codec_encode(&chain, span_of(in, sizeof(in)), &object), 0);
		assert_int_equal(unit_decode(&chain, buf_span(&object), out, sizeof(out)), 0);
		assert_memory_equal(in, out, sizeof(in));
	}
}

static void *many_chunks(void *arg)
{
	const struct codec_chain *chain = arg;
	uint8_t in[3000], out[3000];

	for (unsigned i = 0; i < 200; i++) {
		auto_buf object = { 0 };

		unit_fill(in, sizeof(in), i);
		if (codec_encode(chain, span_of(in, sizeof(in)), &object) < 0 ||
		    codec_decode(chain, buf_span(&object), out, sizeof(out)) < 0 ||
		    memcmp(in, out, sizeof(in)) != 0)
			return arg;
	}
	return NULL;
}

static void threads_share_the_cached_contexts(void **state)
{
	auto_unit_chain u = { 0 };
	pthread_t t[4];

	unit_chain_of(&u, CODEC_V2, "[{\"id\":\"zstd\"}]");
	for (size_t i = 0; i < ARRAY_LEN(t); i++)
		assert_int_equal(pthread_create(&t[i], NULL, many_chunks, &u.chain), 0);
	for (size_t i = 0; i < ARRAY_LEN(t); i++) {
		void *bad = &u;

		assert_int_equal(pthread_join(t[i], &bad), 0);
		assert_null(bad);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(verdicts_are_those_of_tensorstore),
		cmocka_unit_test(falsified_frames_never_decode_to_other_bytes),
		cmocka_unit_test(a_large_window_costs_no_more_than_the_content),
		cmocka_unit_test(a_usual_window_is_reused),
		cmocka_unit_test(
			a_frame_that_needs_more_history_than_allowed_is_refused_with_both_numbers),
		cmocka_unit_test(our_frames_declare_their_size),
		cmocka_unit_test(levels_out_of_range_are_refused),
		cmocka_unit_test(threads_share_the_cached_contexts),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
