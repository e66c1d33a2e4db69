/* SPDX-License-Identifier: Apache-2.0 */
/*
 * frame.c - the envelope of all three records: magic, length, compression, CRC-32C.
 *
 * The only file of this folder that uses zstd. manifest.c, version.c and btree.c interpret the
 * body.
 *
 * Invariants: nothing is decoded before the checksum has matched; decoding never allocates more
 * than the limit, whatever window or size a frame claims, because it decodes in one shot into
 * memory whose size was computed, and charged to the meter, beforehand.
 */
#include <zstd.h>
#include <zstd_errors.h>

#include "core/base/crc32c.h"
#include "core/base/err.h"
#include "core/ocdbt/record.h"

#define HEADER_BYTES 14 /* in the shortest spelling, which is the only one written */
#define CRC_BYTES 4

static const struct {
	const char *name;
	uint32_t magic;
} records[] = {
	[OCDBT_MANIFEST] = { "manifest", 0x0cdb3a2a },
	[OCDBT_VERSIONNODE] = { "version node", 0x0cdb1234 },
	[OCDBT_BTREENODE] = { "B+tree node", 0x0cdb20de },
};

_Static_assert(HEADER_BYTES + CRC_BYTES == OCDBT_FRAME_BYTES, "the envelope has a fixed size");

/* ---- zstd ---- */

/* Skip the header of a zstd frame. False when it is not a frame that we read. */
static bool zstd_skip_header(struct wire *w)
{
	static const uint8_t dict_bytes[] = { 0, 1, 2, 4 }, size_bytes[] = { 0, 2, 4, 8 };
	uint32_t magic = wire_u32le(w);
	uint8_t desc = wire_u8(w);
	bool single = desc & 0x20;

	if (magic != 0xfd2fb528 || desc & 0x08)
		return false;
	if (!single)
		wire_u8(w);
	wire_bytes(w, dict_bytes[desc & 3]);
	wire_bytes(w, desc >> 6 ? size_bytes[desc >> 6] : single);
	return wire_ok(w);
}

/*
 * Compute from the block headers alone the most bytes that the single frame in src can decode to,
 * and the least; -EUCLEAN unless src is exactly one frame. The content size in the header is not
 * needed, and most frames have none.
 */
static int zstd_bound(struct span src, uint64_t *ret, uint64_t *ret_least)
{
	enum { BLOCK_RAW, BLOCK_RLE, BLOCK_COMPRESSED, BLOCK_RESERVED };
	struct wire w = wire_of(src);
	bool has_sum = src.n > 4 && src.p[4] & 0x04;
	uint64_t sum = 0, least = 0;
	uint32_t head;

	if (!zstd_skip_header(&w))
		return fail(-EUCLEAN, "body is not a zstd frame");
	do {
		uint32_t type, size;

		head = wire_u16le(&w);
		head |= (uint32_t)wire_u8(&w) << 16;
		type = head >> 1 & 3;
		size = head >> 3;
		if (type == BLOCK_RESERVED)
			return fail(-EUCLEAN, "zstd frame has a block of unknown type");
		wire_bytes(&w, type == BLOCK_RLE ? 1 : size);
		sum += type == BLOCK_COMPRESSED ? ZSTD_BLOCKSIZE_MAX : size;
		least += type == BLOCK_COMPRESSED ? 0 : size;
	} while (wire_ok(&w) && !(head & 1));
	if (has_sum)
		wire_u32le(&w);
	if (!wire_ok(&w))
		return fail(-EUCLEAN, "zstd frame is truncated");
	if (wire_left(&w))
		return fail(-EUCLEAN, "%zu bytes follow the zstd frame", wire_left(&w));
	*ret = sum;
	*ret_least = least;
	return 0;
}

static int too_large(uint64_t limit)
{
	return fail(-EFBIG, "body decodes to more than the limit of %llu bytes",
		    (unsigned long long)limit);
}

static int zstd_decode(struct span src, uint64_t limit, struct buf *ret)
{
	auto_buf out = { .metered = true };
	uint64_t bound = 0, least = 0, cap;
	ZSTD_DCtx *ctx;
	size_t n;
	int r = zstd_bound(src, &bound, &least);

	if (r < 0)
		return r;
	if (least > limit)
		return too_large(limit);
	cap = MIN(bound, limit);
	/*
	 * Pages that decoding does not reach are never touched, so a generous bound costs nothing.
	 */
	r = buf_reserve(&out, cap);
	if (r < 0)
		return r;
	ctx = ZSTD_createDCtx();
	if (!ctx)
		return fail(-ENOMEM, "cannot allocate a zstd decoder");
	n = ZSTD_decompressDCtx(ctx, out.p, cap, src.p, src.n);
	ZSTD_freeDCtx(ctx);
	if (!ZSTD_isError(n)) {
		out.n = n;
		buf_shrink(&out);
		buf_release(ret);
		*ret = out;
		out = (struct buf){ 0 };
		return 0;
	}
	if (ZSTD_getErrorCode(n) == ZSTD_error_dstSize_tooSmall && bound > limit)
		return too_large(limit);
	if (ZSTD_getErrorCode(n) == ZSTD_error_memory_allocation)
		return fail(-ENOMEM, "cannot allocate a zstd decoder");
	return fail(-EUCLEAN, "zstd frame does not decode: %s", ZSTD_getErrorName(n));
}

