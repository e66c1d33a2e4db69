/* SPDX-License-Identifier: Apache-2.0 */
/*
 * codec_zstd_decoder.c - zstd, piece by piece: with libzstd's own history, or without a copy.
 *
 * libzstd's streaming decoder decodes into a history of its own and copies every byte out of it.
 * When the caller retains the previous piece, and that is as long as the history of the frame, the
 * blocks are decoded into the caller's memory instead (struct in_place). This uses functions that
 * libzstd calls experimental; without them, everything is copied.
 *
 * libzstd takes bytes for history when they are directly before the block in memory, and in
 * addition one other range (ZSTD_decompressContinue()). Adjacent pieces would therefore extend that
 * history by the piece before the previous one, which may have been freed. So set_history() names
 * the ranges explicitly, for each piece.
 */
#include "core/base/err.h"
#include "core/codec/codec_zstd.h"

#pragma weak ZSTD_decompressBegin
#pragma weak ZSTD_decompressContinue
#pragma weak ZSTD_insertBlock
#pragma weak ZSTD_nextSrcSizeToDecompress

#define BLOCK (128 * KiB) /* the largest block, stored or decoded */

struct zstd_decoder {
	struct decoder_stage base;
	ZSTD_DCtx *d; /* owned */
	bool ended;
};

/* A header, whose window descriptor is already as small as possible. */
struct head_bytes {
	uint8_t p[ZSTD_HEAD_MAX];
	size_t n;
};

static int take_head(struct codec_input *in, uint64_t decoded, uint64_t window,
		     struct zstd_head *ret, struct head_bytes *ret_bytes)
{
	uint8_t *head = ret_bytes->p;
	size_t n;
	int r = codec_input_take(in, head, 5, "zstd");

	if (r < 0)
		return r;
	n = zstd_head_bytes(head);
	if (n) {
		r = codec_input_take(in, head + 5, n - 5, "zstd");
		if (r < 0)
			return r;
	}
	r = zstd_head_parse(span_of(head, MAX(n, (size_t)5)), ret);
	if (r < 0)
		return r;
	r = zstd_head_expect(ret, decoded);
	if (r < 0)
		return r;
	zstd_head_shrink(ret, head, decoded);
	if (MIN(ret->window, ret->content) > window)
		return fail(-EFBIG, "zstd frame needs %llu bytes of history, the limit is %llu",
			    (unsigned long long)MIN(ret->window, ret->content),
			    (unsigned long long)window);
	ret_bytes->n = n;
	return 0;
}

/* ---- with a history of libzstd ---- */

static int zstd_decoder_read(struct decoder_stage *base, uint8_t *p, size_t n, size_t *ret_n)
{
	struct zstd_decoder *s = (struct zstd_decoder *)base;
	ZSTD_outBuffer out = { p, n, 0 };

	while (!s->ended && !out.pos) {
		ZSTD_inBuffer in = { base->in->left.p, base->in->left.n, 0 };
		size_t r = ZSTD_decompressStream(s->d, &out, &in);

		if (ZSTD_isError(r))
			return zstd_error(r, "decode");
		codec_input_skip(base->in, in.pos);
		s->ended = r == 0;
		/* More input is needed only after all decoded bytes have been returned. */
		if (!s->ended && !out.pos && !base->in->left.n) {
			int filled = codec_input_need(base->in, "zstd");

			if (filled < 0)
				return filled;
		}
	}
	*ret_n = out.pos;
	return 0;
}

static uint64_t zstd_decoder_memory(const struct decoder_stage *base)
{
	const struct zstd_decoder *s = (const struct zstd_decoder *)base;

	return sizeof(*s) + ZSTD_sizeof_DCtx(s->d);
}

static void zstd_decoder_free(struct decoder_stage *base)
{
	struct zstd_decoder *s = (struct zstd_decoder *)base;

	zstd_dctx_give(s->d);
	free(s);
}

