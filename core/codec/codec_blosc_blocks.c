/* SPDX-License-Identifier: Apache-2.0 */
/*
 * codec_blosc_blocks.c - decode any range of a long blosc object from its blocks alone.
 *
 * libblosc decodes whole objects only, so a header and an index are written in front of the blocks
 * of a range, where they are in memory. This takes objects of moderate size whose blocks are in
 * order, as one thread writes them; codec_blosc_decoder.c decodes the others.
 */
#include "core/base/err.h"
#include "core/base/meter.h"
#include "core/base/wire.h"
#include "core/codec/codec_blosc.h"

#define BLOCKS_MAX (1u << 18) /* their index has a mebibyte */
#define BLOCK_MAX (2 * MiB)   /* with larger blocks, a reader would wait too long for a few bytes */
/* number of blocks decoded by one call */
#define RUN_MAX ((CODEC_BLOCKS_FRONT - BLOSC_HEAD_BYTES) / 4)

struct codec_blocks {
	struct blosc_head h;
	/* offset of each block, and the object's end; owned; NULL: stored uncompressed */
	uint32_t *start;
	uint64_t charged;
};

/* Read the index. Returns 1; or 0 when its blocks are not in order. */
static int blocks_read_index(struct codec_blocks *b, codec_read_fn *read, void *arg)
{
	size_t n = 4 * (size_t)b->h.blocks;
	auto_free uint8_t *bytes = malloc(n);
	int r;

	b->start = malloc(n + 4);
	if (!bytes || !b->start)
		return fail(-ENOMEM, "cannot decode blosc: not enough memory");
	r = read(arg, BLOSC_HEAD_BYTES, n, bytes);
	for (uint32_t i = 0; i < b->h.blocks && r >= 0; i++) {
		b->start[i] = get_u32le(bytes + 4 * (size_t)i);
		r = blosc_start_check(&b->h, b->start[i]);
		if (r < 0)
			return r;
		if (i > 0 && (b->start[i] <= b->start[i - 1] ||
			      b->start[i] - b->start[i - 1] > blosc_block_most(&b->h)))
			return 0;
	}
	b->start[b->h.blocks] = b->h.cbytes;
	return r < 0 ? r : 1;
}

bool codec_has_blocks(const struct codec_chain *chain)
{
	return chain->n == 1 && chain->codec[0]->ops == &codec_blosc;
}

int codec_blocks_open(const struct codec_chain *chain, codec_read_fn *read, void *arg,
		      uint64_t stored, uint64_t decoded, struct codec_blocks **ret)
{
	auto_of(codec_blocks) struct codec_blocks *b = NULL;
	uint8_t head[BLOSC_HEAD_BYTES];
	struct blosc_head h;
	int r;

	if (!codec_has_blocks(chain))
		return 0;
	if (stored < BLOSC_HEAD_BYTES)
		return fail(-EUCLEAN, "blosc stream is truncated after %llu bytes",
			    (unsigned long long)stored);
	r = read(arg, 0, sizeof(head), head);
	if (r < 0)
		return r;
	r = blosc_head_parse(head, decoded, &h);
	if (r < 0)
		return r;
	if (h.cbytes != stored)
		r = fail(-EUCLEAN, "blosc object declares %u bytes, has %llu", h.cbytes,
			 (unsigned long long)stored);
	if (r < 0 || h.blocks > BLOCKS_MAX || (h.blocks && h.blocksize > BLOCK_MAX))
		return MIN(r, 0);
	b = calloc(1, sizeof(*b));
	if (!b)
		return fail(-ENOMEM, "cannot decode blosc: not enough memory");
	b->h = h;
	if (h.blocks) {
		r = meter_charge(4 * ((uint64_t)h.blocks + 1));
		if (r < 0)
			return r;
		b->charged = 4 * ((uint64_t)h.blocks + 1);
		r = blocks_read_index(b, read, arg);
		if (r <= 0)
			return r;
	}
	*ret = take(b);
	return 1;
}

void codec_blocks_close(struct codec_blocks *b)
{
	if (!b)
		return;
	meter_release(b->charged);
	free(b->start);
	free(b);
}

size_t codec_blocks_head_bytes(const struct codec_blocks *b)
{
	return BLOSC_HEAD_BYTES + 4 * (size_t)b->h.blocks;
}

