/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_kv_table.c - tables of checksums: one that parses, packs to the same bytes, and parses again.
 */
#include <string.h>

#include "core/kv/kv_table.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	auto_kv_table t = { 0 };
	auto_buf again = { 0 };
	uint32_t crc;

	if (kv_table_parse(span_of(data, size), &t) < 0) {
		must(t.n == 0);
		return 0;
	}
	(void)kv_table_find(&t, span_str("w/0.0"), &crc);
	must(kv_table_pack(&t, &again) == (t.n > 0));
	must(t.n == 0 || (again.n == size && !memcmp(again.p, data, size)));
	return 0;
}
