/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_shard.c - indexes of shards: entries of what decodes lie in the object, and it encodes to the
 * same bytes. The first byte says the index's form and number of entries, two the object's length.
 */
#include <string.h>

#include "core/zarr/meta/shard.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct zarr_shard s = { 0 };
	uint64_t object, entry[2 * 32];
	auto_buf again = { 0 };

	if (size < 3)
		return 0;
	s.entries = (data[0] & 31) + 1u;
	s.index_crc32c = data[0] & 32;
	s.index_big_endian = data[0] & 64;
	s.index_bytes = 16 * s.entries + (s.index_crc32c ? 4 : 0);
	object = data[1] | (uint64_t)data[2] << 8;
	if (size - 3 != s.index_bytes ||
	    shard_index_decode(&s, span_of(data + 3, size - 3), object, entry) < 0)
		return 0;
	for (uint64_t i = 0; i < s.entries; i++) {
		uint64_t off = entry[2 * i], n = entry[2 * i + 1];

		must((off == UINT64_MAX && n == UINT64_MAX) ||
		     (off <= object && n <= object - off));
	}
	must(shard_index_encode(&s, entry, &again) == 0);
	must(again.n == size - 3 && !memcmp(again.p, data + 3, again.n));
	return 0;
}
