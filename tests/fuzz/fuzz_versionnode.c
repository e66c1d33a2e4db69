/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_versionnode.c - a version tree node from any bytes: what parses, packs and parses again to
 * the same text.
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
	auto_vnode v = { 0 }, again = { 0 };
	auto_buf text = { 0 }, packed = { 0 }, text_again = { 0 };

	if (ocdbt_vnode_parse(stored, span_of("sub/", 4), &v) < 0) {
		assert(!v.arena.top && !v.n);
		return;
	}
	if (ocdbt_vnode_text(&text, &v) < 0 || ocdbt_vnode_pack(&v, NULL, &packed) < 0)
		return;
	assert(ocdbt_vnode_parse(buf_span(&packed), span_of(NULL, 0), &again) == 0);
	assert(ocdbt_vnode_text(&text_again, &again) == 0);
	assert(span_eq(buf_span(&text), buf_span(&text_again)));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	auto_buf framed = { 0 };

	try_record(span_of(data, size));
	if (ocdbt_frame_pack(OCDBT_VERSIONNODE, NULL, span_of(data, size), &framed) >= 0)
		try_record(buf_span(&framed));
	return 0;
}
