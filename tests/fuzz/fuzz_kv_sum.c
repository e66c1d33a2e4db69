/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_kv_sum.c - trailers of values: one that parses, packs to the same bytes; the value before it
 * passes only with its own checksum.
 */
#include <string.h>

#include "core/base/crc32c.h"
#include "core/kv/kv_sum.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t again[KV_SUM_BYTES];
	struct span value, tail;
	uint32_t crc;
	int r;

	if (size < KV_SUM_BYTES) {
		must(kv_sum_check(span_of(NULL, 0), span_of(data, size)) == 0);
		return 0;
	}
	value = span_of(data, size - KV_SUM_BYTES);
	tail = span_of(data + value.n, KV_SUM_BYTES);
	r = kv_sum_parse(tail.p, &crc);
	must(r <= 1);
	if (r == 1) {
		kv_sum_pack(crc, again);
		must(!memcmp(again, tail.p, sizeof(again)));
		must((kv_sum_check(value, tail) == 1) == (crc32c(value) == crc));
	} else {
		must(kv_sum_check(value, tail) == r);
	}
	return 0;
}
