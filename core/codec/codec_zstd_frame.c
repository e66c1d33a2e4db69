/* SPDX-License-Identifier: Apache-2.0 */
/*
 * codec_zstd_frame.c - headers of zstd frames: sizes, windows, limits.
 */
#include "core/codec/codec_zstd_frame.h"

#include "core/base/err.h"
#include "core/base/wire.h"
#include "core/codec/codec_impl.h"

#define WINDOW_LEAST (128 * KiB) /* the largest block; the window limits it, too */

size_t zstd_head_bytes(const uint8_t head[5])
{
	static const uint8_t dictionary[] = { 0, 1, 2, 4 };
	static const uint8_t content[] = { 0, 2, 4, 8 };
	uint8_t flags = head[4];
	bool single = flags & 0x20;

	if (get_u32le(head) != ZSTD_MAGIC)
		return 0;
	return 5 + !single + dictionary[flags & 3] + (flags >> 6 ? content[flags >> 6] : single);
}

static uint64_t window_of(uint8_t descriptor)
{
	uint64_t base = (uint64_t)1 << (10 + (descriptor >> 3));

	return base + base / 8 * (descriptor & 7);
}

int zstd_head_parse(struct span in, struct zstd_head *ret)
{
	struct zstd_head h = { .bytes = in.n >= 5 ? zstd_head_bytes(in.p) : 0 };
	const uint8_t *p = in.p;

	if (in.n < 5)
		return fail(-EUCLEAN, "zstd stream is truncated after %zu bytes", in.n);
	if (!h.bytes)
		return fail(-EUCLEAN, "not a zstd frame: it begins with %08x, not %08x",
			    get_u32le(p), ZSTD_MAGIC);
	if (in.n < h.bytes)
		return fail(-EUCLEAN, "zstd stream is truncated after %zu bytes", in.n);
	h.window_at = p[4] & 0x20 ? 0 : 5;
	switch (p[4] >> 6) {
	case 0:
		h.content = h.window_at ? CODEC_SIZE_UNKNOWN : p[h.bytes - 1];
		break;
	case 1:
		h.content = 256u + p[h.bytes - 2] + ((unsigned)p[h.bytes - 1] << 8);
		break;
	case 2:
		h.content = get_u32le(p + h.bytes - 4);
		break;
	default:
		h.content = get_u64le(p + h.bytes - 8);
		break;
	}
	h.window = h.window_at ? window_of(p[5]) : h.content;
	if (h.window_at && h.window > (uint64_t)1 << LIMIT_ZSTD_WINDOW_LOG)
		return fail(-EFBIG, "zstd frame has a window of %llu bytes, the limit is 2^%d",
			    (unsigned long long)h.window, LIMIT_ZSTD_WINDOW_LOG);
	*ret = h;
	return 0;
}

int zstd_head_expect(const struct zstd_head *h, uint64_t decoded)
{
	if (h->content == CODEC_SIZE_UNKNOWN || decoded == CODEC_SIZE_UNKNOWN ||
	    h->content == decoded)
		return 0;
	return fail(-EUCLEAN, "zstd frame declares %llu bytes, expected %llu",
		    (unsigned long long)h->content, (unsigned long long)decoded);
}

void zstd_head_shrink(struct zstd_head *h, uint8_t *head, uint64_t decoded)
{
	uint64_t need = MAX(MIN(h->content, decoded), WINDOW_LEAST);

	if (!h->window_at || h->window <= need)
		return;
	for (unsigned descriptor = 0; descriptor < head[h->window_at]; descriptor++) {
		if (window_of((uint8_t)descriptor) >= need) {
			head[h->window_at] = (uint8_t)descriptor;
			h->window = window_of((uint8_t)descriptor);
			return;
		}
	}
}
