/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shard.c - the index of a shard, bytes <-> numbers. No I/O.
 */
#include "core/zarr/meta/shard.h"

#include "core/base/crc32c.h"
#include "core/base/err.h"
#include "core/base/wire.h"

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
		uint64_t off = get_u64le(index.p + 16 * i), len = get_u64le(index.p + 16 * i + 8);
		uint64_t end;

		ret[2 * i] = off = s->index_big_endian ? __builtin_bswap64(off) : off;
		ret[2 * i + 1] = len = s->index_big_endian ? __builtin_bswap64(len) : len;
		if (off == UINT64_MAX && len == UINT64_MAX)
			continue;
		if (off == UINT64_MAX || len == UINT64_MAX || !add_fits(off, len, &end) ||
		    end > object_len)
			return fail(-EUCLEAN,
				    "shard index: inner chunk %llu has %llu bytes at offset %llu, "
				    "the shard has %llu bytes",
				    (unsigned long long)i, (unsigned long long)len,
				    (unsigned long long)off, (unsigned long long)object_len);
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