void codec_blocks_span(const struct codec_blocks *b, uint64_t off, size_t n, uint64_t *ret_at,
		       size_t *ret_n)
{
	uint32_t first, last;

	if (!b->start) {
		*ret_at = BLOSC_HEAD_BYTES + off;
		*ret_n = n;
		return;
	}
	first = (uint32_t)(off / b->h.blocksize);
	last = (uint32_t)((off + n - 1) / b->h.blocksize);
	*ret_at = b->start[first];
	*ret_n =
		MIN(b->start[last + 1], b->start[last] + blosc_block_most(&b->h)) - b->start[first];
}

uint64_t codec_blocks_memory(const struct codec_blocks *b)
{
	/*
	 * libblosc takes three blocks and a little more; a range that begins or ends in a block
	 * takes another.
	 */
	return b->start ? 4 * (uint64_t)b->h.blocksize + 4096 : 0;
}

/*
 * Decode the whole blocks [first, first + k), which are at p, to exactly n bytes. Overwrites the
 * bytes in front of p.
 */
static int decode_blocks(const struct codec_blocks *b, uint32_t first, uint32_t k, uint8_t *p,
			 size_t in_n, uint8_t *out, size_t n)
{
	size_t front = BLOSC_HEAD_BYTES + 4 * (size_t)k;
	uint8_t *head = p - front;
	int r;

	for (uint32_t i = 0; i < k; i++) {
		uint32_t at = b->start[first + i] - b->start[first];
		uint32_t end = i + 1 < k ? b->start[first + i + 1] - b->start[first] :
					   (uint32_t)in_n;

		r = blosc_block_check(&b->h, first + i, span_of(p + at, end - at));
		if (r < 0)
			return r;
	}
	blosc_head_put(&b->h, first, k, n, in_n, head);
	for (uint32_t i = 0; i < k; i++)
		set_u32le(head + BLOSC_HEAD_BYTES + 4 * (size_t)i,
			  (uint32_t)front + b->start[first + i] - b->start[first]);
	return blosc_run(&b->h, head, out, n);
}

/* Decode a part of block i, by decoding all of it. */
static int decode_part(const struct codec_blocks *b, uint32_t i, uint8_t *p, size_t in_n,
		       size_t skip, uint8_t *out, size_t n)
{
	size_t all = blosc_block_bytes(&b->h, i);
	auto_free uint8_t *plain = malloc(all);
	int r = plain ? decode_blocks(b, i, 1, p, in_n, plain, all) :
			fail(-ENOMEM, "cannot decode blosc: not enough memory");

	if (r < 0)
		return r;
	memcpy(out, plain + skip, n);
	return r;
}

int codec_blocks_decode(const struct codec_blocks *b, uint64_t off, size_t n, uint8_t *in,
			size_t in_n, void *out)
{
	uint64_t size = b->h.blocksize, at = off, end = off + n, in_at;
	uint8_t *to = out;
	size_t most;

	if (!b->start) {
		memcpy(out, in, n);
		return 0;
	}
	codec_blocks_span(b, off, n, &in_at, &most);
	while (at < end) {
		uint32_t i = (uint32_t)(at / size), k = 1;
		size_t skip = (size_t)(at % size), part, stored;
		uint8_t *p = in + (b->start[i] - in_at);
		int r;

		part = (size_t)MIN(end - at, blosc_block_bytes(&b->h, i) - skip);
		if (skip == 0 && part == blosc_block_bytes(&b->h, i)) {
			/* Add the following blocks, as far as all of their bytes are wanted. */
			while (k < RUN_MAX && i + k < b->h.blocks &&
			       end - at - part >= blosc_block_bytes(&b->h, i + k))
				part += blosc_block_bytes(&b->h, i + k++);
		}
		stored = MIN((size_t)(b->start[i + k] - b->start[i]),
			     in_n - (size_t)(b->start[i] - in_at));
		r = skip || part < blosc_block_bytes(&b->h, i) ?
			    decode_part(b, i, p, stored, skip, to, part) :
			    decode_blocks(b, i, k, p, stored, to, part);
		if (r < 0)
			return r;
		to += part;
		at += part;
	}
	return 0;
}
