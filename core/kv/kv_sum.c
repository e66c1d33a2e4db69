/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kv_sum.c - pack and parse trailers of values, and compare them with the value.
 */
#include "core/kv/kv_sum.h"

#include "core/base/crc32c.h"
#include "core/base/err.h"
#include "core/base/wire.h"

void kv_sum_pack(uint32_t crc, uint8_t ret[KV_SUM_BYTES])
{
	set_u32le(ret, (uint32_t)KV_SUM_MAGIC);
	set_u32le(ret + 4, (uint32_t)(KV_SUM_MAGIC >> 32));
	set_u32le(ret + 8, crc);
	set_u32le(ret + 12, crc32c(span_of(ret, 12)));
}

int kv_sum_parse(const uint8_t p[KV_SUM_BYTES], uint32_t *ret)
{
	int wrong = __builtin_popcountll(get_u64le(p) ^ KV_SUM_MAGIC);
	uint32_t got = crc32c(span_of(p, 12)), want = get_u32le(p + 12);

	if (wrong > 1)
		return 0;
	if (wrong || got != want)
		return fail(-EBADMSG,
			    "the checksum that follows it is damaged: crc32c %08x, stored %08x",
			    got, want);
	*ret = get_u32le(p + 8);
	return 1;
}

static int differ(uint32_t got, uint32_t want)
{
	return got == want ? 1 : fail(-EBADMSG, "crc32c %08x, stored %08x", got, want);
}

static int compare(uint32_t got, const uint8_t tail[KV_SUM_BYTES])
{
	uint32_t want = 0;
	int r = kv_sum_parse(tail, &want);

	return r > 0 ? differ(got, want) : r;
}

int kv_sum_check(struct span value, struct span tail)
{
	uint32_t want = 0;
	int r = tail.n < KV_SUM_BYTES ? 0 : kv_sum_parse(tail.p, &want);

	/* Most values have no trailer: then the checksum is not computed. */
	return r > 0 ? differ(crc32c(value), want) : r;
}

int kv_loc_compare(const struct kv_loc *loc, struct span value, struct span tail)
{
	return loc->has_sum ? differ(crc32c(value), loc->sum) : kv_sum_check(value, tail);
}

static int read_tail(const struct kv_loc *loc, uint8_t ret[KV_SUM_BYTES])
{
	int r;

	if (loc->where != KV_FILE || loc->tail < KV_SUM_BYTES)
		return 0;
	r = io_read_exact(loc->file, ret, KV_SUM_BYTES, loc->off + loc->len);
	return r < 0 ? r : 1;
}

int kv_loc_has_sum(const struct kv_loc *loc)
{
	uint8_t tail[KV_SUM_BYTES];
	uint32_t crc;
	int r = loc->has_sum ? 0 : read_tail(loc, tail);

	if (loc->has_sum)
		return 1;
	return r > 0 ? kv_sum_parse(tail, &crc) : r;
}

bool kv_loc_has_end(const struct kv_loc *loc, uint64_t done, size_t *ret)
{
	*ret = 0;
	if (loc->where != KV_FILE || (loc->tail < KV_SUM_BYTES && !loc->has_sum))
		return false;
	*ret = (size_t)(loc->len - done) + (loc->has_sum ? 0 : KV_SUM_BYTES);
	return true;
}

int kv_loc_compare_end(const struct kv_loc *loc, uint64_t done, uint32_t crc, const uint8_t *end)
{
	size_t rest = (size_t)(loc->len - done);

	crc = crc32c_more(crc, span_of(end, rest));
	return loc->has_sum ? differ(crc, loc->sum) : compare(crc, end + rest);
}

int kv_loc_check_end(const struct kv_loc *loc, uint64_t done, uint32_t crc)
{
	uint8_t end[KV_SUM_REST + KV_SUM_BYTES];
	size_t n;
	int r;

	if (!kv_loc_has_end(loc, done, &n))
		return 0;
	r = n ? io_read_exact(loc->file, end, n, loc->off + done) : 0;
	return r < 0 ? r : kv_loc_compare_end(loc, done, crc, end);
}

int kv_loc_check(const struct kv_loc *loc, void *room, size_t n_room)
{
	uint8_t tail[KV_SUM_BYTES];
	uint32_t crc = 0;
	int r = loc->has_sum ? 1 : read_tail(loc, tail);

	/*
	 * A damaged trailer is an error before the value is read; a value without one is not read.
	 */
	if (r > 0 && !loc->has_sum)
		r = kv_sum_parse(tail, &crc);
	if (r <= 0)
		return r;
	crc = 0;
	for (uint64_t at = 0, n; at < loc->len; at += n) {
		n = MIN(loc->len - at, (uint64_t)n_room);
		r = io_read_exact(loc->file, room, n, loc->off + at);
		if (r < 0)
			return r;
		crc = crc32c_more(crc, span_of(room, n));
	}
	return loc->has_sum ? differ(crc, loc->sum) : compare(crc, tail);
}
