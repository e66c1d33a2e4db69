/* SPDX-License-Identifier: Apache-2.0 */
/*
 * codec_blosc_decoder.c - long blosc objects, block by block.
 *
 * libblosc decodes whole objects only, so each block is made into an object of its own. If several
 * threads wrote the object, its blocks are in any order; compressed bytes are then held until the
 * last block that needs them.
 *
 * codec_blosc.c describes the parts of an object.
 */
#include "core/base/err.h"
#include "core/base/wire.h"
#include "core/codec/codec_blosc.h"

#define ONE_BLOCK (BLOSC_HEAD_BYTES + 4) /* header and index of an object of one block */

struct blosc_decoder {
	struct decoder_stage base;
	struct blosc_head h;
	uint64_t window;
	uint64_t given;  /* stored uncompressed: bytes returned so far */
	uint32_t block;  /* the next block to decode */
	uint32_t *start; /* offset of each block; owned */
	uint32_t *low;   /* lowest offset of this block and all later ones; owned */
	struct buf held; /* compressed bytes from offset held_at on */
	uint64_t held_at;
	uint8_t *one;   /* an object of one block; owned */
	uint8_t *plain; /* a decoded block; owned */
	size_t plain_n, plain_at;
};

/* The most bytes of an object of one block. */
static size_t one_bytes(const struct blosc_head *h)
{
	return ONE_BLOCK + (size_t)blosc_block_most(h);
}

static int compare_starts(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return (x > y) - (x < y);
}

/*
 * Check that the bytes that are held at one time, from the lowest offset that is still needed to
 * the end of a block, fit into the window.
 */
static int stage_check_order(const struct blosc_decoder *s)
{
	uint32_t n = s->h.blocks;
	auto_free uint32_t *sorted = malloc(n * sizeof(*sorted));
	uint64_t most = 0;

	if (!sorted)
		return fail(-ENOMEM, "cannot decode blosc: not enough memory");
	memcpy(sorted, s->start, n * sizeof(*sorted));
	qsort(sorted, n, sizeof(*sorted), compare_starts);
	for (uint32_t i = 0; i < n; i++) {
		const uint32_t *at =
			bsearch(&s->start[i], sorted, n, sizeof(*sorted), compare_starts);
		uint64_t end = (uint64_t)s->start[i] + one_bytes(&s->h);

		/* Blocks may even share an offset; then the next offset does not end this block. */
		while (at + 1 < sorted + n && at[1] == *at)
			at++;
		end = MIN(end, at + 1 < sorted + n ? at[1] : s->h.cbytes);
		most = MAX(most, end - s->low[i]);
	}
	if (most > s->window)
		return fail(-EFBIG,
			    "blosc blocks are out of order by %llu bytes, the limit is %llu",
			    (unsigned long long)most, (unsigned long long)s->window);
	return 0;
}

static int stage_open(struct blosc_decoder *s, uint64_t decoded)
{
	uint8_t bytes[BLOSC_HEAD_BYTES];
	uint32_t low = UINT32_MAX;
	uint64_t need;
	int r = codec_input_take(s->base.in, bytes, BLOSC_HEAD_BYTES, "blosc");

	if (r < 0)
		return r;
	r = blosc_head_parse(bytes, decoded, &s->h);
	if (r < 0 || !s->h.blocks)
		return r;
	need = s->h.blocksize + 8 * (uint64_t)s->h.blocks;
	if (need > s->window)
		return fail(-EFBIG,
			    "blosc object needs %llu bytes for a block and the index, "
			    "the limit is %llu",
			    (unsigned long long)need, (unsigned long long)s->window);
	s->start = calloc(s->h.blocks, sizeof(*s->start));
	s->low = calloc(s->h.blocks, sizeof(*s->low));
	s->one = malloc(one_bytes(&s->h));
	s->plain = malloc(s->h.blocksize);
	if (!s->start || !s->low || !s->one || !s->plain)
		return fail(-ENOMEM, "cannot decode blosc: not enough memory");
	for (uint32_t i = 0; i < s->h.blocks; i++) {
		r = codec_input_take(s->base.in, bytes, 4, "blosc");
		if (r < 0)
			return r;
		s->start[i] = get_u32le(bytes);
		r = blosc_start_check(&s->h, s->start[i]);
		if (r < 0)
			return r;
	}
	for (uint32_t i = s->h.blocks; i-- > 0;) {
		low = MIN(low, s->start[i]);
		s->low[i] = low;
	}
	s->held_at = s->h.body;
	return stage_check_order(s);
}

/* Hold everything up to offset `to`. */
static int stage_hold(struct blosc_decoder *s, uint64_t to)
{
	struct codec_input *in = s->base.in;

	if (to > s->h.cbytes)
		return fail(-EUCLEAN, "blosc block %u is truncated", s->block);
	while (s->held_at + s->held.n < to) {
		uint64_t at = s->held_at + s->held.n, low = s->low[s->block];
		int r = codec_input_need(in, "blosc");
		size_t n;

		if (r < 0)
			return r;
		if (!s->held.n && at < low) {
			/* A gap that no block refers to. */
			n = MIN(in->left.n, low - at);
			s->held_at += n;
		} else {
			n = MIN(in->left.n, to - at);
			if (s->held.n + n > s->window)
				return fail(-EFBIG,
					    "blosc blocks are out of order by more than %llu bytes",
					    (unsigned long long)s->window);
			r = buf_add(&s->held, in->left.p, n);
			if (r < 0)
				return r;
		}
		codec_input_skip(in, n);
	}
	return 0;
}

