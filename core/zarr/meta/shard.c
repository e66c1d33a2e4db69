/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shard.c - the index of a shard, bytes <-> numbers. No I/O.
 */
#include "core/zarr/meta/shard.h"

#include "core/base/crc32c.h"
#include "core/base/err.h"
#include "core/base/wire.h"

static int entry_check(const uint64_t *e, uint64_t number, uint64_t object_len)
{
	uint64_t end;

	if (e[0] == UINT64_MAX && e[1] == UINT64_MAX)
		return 0;
	if (e[0] == UINT64_MAX || e[1] == UINT64_MAX || !add_fits(e[0], e[1], &end) ||
	    end > object_len)
		return fail(-EUCLEAN,
			    "shard index: inner chunk %llu has %llu bytes at offset %llu, "
			    "the shard has %llu bytes",
			    (unsigned long long)number, (unsigned long long)e[1],
			    (unsigned long long)e[0], (unsigned long long)object_len);
	return 0;
}

int shard_index_decode(const struct zarr_shard *s, struct span index, uint64_t object_len,
		       uint64_t *ret)
{
	uint64_t n = 16 * s->entries;

	if (index.n != s->index_bytes)
		return fail(-EUCLEAN, "shard index has %zu bytes, %llu were expected", index.n,
			    (unsigned long long)s->index_bytes);
	if (s->index_crc32c) {
		uint32_t want = get_u32le(index.p + n), got = crc32c(span_of(index.p, n));

		if (got != want)
			return fail(-EBADMSG, "shard index: crc32c %08x, stored %08x", got, want);
	}
	for (uint64_t i = 0; i < s->entries; i++) {
		int r;

		for (int k = 0; k < 2; k++) {
			uint64_t v = get_u64le(index.p + 16 * i + 8 * (uint64_t)k);

			ret[2 * i + (uint64_t)k] = s->index_big_endian ? __builtin_bswap64(v) : v;
		}
		r = entry_check(ret + 2 * i, i, object_len);
		if (r < 0)
			return r;
	}
	return 0;
}

int shard_index_encode(const struct zarr_shard *s, const uint64_t *entries, struct buf *ret)
{
	size_t was = ret->n;
	int r = 0;

	for (uint64_t i = 0; i < 2 * s->entries && r >= 0; i++)
		r = wire_put_u64le(ret, s->index_big_endian ? __builtin_bswap64(entries[i]) :
							      entries[i]);
	if (r < 0)
		return r;
	if (s->index_crc32c)
		r = wire_put_u32le(ret, crc32c(span_of(ret->p + was, ret->n - was)));
	return r;
}
