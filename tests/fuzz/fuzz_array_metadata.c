/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_array_metadata.c - `array_metadatas/process_N`: what parses, prints and parses again to the
 * same.
 */
#include "core/tree/array_metadata.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	auto_of(array_metadatas) struct array_metadatas *m = NULL;
	auto_of(array_metadatas) struct array_metadatas *again = NULL;
	auto_buf a = { 0 }, b = { 0 };

	if (array_metadatas_parse(span_of(data, size), "input", &m) < 0) {
		must(!m);
		return 0;
	}
	for (size_t i = 0; i < m->n; i++)
		must(array_metadatas_find(m, m->entries[i].param) >= &m->entries[i]);
	must(array_metadatas_print(m->entries, m->n, &a) == 0);
	must(array_metadatas_parse(buf_span(&a), "printed", &again) == 0);
	must(array_metadatas_print(again->entries, again->n, &b) == 0);
	must(again->n == m->n && span_eq(buf_span(&a), buf_span(&b)));
	return 0;
}
