/* SPDX-License-Identifier: Apache-2.0 */
/*
 * codec_blosc.c - Blosc 1; the only file that uses libblosc.
 *
 * A blosc object is a header of 16 bytes, an index of the offsets of its blocks, and the blocks. A
 * block is one or more compressed pieces ("splits"), each preceded by its length. libblosc decodes
 * whole objects; codec_blosc_decoder.c decodes long ones piece by piece.
 *
 * Invariants: whole objects and stages accept the same objects; header, index and lengths are
 * checked before libblosc gets an object.
 */
#include <blosc.h>

#include "core/base/err.h"
#include "core/base/wire.h"
#include "core/codec/codec_blosc.h"

#define FLAG_STORED 0x02
#define FLAG_RESERVED 0x08
#define SPLIT_ITEMS 128        /* format: a block with fewer elements is not split */
#define BLOCK_LIKELY (8 * MiB) /* no automatic block is larger */
#define FORMATS 5              /* blosclz, lz4, snappy, zlib, zstd */
#define V2_LEVEL 5
#define V2_SHUFFLE (-1) /* by element size */

struct blosc_codec {
	struct codec base;
	char cname[8];
	int level;
	int shuffle; /* as in v2: -1, 0, 1, 2 */
	uint64_t blocksize;
	size_t typesize; /* element size for the encoder */
};

/* ---- metadata ---- */

static const char *const shuffles[] = { "noshuffle", "shuffle", "bitshuffle" };

static void parse_cname(struct codec_conf *conf, bool required, struct blosc_codec *b)
{
	static const char *const known[] = { "blosclz", "lz4", "lz4hc", "snappy", "zlib", "zstd" };
	struct span s = codec_conf_str(conf, "cname", required, span_str("lz4"));

	for (size_t i = 0; i < ARRAY_LEN(known); i++) {
		if (!span_eq(s, span_str(known[i])))
			continue;
		memcpy(b->cname, known[i], strlen(known[i]) + 1);
		return;
	}
	if (!conf->failed)
		conf->failed = fail(-EUCLEAN, "codec 'blosc': unknown cname '%.*s'", SPAN_ARG(s));
}

static int blosc_parse_v2(const struct json *members, size_t item_bytes, struct blosc_codec *b)
{
	static const char *const names[] = {
		"id", "cname", "clevel", "shuffle", "blocksize", NULL,
	};
	struct codec_conf conf = codec_conf_open(members, "blosc", names);
	const struct json *blocksize = json_member(members, "blocksize");
	int64_t v;

	parse_cname(&conf, false, b);
	b->level = (int)codec_conf_int(&conf, "clevel", 0, 9, false, V2_LEVEL);
	b->shuffle = (int)codec_conf_int(&conf, "shuffle", -1, 2, false, V2_SHUFFLE);
	b->typesize = item_bytes;
	if (conf.failed)
		return conf.failed;
	/* TensorStore accepts any 64-bit number here. */
	if (json_is(blocksize, JSON_UINT))
		b->blocksize = blocksize->u;
	else if (json_as_int(blocksize, &v) && v >= 0)
		b->blocksize = (uint64_t)v;
	else if (blocksize)
		return fail(-EUCLEAN, "codec 'blosc': member 'blocksize' is not a size");
	return 0;
}

static int blosc_parse_v3(const struct json *members, struct blosc_codec *b)
{
	static const char *const names[] = {
		"cname", "clevel", "shuffle", "typesize", "blocksize", NULL,
	};
	struct codec_conf conf = codec_conf_open(members, "blosc", names);
	struct span word;

	parse_cname(&conf, true, b);
	b->level = (int)codec_conf_int(&conf, "clevel", 0, 9, true, 0);
	word = codec_conf_str(&conf, "shuffle", true, span_str(""));
	if (conf.failed)
		return conf.failed;
	for (b->shuffle = 0; b->shuffle < (int)ARRAY_LEN(shuffles); b->shuffle++)
		if (span_eq(word, span_str(shuffles[b->shuffle])))
			break;
	if (b->shuffle == ARRAY_LEN(shuffles))
		return fail(-EUCLEAN, "codec 'blosc': unknown shuffle '%.*s'", SPAN_ARG(word));
	b->typesize = (size_t)codec_conf_int(&conf, "typesize", 1, BLOSC_MAX_TYPESIZE,
					     b->shuffle != 0, 1);
	b->blocksize =
		(uint64_t)codec_conf_int(&conf, "blocksize", 0, BLOSC_MAX_BLOCKSIZE, true, 0);
	return conf.failed;
}

