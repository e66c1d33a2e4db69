/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_manifest.c - a manifest from any bytes: what parses, packs and parses again to the same text.
 *
 * The input is taken as a whole record, and as the body of one, so that the fuzzer need not guess a
 * checksum.
 */
#include <assert.h>
#include <string.h>

#include "core/ocdbt/record.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void try_record(struct span stored)
{
	auto_manifest m = { 0 }, again = { 0 };
	auto_buf text = { 0 }, packed = { 0 }, text_again = { 0 };

	if (ocdbt_manifest_parse(stored, &m) < 0) {
		assert(!m.arena.top && !m.n_versions);
		return;
	}
	if (ocdbt_manifest_text(&text, &m) < 0 || ocdbt_manifest_pack(&m, NULL, &packed) < 0)
		return;
	assert(ocdbt_manifest_parse(buf_span(&packed), &again) == 0);
	assert(ocdbt_manifest_text(&text_again, &again) == 0);
	assert(span_eq(buf_span(&text), buf_span(&text_again)));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	auto_buf framed = { 0 };

	try_record(span_of(data, size));
	if (ocdbt_frame_pack(OCDBT_MANIFEST, NULL, span_of(data, size), &framed) >= 0)
		try_record(buf_span(&framed));
	return 0;
}