/* Hold the next block's compressed bytes, with their lengths checked. */
static int stage_block(struct blosc_decoder *s, struct span *ret)
{
	uint64_t start = s->start[s->block], end = start;
	uint32_t splits = blosc_block_splits(&s->h, s->block), low = s->low[s->block];
	/* Drop compressed bytes that no later block needs. */
	size_t unneeded = (size_t)MIN(low - MIN(s->held_at, low), s->held.n);

	if (unneeded < s->held.n)
		memmove(s->held.p, s->held.p + unneeded, s->held.n - unneeded);
	s->held.n -= unneeded;
	s->held_at += unneeded;
	for (uint32_t k = 0; k < splits; k++) {
		uint32_t csize;
		int r = stage_hold(s, end + 4);

		if (r < 0)
			return r;
		csize = get_u32le(s->held.p + (end - s->held_at));
		r = blosc_piece_check(&s->h, s->block, csize);
		if (r < 0)
			return r;
		r = stage_hold(s, end + 4 + csize);
		if (r < 0)
			return r;
		end += 4 + (uint64_t)csize;
	}
	*ret = span_of(s->held.p + (start - s->held_at), (size_t)(end - start));
	return 0;
}

static int stage_decode(struct blosc_decoder *s, uint8_t *out)
{
	uint32_t n = blosc_block_bytes(&s->h, s->block);
	struct span block;
	int r = stage_block(s, &block);

	if (r < 0)
		return r;
	blosc_head_put(&s->h, s->block, 1, n, block.n, s->one);
	set_u32le(s->one + BLOSC_HEAD_BYTES, ONE_BLOCK);
	memcpy(s->one + ONE_BLOCK, block.p, block.n);
	r = blosc_run(&s->h, s->one, out, n);
	s->block++;
	return r;
}

static int blosc_decoder_read(struct decoder_stage *base, uint8_t *p, size_t n, size_t *ret_n)
{
	struct blosc_decoder *s = (struct blosc_decoder *)base;
	struct codec_input *in = base->in;
	uint32_t next;
	int r = 0;

	*ret_n = 0;
	if (!s->h.blocks) {
		n = (size_t)MIN(n, s->h.nbytes - s->given);
		r = codec_input_take(in, p, n, "blosc");
		if (r < 0)
			return r;
		s->given += n;
		*ret_n = n;
		return 0;
	}
	if (s->plain_at == s->plain_n) {
		/* At the end: bytes up to the declared end of the object belong to it. */
		while (s->block == s->h.blocks && in->taken < s->h.cbytes && r >= 0) {
			r = codec_input_need(in, "blosc");
			if (r > 0)
				codec_input_skip(in, MIN(in->left.n, s->h.cbytes - in->taken));
		}
		if (s->block == s->h.blocks)
			return MIN(r, 0);
		next = blosc_block_bytes(&s->h, s->block);
		if (n >= next) {
			r = stage_decode(s, p);
			*ret_n = r < 0 ? 0 : next;
			return r;
		}
		r = stage_decode(s, s->plain);
		if (r < 0)
			return r;
		s->plain_n = next;
		s->plain_at = 0;
	}
	*ret_n = MIN(n, s->plain_n - s->plain_at);
	memcpy(p, s->plain + s->plain_at, *ret_n);
	s->plain_at += *ret_n;
	return 0;
}

static uint64_t blosc_decoder_memory(const struct decoder_stage *base)
{
	const struct blosc_decoder *s = (const struct blosc_decoder *)base;

	if (!s->h.blocks)
		return sizeof(*s);
	/* libblosc takes three blocks and a little more while it decodes one. */
	return sizeof(*s) + 8 * (uint64_t)s->h.blocks + one_bytes(&s->h) + s->h.blocksize +
	       MAX(s->held.cap, one_bytes(&s->h)) + 3 * (uint64_t)s->h.blocksize + 4096;
}

static void blosc_decoder_free(struct decoder_stage *base)
{
	struct blosc_decoder *s = (struct blosc_decoder *)base;

	free(s->start);
	free(s->low);
	free(s->one);
	free(s->plain);
	buf_release(&s->held);
	free(s);
}

int blosc_decoder_new(const struct codec *c, struct codec_input *in, uint64_t decoded,
		      uint64_t window, size_t retained, struct decoder_stage **ret)
{
	static const struct decoder_stage_ops ops = {
		blosc_decoder_read,
		blosc_decoder_memory,
		blosc_decoder_free,
	};
	struct blosc_decoder *s = calloc(1, sizeof(*s));
	int r;

	if (!s)
		return fail(-ENOMEM, "cannot decode blosc: not enough memory");
	s->base = (struct decoder_stage){ &ops, in };
	s->window = window;
	r = stage_open(s, decoded);
	if (r < 0) {
		blosc_decoder_free(&s->base);
		return r;
	}
	*ret = &s->base;
	return 0;
}