static const struct decoder_stage_ops decoder_ops = {
	zstd_decoder_read,
	zstd_decoder_memory,
	zstd_decoder_free,
};

/* ---- into the caller's memory ---- */

/*
 * Invariant: what is decoded and not yet returned, `rest`, is less than a block; it comes from a
 * block that did not fit the piece in which it begins.
 */
struct in_place {
	struct zstd_decoder decoder;
	size_t piece;  /* bytes of every read but the last */
	size_t last;   /* bytes of the previous read; 0: there was none */
	size_t block;  /* the most that a block of this frame decodes to */
	uint64_t left; /* bytes that have not been returned */
	struct span rest;
	uint8_t nothing[2]; /* the first byte is history that no correct frame refers to */
	uint8_t in[BLOCK];  /* a stored block of which the input has parts */
	uint8_t out[BLOCK];
};

/* The history of the next block: the previous piece, if any, and the first n bytes at p. */
static void set_history(struct in_place *s, const uint8_t *p, size_t n)
{
	const uint8_t *before = s->decoder.base.before;

	/* A range that is not adjacent to any other, so that libzstd forgets all others. */
	ZSTD_insertBlock(s->decoder.d, s->nothing, 1);
	if (s->last)
		ZSTD_insertBlock(s->decoder.d, before, s->last);
	if (n)
		ZSTD_insertBlock(s->decoder.d, p, n);
}

/*
 * Decode the next header, block or checksum to p, where there is room for n bytes. Returns 1, 0 at
 * the end of the frame, or an error.
 */
static int decode_next(struct in_place *s, uint8_t *p, size_t n, size_t *ret_n)
{
	ZSTD_DCtx *d = s->decoder.d;
	struct codec_input *in = s->decoder.base.in;
	size_t need = ZSTD_nextSrcSizeToDecompress(d), got;
	int r;

	*ret_n = 0;
	if (!need)
		return 0;
	if (need > BLOCK)
		return fail(-EUCLEAN, "zstd frame has a block of %zu bytes, the limit is %zu", need,
			    (size_t)BLOCK);
	if (in->left.n >= need) {
		got = ZSTD_decompressContinue(d, p, n, in->left.p, need);
		codec_input_skip(in, need);
	} else {
		r = codec_input_take(in, s->in, need, "zstd");
		if (r < 0)
			return r;
		got = ZSTD_decompressContinue(d, p, n, s->in, need);
	}
	if (ZSTD_isError(got))
		return zstd_error(got, "decode");
	*ret_n = got;
	return 1;
}

static size_t take_rest(struct in_place *s, uint8_t *p, size_t n)
{
	size_t part = MIN(s->rest.n, n);

	if (part)
		memcpy(p, s->rest.p, part);
	s->rest = span_from(s->rest, part);
	return part;
}

static int in_place_read(struct decoder_stage *base, uint8_t *p, size_t n, size_t *ret_n)
{
	struct in_place *s = (struct in_place *)base;
	/* Room for blocks that end after the last byte which a short, last read wants. */
	size_t piece = (size_t)MIN((uint64_t)s->piece, s->left), done, got;
	uint8_t none;
	int r = 1;

	if (!s->left) {
		/* Everything has been returned: nothing but empty blocks and a checksum follow. */
		*ret_n = s->rest.n;
		while (r > 0 && !*ret_n)
			r = decode_next(s, &none, 0, ret_n);
		return MIN(r, 0);
	}
	if (n > s->piece || (s->last && (!base->before || s->last < s->piece)))
		return fail(-EINVAL, "cannot read %zu bytes in place after %zu, pieces have %zu", n,
			    s->last, s->piece);
	done = take_rest(s, p, n);
	set_history(s, p, done);
	while (done < n && r > 0) {
		size_t room = piece - done;

		/* The last block of the frame fits exactly. */
		if (room >= s->block || piece == s->left) {
			r = decode_next(s, p + done, room, &got);
			done += got;
			continue;
		}
		r = decode_next(s, s->out, sizeof(s->out), &got);
		if (r <= 0 || !got)
			continue;
		s->rest = span_of(s->out, got);
		done += take_rest(s, p + done, room);
		set_history(s, p, done);
	}
	done = MIN(done, n);
	s->left -= done;
	s->last = done;
	*ret_n = done;
	if (r < 0)
		return r;
	return done == n ? 0 :
			   fail(-EUCLEAN, "zstd stream ends %llu bytes early",
				(unsigned long long)s->left);
}

