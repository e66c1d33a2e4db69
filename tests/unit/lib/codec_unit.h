/* SPDX-License-Identifier: Apache-2.0 */
/*
 * codec_unit.h - helpers of the codec tests: chains from JSON text, bytes from hex, and decoding in
 * every possible way.
 */
#ifndef PYTREEFS_CODEC_UNIT_H
#define PYTREEFS_CODEC_UNIT_H

#include "tests/unit/lib/unit.h"

#include <stdlib.h>
#include <string.h>

#include "core/codec/codec.h"

struct unit_chain {
	struct arena arena;
	struct json_doc doc;
	struct codec_chain chain;
};

static inline void unit_chain_release(struct unit_chain *u)
{
	json_release(&u->doc);
	arena_release(&u->arena);
}

#define auto_unit_chain __attribute__((cleanup(unit_chain_release))) struct unit_chain

/* text is a JSON array of codecs. */
static inline int unit_chain_parse(struct unit_chain *u, enum codec_dialect dialect,
				   const char *text, size_t item_bytes)
{
	int r = json_parse(span_str(text), "codecs", &u->doc);

	u->chain.dialect = dialect;
	for (size_t i = 0; r >= 0 && i < u->doc.root->n; i++) {
		r = codec_parse(&u->doc.root->items[i], dialect, item_bytes, &u->arena,
				&u->chain.codec[i]);
		u->chain.n += r >= 0;
	}
	return r;
}

static inline void unit_chain_of(struct unit_chain *u, enum codec_dialect dialect, const char *text)
{
	if (unit_chain_parse(u, dialect, text, 4) < 0)
		fail_msg("%s: %s", text, unit_last_note());
}

/* Append bytes given as hex digits; spaces are ignored. */
static inline void unit_hex(struct buf *b, const char *text)
{
	for (; *text; text++) {
		unsigned v;

		if (*text == ' ')
			continue;
		assert_int_equal(sscanf(text, "%2x", &v), 1);
		assert_int_equal(buf_add_byte(b, (uint8_t)v), 0);
		text++;
	}
}

/* A source that returns at most `piece` bytes at once. */
struct unit_source {
	struct span left;
	size_t piece;
	/* a fresh copy each time, so that the sanitizer finds a use after the next pull */
	uint8_t *last;
};

static inline int unit_pull(void *arg, struct span *ret)
{
	struct unit_source *s = arg;
	size_t n = MIN(s->piece, s->left.n);

	free(s->last);
	s->last = malloc(n + 1);
	if (n)
		memcpy(s->last, s->left.p, n);
	*ret = span_of(s->last, n);
	s->left = span_from(s->left, n);
	return 0;
}

/* Decode as a stream, with input in pieces of in_piece and output in pieces of out_piece. */
static inline int unit_stream(const struct codec_chain *chain, struct span in, size_t in_piece,
			      size_t out_piece, uint64_t window, void *out, size_t n)
{
	auto_of(codec_stream) struct codec_stream *s = NULL;
	struct unit_source source = { in, in_piece, NULL };
	int r = codec_stream_open(chain, unit_pull, &source, n, window, 0, &s);

	for (size_t at = 0; r >= 0 && at < n; at += out_piece)
		r = codec_stream_read(s, NULL, (uint8_t *)out + at, MIN(out_piece, n - at));
	free(source.last);
	return r;
}

/* Decode into memory that stays, in one read. */
static inline int unit_in_place(const struct codec_chain *chain, struct span in, size_t in_piece,
				void *out, size_t n)
{
	auto_of(codec_stream) struct codec_stream *s = NULL;
	struct unit_source source = { in, in_piece, NULL };
	int r = codec_stream_open(chain, unit_pull, &source, n, UINT64_MAX, n + MiB, &s);

	if (r >= 0)
		r = codec_stream_read(s, NULL, out, n);
	free(source.last);
	return r;
}

static inline int unit_read(void *arg, uint64_t off, size_t n, void *p)
{
	const struct span *s = arg;

	if (off > s->n || n > s->n - off)
		return fail(-EUCLEAN, "read beyond the end");
	memcpy(p, s->p + off, n);
	return 0;
}

/*
 * Decode by ranges of `piece` bytes, the last one first, each from its own stored bytes. Returns 0
 * or an error; 1 when the object must be decoded as a stream.
 */
static inline int unit_ranges(const struct codec_chain *chain, struct span in, size_t piece,
			      uint8_t *out, size_t n)
{
	auto_of(codec_blocks) struct codec_blocks *b = NULL;
	int r = codec_blocks_open(chain, unit_read, &in, in.n, n, &b);

	if (r <= 0)
		return r < 0 ? r : 1;
	for (size_t i = (n + piece - 1) / piece; i-- > 0;) {
		size_t len = MIN(piece, n - i * piece), in_n;
		uint64_t at;
		uint8_t *p;

		codec_blocks_span(b, i * piece, len, &at, &in_n);
		/* Exactly the bytes that may be touched. */
		p = malloc(CODEC_BLOCKS_FRONT + in_n);
		r = unit_read(&in, at, in_n, p + CODEC_BLOCKS_FRONT);
		if (r >= 0)
			r = codec_blocks_decode(b, i * piece, len, p + CODEC_BLOCKS_FRONT, in_n,
						out + i * piece);
		free(p);
		if (r < 0)
			return r == -ERANGE ? 1 : r;
	}
	return 0;
}

