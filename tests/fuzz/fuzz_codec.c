/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_codec.c - arbitrary bytes through every codec, at once, as a stream, in place: equal
 * results; and what is encoded, at once or in pieces, decodes to itself.
 *
 * Input: a byte that picks the chain, two bytes for the expected size, the object.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "core/codec/codec.h"

#define ZSTD "{\"name\":\"zstd\",\"configuration\":{\"level\":1,\"checksum\":true}}"
#define GZIP "{\"name\":\"gzip\",\"configuration\":{\"level\":1}}"
#define BLOSC(cname, shuffle)                                                          \
	"{\"name\":\"blosc\",\"configuration\":{\"cname\":\"" cname "\",\"clevel\":5," \
	"\"shuffle\":\"" shuffle "\",\"typesize\":2,\"blocksize\":256}}"
#define CRC "{\"name\":\"crc32c\"}"

static const struct {
	enum codec_dialect dialect;
	const char *text;
} chains[] = {
	{ CODEC_V2, "[{\"id\":\"zstd\"}]" },
	{ CODEC_V3, "[" ZSTD "]" },
	{ CODEC_V2, "[{\"id\":\"zlib\"}]" },
	{ CODEC_V2, "[{\"id\":\"gzip\"}]" },
	{ CODEC_V3, "[" GZIP "]" },
	{ CODEC_V2, "[{\"id\":\"bz2\"}]" },
	{ CODEC_V3, "[" BLOSC("lz4", "shuffle") "]" },
	{ CODEC_V3, "[" BLOSC("blosclz", "bitshuffle") "]" },
	{ CODEC_V3, "[" CRC "]" },
	{ CODEC_V3, "[" ZSTD "," CRC "]" },
	{ CODEC_V3, "[" GZIP "," ZSTD "]" },
	{ CODEC_V3, "[" CRC "," BLOSC("zlib", "noshuffle") "," GZIP "]" },
	{ CODEC_V2, "[]" },
};

struct source {
	struct span left;
	size_t piece;
};

static int pull(void *arg, struct span *ret)
{
	struct source *s = arg;

	*ret = span_of(s->left.p, MIN(s->piece, s->left.n));
	s->left = span_from(s->left, ret->n);
	return 0;
}

static int sink(void *arg, struct span out)
{
	return buf_add_span(arg, out);
}

static int stream(const struct codec_chain *chain, struct span in, size_t piece, uint8_t *out,
		  size_t n)
{
	auto_of(codec_stream) struct codec_stream *s = NULL;
	struct source source = { in, piece };
	int r = codec_stream_open(chain, pull, &source, n, UINT64_MAX, 0, &s);

	for (size_t at = 0; r >= 0 && at < n; at += piece)
		r = codec_stream_read(s, NULL, out + at, MIN(piece, n - at));
	return r;
}

static int read_at(void *arg, uint64_t off, size_t n, void *p)
{
	const struct span *s = arg;

	if (off > s->n || n > s->n - off)
		return -EUCLEAN;
	memcpy(p, s->p + off, n);
	return 0;
}

/* Into memory that stays, in one read. */
static int in_place(const struct codec_chain *chain, struct span in, size_t piece, uint8_t *out,
		    size_t n)
{
	auto_of(codec_stream) struct codec_stream *s = NULL;
	struct source source = { in, piece };
	int r = codec_stream_open(chain, pull, &source, n, UINT64_MAX, n + MiB, &s);

	return r < 0 ? r : codec_stream_read(s, NULL, out, n);
}

/*
 * Into two adjacent pieces of memory by turns: no other history may be read. A match from further
 * back than the window is accepted or refused, depending on the decoder, so nothing is compared.
 */
static void in_turn(const struct codec_chain *chain, struct span in, size_t n)
{
	static uint8_t pieces[2][MiB];
	auto_of(codec_stream) struct codec_stream *s = NULL;
	struct source source = { in, 1000 };
	int r = codec_stream_open(chain, pull, &source, n, MiB, MiB, &s);

	for (size_t i = 0, at = 0; r >= 0 && at < n; i++, at += MiB)
		r = codec_stream_read(s, i ? pieces[(i + 1) % 2] : NULL, pieces[i % 2],
				      MIN((size_t)MiB, n - at));
}