static int blosc_parse(const struct codec_ops *ops, const struct json *conf,
		       enum codec_dialect dialect, size_t item_bytes, struct arena *arena,
		       const struct codec **ret)
{
	struct blosc_codec *b = arena_calloc(arena, 1, sizeof(*b));
	int r;

	if (!b)
		return fail(-ENOMEM, "cannot make a codec: not enough memory");
	b->base.ops = ops;
	r = dialect == CODEC_V2 ? blosc_parse_v2(conf, item_bytes, b) : blosc_parse_v3(conf, b);
	if (r < 0)
		return r;
	*ret = &b->base;
	return 0;
}

static int blosc_print(const struct codec *c, enum codec_dialect dialect, struct buf *ret)
{
	const struct blosc_codec *b = (const struct blosc_codec *)c;

	if (dialect == CODEC_V2)
		return buf_addf(ret,
				"{\"blocksize\":%llu,\"clevel\":%d,\"cname\":\"%s\","
				"\"id\":\"blosc\",\"shuffle\":%d}",
				(unsigned long long)b->blocksize, b->level, b->cname, b->shuffle);
	buf_addf(ret,
		 "{\"configuration\":{\"blocksize\":%llu,\"clevel\":%d,\"cname\":\"%s\","
		 "\"shuffle\":\"%s\"",
		 (unsigned long long)b->blocksize, b->level, b->cname, shuffles[b->shuffle]);
	if (b->shuffle)
		buf_addf(ret, ",\"typesize\":%zu", b->typesize);
	buf_add_str(ret, "},\"name\":\"blosc\"}");
	return buf_failed(ret);
}

/* ---- settings of options ---- */

bool blosc_has(const char *cname)
{
	return blosc_compname_to_compcode(cname) >= 0;
}

bool compression_blosc_fits(uint64_t n)
{
	return n > 0 && n <= BLOSC_MAX_BUFFERSIZE;
}

int blosc_new(struct arena *arena, const struct compression *c, enum codec_dialect dialect,
	      size_t item_bytes, const struct codec **ret)
{
	const char *cname = compression_cnames[c->cname];
	struct blosc_codec *b = arena_calloc(arena, 1, sizeof(*b));

	if (!b)
		return fail(-ENOMEM, "cannot make a codec: not enough memory");
	if (!blosc_has(cname))
		return fail(-EINVAL, "this libblosc does not have the codec '%s'", cname);
	b->base.ops = &codec_blosc;
	memcpy(b->cname, cname, strlen(cname) + 1);
	b->level = c->level;
	b->shuffle = c->shuffle;
	b->blocksize = c->block;
	b->typesize = c->typesize ? (size_t)c->typesize : item_bytes;
	/* Only the metadata of v2 can say "by element size". */
	if (b->shuffle < 0 && dialect == CODEC_V3)
		b->shuffle = b->typesize == 1 ? BLOSC_BITSHUFFLE : BLOSC_SHUFFLE;
	*ret = &b->base;
	return 0;
}

bool blosc_settings(const struct codec *c, struct compression *ret)
{
	const struct blosc_codec *b = (const struct blosc_codec *)c;
	int cname = 0;

	if (c->ops != &codec_blosc)
		return false;
	while (strcmp(compression_cnames[cname], b->cname) != 0)
		cname++;
	*ret = (struct compression){ .kind = COMPRESSION_BLOSC,
				     .level = b->level,
				     .cname = cname,
				     .shuffle = b->shuffle,
				     .block = b->blocksize,
				     .typesize = b->typesize };
	return true;
}

/* ---- header, index, blocks ---- */

int blosc_head_parse(const uint8_t bytes[BLOSC_HEAD_BYTES], uint64_t decoded,
		     struct blosc_head *ret)
{
	struct blosc_head h = {
		.flags = bytes[2],
		.typesize = bytes[3],
		.nbytes = get_u32le(bytes + 4),
		.blocksize = get_u32le(bytes + 8),
		.cbytes = get_u32le(bytes + 12),
	};
	uint64_t blocks;

