/* SPDX-License-Identifier: Apache-2.0 */
/*
 * codec_blosc_encoder.c - encodes blosc objects of shuffled bytes and zstd, twice as fast as
 * libblosc.
 *
 * libblosc gives zstd all bytes of a block. Here a block is split into the bytes of equal weight,
 * and a sample of each split says how: those that do not compress, as most of the fraction of a
 * float, are stored. What decodes blosc decodes both. Other compressors, and elements of other
 * sizes, are for libblosc. It pays in the rows of saves and of `compression=blosc`.
 */
#include <string.h>

#include "core/base/blocks.h"
#include "core/base/err.h"
#include "core/base/wire.h"
#include "core/codec/codec_blosc.h"

#define VERSION 2      /* of the format */
#define ZSTD_VERSION 1 /* of zstd in it */
#define FLAG_SHUFFLED 0x01
#define FLAG_ZSTD (4 << 5)
#define LEVEL_MOST 7                /* libblosc counts levels above in another way */
#define SPLIT_LEAST 128             /* format: elements of a block that is split */
#define FAST_MOST ((size_t)1 << 30) /* with the lengths of its pieces, it is not too large */
#define SAMPLES 4                   /* of a split, at equal distances */
#define SAMPLE_BYTES 2048
#define SAMPLED (32 * KiB) /* a smaller split is compressed without a sample */

typedef uint8_t vec __attribute__((vector_size(16)));

static vec even_of(vec a, vec b)
{
	return __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28,
				       30);
}

static vec odd_of(vec a, vec b)
{
	return __builtin_shufflevector(a, b, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29,
				       31);
}

static vec load(const uint8_t *p)
{
	vec v;

	memcpy(&v, p, sizeof(v));
	return v;
}

static void store(uint8_t *p, vec v)
{
	memcpy(p, &v, sizeof(v));
}

/* Of 32 bytes: those at even places to even, the others to odd. */
static void part(const uint8_t *in, vec *even, vec *odd)
{
	vec a = load(in), b = load(in + 16);

	*even = even_of(a, b);
	*odd = odd_of(a, b);
}

static void shuffle_2(const uint8_t *in, uint8_t *out, size_t items)
{
	vec even, odd;

	part(in, &even, &odd);
	store(out, even);
	store(out + items, odd);
}

/* Each of two vectors has the bytes of two weights in turn. */
static void store_2(vec a, vec b, uint8_t *out, size_t distance)
{
	store(out, even_of(a, b));
	store(out + distance, odd_of(a, b));
}

static void shuffle_4(const uint8_t *in, uint8_t *out, size_t items)
{
	vec even[2], odd[2];

	part(in, &even[0], &odd[0]);
	part(in + 32, &even[1], &odd[1]);
	store_2(even[0], even[1], out, 2 * items);
	store_2(odd[0], odd[1], out + items, 2 * items);
}

static void shuffle_8(const uint8_t *in, uint8_t *out, size_t items)
{
	vec even[4], odd[4];

	for (size_t i = 0; i < 4; i++)
		part(in + 32 * i, &even[i], &odd[i]);
	store_2(even_of(even[0], even[1]), even_of(even[2], even[3]), out, 4 * items);
	store_2(odd_of(even[0], even[1]), odd_of(even[2], even[3]), out + 2 * items, 4 * items);
	store_2(even_of(odd[0], odd[1]), even_of(odd[2], odd[3]), out + items, 4 * items);
	store_2(odd_of(odd[0], odd[1]), odd_of(odd[2], odd[3]), out + 3 * items, 4 * items);
}

static void shuffle(const uint8_t *in, size_t n, size_t item, uint8_t *out)
{
	size_t items = n / item, i = 0;

	for (; i + 16 <= items; i += 16) {
		if (item == 2)
			shuffle_2(in + i * 2, out + i, items);
		else if (item == 4)
			shuffle_4(in + i * 4, out + i, items);
		else
			shuffle_8(in + i * 8, out + i, items);
	}
	for (; i < items; i++)
		for (size_t k = 0; k < item; k++)
			out[k * items + i] = in[i * item + k];
}

/*
 * Append a piece and its length. A sample says what makes it smaller: the exponents of floats have
 * frequent values, and what zstd finds of them again costs more than it saves.
 */
static uint8_t *add_piece(struct zstd_pieces *zstd, struct span in, uint8_t *out)
{
	uint8_t sample[SAMPLES * SAMPLE_BYTES];
	struct span s = span_of(sample, sizeof(sample));
	size_t most = sizeof(sample) - sizeof(sample) / 64, matches = 1, letters = 0, n = 0;

	if (in.n >= SAMPLED) {
		for (size_t i = 0; i < SAMPLES; i++)
			memcpy(sample + i * SAMPLE_BYTES,
			       (const uint8_t *)in.p + i * (in.n / SAMPLES), SAMPLE_BYTES);
		letters = zstd_piece(zstd, ZSTD_FIND_LETTERS, s, out + 4, most);
		matches = zstd_piece(zstd, ZSTD_FIND_MATCHES, s, out + 4, most);
	}
	if (letters && (!matches || letters < matches - matches / 32))
		n = zstd_piece(zstd, ZSTD_FIND_LETTERS, in, out + 4, in.n - 1);
	else if (matches)
		n = zstd_piece(zstd, ZSTD_FIND_MATCHES, in, out + 4, in.n - 1);
	if (!n) {
		memcpy(out + 4, in.p, in.n);
		n = in.n;
	}
	set_u32le(out, (uint32_t)n);
	return out + 4 + n;
}

int blosc_encode_fast(struct span in, size_t item, uint64_t block, int level, struct buf *ret)
{
	const uint8_t *from = in.p;
	size_t size = (size_t)MIN(block, (uint64_t)in.n), blocks;
	struct zstd_pieces *zstd = NULL;
	uint8_t *out, *end, *plane;
	int r;

	if ((item != 2 && item != 4 && item != 8) || level < 1 || level > LEVEL_MOST ||
	    in.n > FAST_MOST || in.n % item || block % item || size / item < SPLIT_LEAST)
		return 0;
	r = buf_reserve(ret, BLOSC_HEAD_BYTES + in.n + (in.n / block + 1) * 4 * (item + 1));
	if (r < 0)
		return r;
	plane = block_alloc(size);
	r = plane ? zstd_pieces_begin(2 * level - 1, &zstd) :
		    fail(-ENOMEM, "cannot encode blosc: not enough memory");
	if (r < 0) {
		block_free(plane, size);
		return r;
	}
	blocks = div_up(in.n, size);
	out = buf_end(ret);
	end = out + BLOSC_HEAD_BYTES + 4 * blocks;
	for (size_t i = 0; i < blocks; i++) {
		size_t n = MIN(size, in.n - i * size), splits = n < size ? 1 : item;

		set_u32le(out + BLOSC_HEAD_BYTES + 4 * i, (uint32_t)(end - out));
		shuffle(from + i * size, n, item, plane);
		for (size_t k = 0; k < splits; k++)
			end = add_piece(zstd, span_of(plane + k * (n / splits), n / splits), end);
	}
	zstd_pieces_end(zstd);
	block_free(plane, size);
	out[0] = VERSION;
	out[1] = ZSTD_VERSION;
	out[2] = FLAG_SHUFFLED | FLAG_ZSTD;
	out[3] = (uint8_t)item;
	set_u32le(out + 4, (uint32_t)in.n);
	set_u32le(out + 8, (uint32_t)size);
	set_u32le(out + 12, (uint32_t)(end - out));
	ret->n += (size_t)(end - out);
	return 1;
}