/* Ranges of an object whose blocks are decoded alone: 1 when this is not one. */
static int ranges(const struct codec_chain *chain, struct span in, size_t piece, uint8_t *out,
		  size_t n)
{
	auto_of(codec_blocks) struct codec_blocks *b = NULL;
	int r = codec_blocks_open(chain, read_at, &in, in.n, n, &b);

	if (r <= 0)
		return r < 0 ? r : 1;
	for (size_t at = 0; r >= 0 && at < n; at += piece) {
		size_t part = MIN(piece, n - at), in_n;
		uint64_t from;
		uint8_t *p;

		codec_blocks_span(b, at, part, &from, &in_n);
		p = malloc(CODEC_BLOCKS_FRONT + in_n);
		r = read_at(&in, from, in_n, p + CODEC_BLOCKS_FRONT);
		if (r >= 0)
			r = codec_blocks_decode(b, at, part, p + CODEC_BLOCKS_FRONT, in_n,
						out + at);
		free(p);
	}
	return r == -ERANGE ? 1 : r < 0 ? r : 0;
}

static void decode(const struct codec_chain *chain, struct span in, size_t n)
{
	static const size_t pieces[] = { 1, 37, 100000 };
	auto_free uint8_t *a = malloc(n), *b = malloc(n);
	int r;

	/* Some decoders leave what they do not reach. */
	memset(a, 0, n);
	r = codec_decode(chain, in, a, n);
	for (size_t i = 0; i < ARRAY_LEN(pieces); i++) {
		int q = stream(chain, in, pieces[i], b, n);

		assert((r < 0) == (q < 0));
		assert(r < 0 || memcmp(a, b, n) == 0);
		q = in_place(chain, in, pieces[i], b, n);
		assert((r < 0) == (q < 0));
		assert(r < 0 || memcmp(a, b, n) == 0);
		q = ranges(chain, in, pieces[i], b, n);
		assert(q > 0 || (r < 0) == (q < 0));
		assert(q != 0 || memcmp(a, b, n) == 0);
	}
	in_turn(chain, in, 50 * n);
}

static void encode(const struct codec_chain *chain, struct span in)
{
	auto_buf whole = { 0 }, pieces = { 0 };
	auto_free uint8_t *out = malloc(in.n);
	auto_of(codec_encoder) struct codec_encoder *e = NULL;
	int r = codec_encode(chain, in, &whole);

	assert(r == 0);
	assert(codec_decode(chain, buf_span(&whole), out, in.n) == 0);
	assert(memcmp(out, in.p, in.n) == 0);
	r = codec_encoder_open(chain, in.n, sink, &pieces, &e);
	if (r == -EOPNOTSUPP)
		return;
	for (size_t at = 0; r >= 0 && at < in.n; at += 100)
		r = codec_encoder_push(e, span_of(in.p + at, MIN((size_t)100, in.n - at)));
	assert(r == 0 && codec_encoder_finish(e) == 0);
	assert(codec_decode(chain, buf_span(&pieces), out, in.n) == 0);
	assert(memcmp(out, in.p, in.n) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	auto_arena arena = { 0 };
	auto_json doc = { 0 };
	struct codec_chain chain = { 0 };
	struct span in;
	unsigned which;

	if (size < 4)
		return 0;
	which = data[0] % ARRAY_LEN(chains);
	in = span_of(data + 3, size - 3);
	chain.dialect = chains[which].dialect;
	assert(json_parse(span_str(chains[which].text), "chain", &doc) == 0);
	for (size_t i = 0; i < doc.root->n; i++, chain.n++)
		assert(codec_parse(&doc.root->items[i], chain.dialect, 2, &arena,
				   &chain.codec[i]) == 0);
	decode(&chain, in, 1 + (data[1] | (size_t)data[2] << 8));
	encode(&chain, in);
	return 0;
}