	memcpy(h.bytes, bytes, BLOSC_HEAD_BYTES);
	if (bytes[0] != BLOSC_VERSION_FORMAT)
		return fail(-EUCLEAN, "not a blosc object: version %u, not %d", bytes[0],
			    BLOSC_VERSION_FORMAT);
	if (h.flags & FLAG_RESERVED || !h.typesize)
		return fail(-EUCLEAN, "blosc header has flags %02x and element size %u", h.flags,
			    h.typesize);
	if (h.nbytes > BLOSC_MAX_BUFFERSIZE || h.blocksize == 0 || h.blocksize > h.nbytes)
		return fail(-EUCLEAN, "blosc header has %u bytes in blocks of %u", h.nbytes,
			    h.blocksize);
	if (decoded != CODEC_SIZE_UNKNOWN && h.nbytes != decoded)
		return fail(-EUCLEAN, "blosc object declares %u bytes, expected %llu", h.nbytes,
			    (unsigned long long)decoded);
	if (h.flags & FLAG_STORED) {
		if (h.cbytes != h.nbytes + BLOSC_HEAD_BYTES)
			return fail(-EUCLEAN, "blosc object stores %u bytes in %u", h.nbytes,
				    h.cbytes);
		*ret = h;
		return 0;
	}
	blocks = div_up(h.nbytes, h.blocksize);
	if (h.flags >> 5 >= FORMATS)
		return fail(-EUCLEAN, "blosc object has unknown format %u", h.flags >> 5);
	if (BLOSC_HEAD_BYTES + 4 * blocks > h.cbytes)
		return fail(-EUCLEAN, "blosc object of %u bytes has %llu blocks", h.cbytes,
			    (unsigned long long)blocks);
	h.blocks = (uint32_t)blocks;
	h.body = BLOSC_HEAD_BYTES + 4 * (uint32_t)blocks;
	*ret = h;
	return 0;
}

int blosc_start_check(const struct blosc_head *h, uint32_t start)
{
	if (start >= h->body && start < h->cbytes)
		return 0;
	return fail(-EUCLEAN, "blosc block begins at %u, not from %u to %u", start, h->body,
		    h->cbytes);
}

/* Decoded bytes of block i. */
uint32_t blosc_block_bytes(const struct blosc_head *h, uint32_t i)
{
	uint32_t last = h->nbytes - (h->blocks - 1) * h->blocksize;

	return i + 1 == h->blocks ? last : h->blocksize;
}

uint32_t blosc_block_splits(const struct blosc_head *h, uint32_t i)
{
	if (h->flags & BLOSC_NO_SPLIT || h->typesize > BLOSC_SPLITS_MAX ||
	    blosc_block_bytes(h, i) < h->blocksize || h->blocksize / h->typesize < SPLIT_ITEMS)
		return 1;
	return h->typesize;
}

/*
 * The largest compressed size of a piece of n bytes. An encoder stores a piece uncompressed when it
 * would grow, except with snappy, whose output may grow this much.
 */
static uint32_t blosc_piece_most(uint32_t n)
{
	return n + n / 6 + 32;
}

int blosc_piece_check(const struct blosc_head *h, uint32_t i, uint32_t csize)
{
	uint32_t n = blosc_block_bytes(h, i) / blosc_block_splits(h, i);

	if (csize > 0 && csize <= blosc_piece_most(n))
		return 0;
	return fail(-EUCLEAN, "blosc block %u has a piece of %u bytes, decoded %u", i, csize, n);
}

void blosc_head_put(const struct blosc_head *h, uint32_t first, uint32_t k, size_t n, size_t stored,
		    uint8_t *ret)
{
	memcpy(ret, h->bytes, 4);
	/* A short last block is not split; in an object of its own it would not be short. */
	if (k == 1 && blosc_block_splits(h, first) == 1)
		ret[2] |= BLOSC_NO_SPLIT;
	set_u32le(ret + 4, (uint32_t)n);
	set_u32le(ret + 8, (uint32_t)MIN((size_t)h->blocksize, n));
	set_u32le(ret + 12, (uint32_t)(BLOSC_HEAD_BYTES + 4 * (size_t)k + stored));
}

uint32_t blosc_block_most(const struct blosc_head *h)
{
	return blosc_piece_most(h->blocksize) + BLOSC_SPLITS_MAX * (4 + 32);
}

int blosc_block_check(const struct blosc_head *h, uint32_t i, struct span in)
{
	uint32_t splits = blosc_block_splits(h, i);
	struct wire w = wire_of(in);

	for (uint32_t k = 0; k < splits; k++) {
		uint32_t csize = wire_u32le(&w);
		int r;

		wire_bytes(&w, csize);
		if (!wire_ok(&w))
			return fail(-ERANGE, "blosc block %u is longer than %zu bytes", i, in.n);
		r = blosc_piece_check(h, i, csize);
		if (r < 0)
			return r;
	}
	return 0;
}

/*
 * libblosc allocates two blocks and a little more in each call and does not check the result, so
 * check beforehand that they can be allocated.
 */