static uint64_t in_place_memory(const struct decoder_stage *base)
{
	const struct in_place *s = (const struct in_place *)base;

	return sizeof(*s) + ZSTD_sizeof_DCtx(s->decoder.d);
}

static const struct decoder_stage_ops in_place_ops = {
	in_place_read,
	in_place_memory,
	zstd_decoder_free,
};

static int zstd_in_place_begin(struct in_place *s, const struct head_bytes *head)
{
	uint8_t none;
	size_t r = ZSTD_decompressBegin(s->decoder.d);

	for (size_t at = 0; !ZSTD_isError(r) && at < head->n;) {
		size_t need = ZSTD_nextSrcSizeToDecompress(s->decoder.d);

		if (!need || need > head->n - at)
			return fail(-EUCLEAN, "zstd frame has a wrong header");
		r = ZSTD_decompressContinue(s->decoder.d, &none, 0, head->p + at, need);
		at += need;
	}
	return ZSTD_isError(r) ? zstd_error(r, "decode") : 0;
}

/* ---- opening ---- */

int zstd_decoder_new(const struct codec *c, struct codec_input *in, uint64_t decoded,
		     uint64_t window, size_t retained, struct decoder_stage **ret)
{
	bool has_functions = ZSTD_decompressBegin && ZSTD_decompressContinue && ZSTD_insertBlock &&
			     ZSTD_nextSrcSizeToDecompress,
	     in_place;
	struct head_bytes bytes = { 0 };
	struct zstd_decoder *s;
	struct zstd_head h;
	int r = take_head(in, decoded, window, &h, &bytes);

	if (r < 0)
		return r;
	/* A block that crosses the end of a piece has the history before it in that piece. */
	in_place = decoded != CODEC_SIZE_UNKNOWN && retained > BLOCK &&
		   MIN(h.window, MIN(h.content, decoded)) <= retained - BLOCK && has_functions;
	s = calloc(1, in_place ? sizeof(struct in_place) : sizeof(*s));
	if (!s)
		return fail(-ENOMEM, "cannot decode zstd: not enough memory");
	s->base = (struct decoder_stage){ in_place ? &in_place_ops : &decoder_ops, in };
	s->base.needs_before = in_place;
	s->d = zstd_dctx_take();
	if (!s->d || ZSTD_isError(ZSTD_DCtx_setParameter(s->d, ZSTD_d_windowLogMax,
							 LIMIT_ZSTD_WINDOW_LOG))) {
		r = fail(-ENOMEM, "cannot decode zstd: not enough memory");
	} else if (in_place) {
		struct in_place *p = (struct in_place *)s;

		p->piece = retained;
		p->block = (size_t)MIN(h.window, (uint64_t)BLOCK);
		p->left = decoded;
		r = zstd_in_place_begin(p, &bytes);
	} else {
		/* Make libzstd allocate the history now, so that the stage's memory is known. */
		ZSTD_outBuffer out = { &(uint8_t){ 0 }, 0, 0 };
		ZSTD_inBuffer head = { bytes.p, bytes.n, 0 };
		size_t got = ZSTD_decompressStream(s->d, &out, &head);

		r = ZSTD_isError(got) ? zstd_error(got, "decode") : 0;
	}
	if (r < 0) {
		zstd_decoder_free(&s->base);
		return r;
	}
	*ret = &s->base;
	return 0;
}
