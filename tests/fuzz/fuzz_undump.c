/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_undump.c - any text: what is a record's text becomes a record whose parser may refuse it;
 * and if it does not, its text is undumped to the same bytes.
 */
#include <assert.h>

#include "core/ocdbt/record.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	auto_buf record = { 0 }, text = { 0 }, again = { 0 };

	if (ocdbt_record_undump(span_of(data, size), &record) < 0) {
		assert(record.n == 0);
		return 0;
	}
	if (ocdbt_record_text(&text, buf_span(&record)) < 0)
		return 0;
	assert(ocdbt_record_undump(buf_span(&text), &again) == 0);
	assert(span_eq(buf_span(&record), buf_span(&again)));
	return 0;
}