static int memory_check(size_t block, const char *what)
{
	void *p = malloc(2 * block + 4096);

	free(p);
	return p ? 0 : fail(-ENOMEM, "cannot %s blosc: not enough memory", what);
}

int blosc_run(const struct blosc_head *h, const void *object, void *out, size_t n)
{
	int got = memory_check(h->blocksize, "decode");

	if (got < 0)
		return got;
	got = blosc_decompress_ctx(object, out, n, 1);

	if (got < 0 || (size_t)got != n)
		return fail(-EUCLEAN, "cannot decode blosc: damaged (code %d for %zu bytes)", got,
			    n);
	return 0;
}

/* ---- whole objects ---- */

static int blosc_decode(const struct codec *c, struct span in, void *out, size_t n,
			size_t *ret_used)
{
	struct blosc_head h;
	int r;

	if (in.n < BLOSC_HEAD_BYTES)
		return fail(-EUCLEAN, "blosc stream is truncated after %zu bytes", in.n);
	r = blosc_head_parse(in.p, n, &h);
	if (r < 0)
		return r;
	if (h.cbytes != in.n)
		return fail(-EUCLEAN, "blosc object declares %u bytes, has %zu", h.cbytes, in.n);
	for (uint32_t i = 0; i < h.blocks; i++) {
		uint32_t start = get_u32le(in.p + BLOSC_HEAD_BYTES + 4 * (size_t)i);

		r = blosc_start_check(&h, start);
		r = r < 0 ? r : blosc_block_check(&h, i, span_from(in, start));
		if (r == -ERANGE)
			return fail(-EUCLEAN, "blosc block %u at %u is truncated", i, start);
		if (r < 0)
			return r;
	}
	if (h.blocks)
		r = blosc_run(&h, in.p, out, n);
	else
		memcpy(out, in.p + BLOSC_HEAD_BYTES, n);
	if (r < 0)
		return r;
	*ret_used = in.n;
	return r;
}

static int blosc_encode(const struct codec *c, struct span in, struct buf *ret)
{
	const struct blosc_codec *b = (const struct blosc_codec *)c;
	int shuffle = b->shuffle, n, r;

	if (in.n > BLOSC_MAX_BUFFERSIZE)
		return fail(-EFBIG, "cannot encode blosc: %zu bytes exceed its limit of %d", in.n,
			    BLOSC_MAX_BUFFERSIZE);
	if (in.n == 0)
		return fail(-EINVAL, "cannot encode blosc: no bytes");
	/* Check first, because libblosc prints a message for an unknown compressor. */
	if (blosc_compname_to_compcode(b->cname) < 0)
		return fail(-EOPNOTSUPP, "cannot encode blosc: no '%s' in this libblosc", b->cname);
	if (shuffle < 0)
		shuffle = b->typesize == 1 ? BLOSC_BITSHUFFLE : BLOSC_SHUFFLE;
	r = shuffle == BLOSC_SHUFFLE && !strcmp(b->cname, "zstd") ?
		    blosc_encode_fast(in, b->typesize, b->blocksize, b->level, ret) :
		    0;
	if (r != 0)
		return MIN(r, 0);
	r = buf_reserve(ret, in.n + BLOSC_MAX_OVERHEAD);
	if (r < 0)
		return r;
	r = memory_check(MIN(in.n, b->blocksize && b->blocksize < BLOCK_LIKELY ?
					   (size_t)b->blocksize :
					   (size_t)BLOCK_LIKELY),
			 "encode");
	if (r < 0)
		return r;
	n = blosc_compress_ctx(b->level, shuffle, b->typesize, in.n, in.p, ret->p + ret->n,
			       in.n + BLOSC_MAX_OVERHEAD, b->cname,
			       (size_t)MIN(b->blocksize, (uint64_t)BLOSC_MAX_BLOCKSIZE), 1);
	if (n <= 0)
		return fail(-ENOMEM, "cannot encode blosc: code %d for %zu bytes", n, in.n);
	ret->n += (size_t)n;
	return 0;
}

/* The decoder compares the decoded size; what follows the object only its end finds. */
static bool blosc_declares_size(struct span object)
{
	return object.n >= BLOSC_HEAD_BYTES && get_u32le(object.p + 12) == object.n;
}

const struct codec_ops codec_blosc = {
	.name = "blosc",
	.in_v2 = true,
	.in_v3 = true,
	.exact = true,
	.parse = blosc_parse,
	.print = blosc_print,
	.decode = blosc_decode,
	.encode = blosc_encode,
	.open_decoder = blosc_decoder_new,
	.declares_size = blosc_declares_size,
};