/*
 * Decode at once, in place, by ranges, and as streams with several piece sizes; all must agree.
 * Returns the result of the first; when that is 0, out (n bytes) is set.
 */
static inline int unit_decode(const struct codec_chain *chain, struct span in, void *out, size_t n)
{
	static const size_t pieces[][2] = {
		{ SIZE_MAX, SIZE_MAX }, { 1, 1 }, { 3, 1000000 }, { 70000, 5 }
	};
	/* Copies of the exact size, so that the sanitizer finds every access beyond the end. */
	uint8_t *copy = malloc(in.n ? in.n : 1), *a = malloc(n ? n : 1), *b = malloc(n ? n : 1);
	int r, q;

	if (in.n)
		memcpy(copy, in.p, in.n);
	r = codec_decode(chain, span_of(copy, in.n), a, n);
	for (size_t i = 0; i < ARRAY_LEN(pieces); i++) {
		/* Only short objects are decoded byte by byte. */
		if (pieces[i][0] == 1 && (in.n > 10000 || n > 10000))
			continue;
		memset(b, 0xee, n);
		q = unit_stream(chain, span_of(copy, in.n), pieces[i][0],
				MIN(pieces[i][1], n ? n : 1), UINT64_MAX, b, n);
		if ((r < 0) != (q < 0))
			fail_msg("at once %d, as a stream (pieces of %zu and %zu) %d: %s", r,
				 pieces[i][0], pieces[i][1], q, err_text(r < 0 ? r : q));
		if (r >= 0)
			assert_memory_equal(a, b, n);
	}
	for (size_t in_piece = n > 10000 ? 1000 : 1; in_piece <= 100000;
	     in_piece = 100 * in_piece + 1) {
		memset(b, 0xee, n);
		q = unit_in_place(chain, span_of(copy, in.n), in_piece, b, n);
		if ((r < 0) != (q < 0))
			fail_msg("at once %d, in place %d: %s", r, q, err_text(r < 0 ? r : q));
		if (r >= 0)
			assert_memory_equal(a, b, n);
	}
	for (size_t piece = n > 10000 ? 20011 : 129; piece <= 1000000; piece *= 7) {
		memset(b, 0xee, n);
		q = n ? unit_ranges(chain, span_of(copy, in.n), piece, b, n) : 1;
		if (q <= 0 && (r < 0) != (q < 0))
			fail_msg("at once %d, by ranges of %zu %d: %s", r, piece, q,
				 err_text(r < 0 ? r : q));
		if (r >= 0 && q == 0)
			assert_memory_equal(a, b, n);
	}
	if (r >= 0 && n)
		memcpy(out, a, n);
	free(copy);
	free(a);
	free(b);
	return r;
}

/* Fill with bytes that are compressible, but not to nothing. */
static inline void unit_fill(uint8_t *p, size_t n, unsigned seed)
{
	for (size_t i = 0; i < n; i++) {
		seed = seed * 1664525u + 1013904223u;
		p[i] = (uint8_t)(i % 4 ? (i >> 4) : seed >> 28);
	}
}

static inline int unit_sink(void *arg, struct span out)
{
	return buf_add_span(arg, out);
}

/* Encode with input in pieces of `piece` bytes. */
static inline int unit_encode_pieces(const struct codec_chain *chain, struct span in, size_t piece,
				     struct buf *ret)
{
	auto_of(codec_encoder) struct codec_encoder *e = NULL;
	int r = codec_encoder_open(chain, in.n, unit_sink, ret, &e);

	for (size_t at = 0; r >= 0 && at < in.n; at += piece)
		r = codec_encoder_push(e, span_of(in.p + at, MIN(piece, in.n - at)));
	return r < 0 ? r : codec_encoder_finish(e);
}

/*
 * Truncate an object at each byte, and change each byte in several ways. A truncated object never
 * decodes. A changed one fails or decodes to something; with `checked` it never decodes to anything
 * but the original.
 */
static inline void unit_falsify(const struct codec_chain *chain, struct span good,
				const void *plain, size_t n, bool checked)
{
	uint8_t *bad = malloc(good.n), *out = malloc(n);

	for (size_t cut = 0; cut < good.n; cut++)
		if (unit_decode(chain, span_of(good.p, cut), out, n) >= 0)
			fail_msg("decodes when cut to %zu of %zu bytes", cut, good.n);
	for (size_t at = 0; at < good.n; at++) {
		static const uint8_t flips[] = { 0x01, 0x80, 0xff };

		for (size_t i = 0; i < ARRAY_LEN(flips); i++) {
			memcpy(bad, good.p, good.n);
			bad[at] ^= flips[i];
			if (unit_decode(chain, span_of(bad, good.n), out, n) >= 0 && checked &&
			    memcmp(out, plain, n) != 0)
				fail_msg("byte %zu ^ %02x decodes to something else", at, flips[i]);
		}
	}
	free(bad);
	free(out);
}

#endif