static int zstd_encode(struct span src, int level, struct buf *ret)
{
	size_t bound = ZSTD_compressBound(src.n), n;
	ZSTD_CCtx *ctx;
	int r = buf_reserve(ret, bound);

	if (r < 0)
		return r;
	ctx = ZSTD_createCCtx();
	if (!ctx)
		return fail(-ENOMEM, "cannot allocate a zstd encoder");
	n = ZSTD_compressCCtx(ctx, ret->p + ret->n, bound, src.p, src.n, level);
	ZSTD_freeCCtx(ctx);
	if (ZSTD_isError(n))
		return fail(-ENOMEM, "cannot compress %zu bytes: %s", src.n, ZSTD_getErrorName(n));
	ret->n += n;
	return 0;
}

/* ---- the envelope ---- */

/* R1: check everything that does not need the body. */
static int frame_check(enum ocdbt_record kind, struct span stored)
{
	struct wire w = wire_of(stored);
	uint32_t magic = wire_u32be(&w), sum, want;
	uint64_t len = wire_u64le(&w);

	if (stored.n < OCDBT_FRAME_BYTES)
		return fail(-EUCLEAN, "%zu bytes are too few for a %s", stored.n,
			    records[kind].name);
	if (magic != records[kind].magic)
		return fail(-EUCLEAN, "not a %s: magic %08x, should be %08x", records[kind].name,
			    magic, records[kind].magic);
	if (len != stored.n)
		return fail(-EUCLEAN, "%s declares %llu bytes, has %zu", records[kind].name,
			    (unsigned long long)len, stored.n);
	sum = crc32c(span_of(stored.p, stored.n - CRC_BYTES));
	want = get_u32le(stored.p + stored.n - CRC_BYTES);
	if (sum != want)
		return fail(-EBADMSG, "%s: crc32c %08x, stored %08x", records[kind].name, sum,
			    want);
	return 0;
}

int ocdbt_frame_open(enum ocdbt_record kind, struct span stored, uint64_t limit, struct buf *hold,
		     struct span *ret_body)
{
	uint32_t version, compression;
	struct span body;
	struct wire w;
	int r = frame_check(kind, stored);

	if (r < 0)
		return r;
	w = wire_of(span_of(stored.p + 12, stored.n - 12 - CRC_BYTES));
	version = (uint32_t)wire_varint(&w, UINT32_MAX);
	compression = (uint32_t)wire_varint(&w, UINT32_MAX);
	body = wire_bytes(&w, wire_left(&w));
	if (!wire_ok(&w))
		return fail(-EUCLEAN, "%s: malformed version or compression", records[kind].name);
	if (version != 0)
		return fail(-EOPNOTSUPP, "%s of format version %u, known is 0", records[kind].name,
			    version);
	if (compression > OCDBT_ZSTD)
		return fail(-EOPNOTSUPP, "%s with compression %u, known are 0 and 1",
			    records[kind].name, compression);
	if (compression == OCDBT_ZSTD) {
		r = zstd_decode(body, limit, hold);
		if (r < 0)
			return err_at(r, "%s", records[kind].name);
		body = buf_span(hold);
	} else if (body.n > limit) {
		return fail(-EFBIG, "%s of %zu bytes, the limit is %llu", records[kind].name,
			    body.n, (unsigned long long)limit);
	}
	*ret_body = body;
	return 0;
}

static int frame_put(enum ocdbt_record kind, const struct ocdbt_config *compress, struct span body,
		     struct buf *ret)
{
	enum ocdbt_compression compression = compress ? compress->compression : OCDBT_PLAIN;
	size_t at = ret->n;
	int r = wire_put_u32be(ret, records[kind].magic);

	if (r < 0)
		return r;
	r = wire_put_u64le(ret, 0); /* the length, which is set at the end */
	if (r < 0)
		return r;
	r = wire_put_varint(ret, 0);
	if (r < 0)
		return r;
	r = wire_put_varint(ret, compression);
	if (r < 0)
		return r;
	r = compression == OCDBT_ZSTD ? zstd_encode(body, compress->zstd_level, ret) :
					buf_add_span(ret, body);
	if (r < 0)
		return r;
	set_u64le(ret->p + at + 4, ret->n - at + CRC_BYTES);
	return wire_put_u32le(ret, crc32c(span_of(ret->p + at, ret->n - at)));
}

int ocdbt_frame_pack(enum ocdbt_record kind, const struct ocdbt_config *compress, struct span body,
		     struct buf *ret)
{
	size_t at = ret->n;
	int r = frame_put(kind, compress, body, ret);

	if (r < 0)
		ret->n = at;
	return r;
}
