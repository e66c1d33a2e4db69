/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_btree.c - a B+tree node from any bytes: what parses, packs and parses again to the same
 * text, its keys are found where they are, and its text is a record again.
 *
 * The input is taken as a whole record, and as the body of one, so that the fuzzer need not guess a
 * checksum.
 */
#include <assert.h>
#include <string.h>

#include "core/ocdbt/record.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void search_all(const struct ocdbt_node *node)
{
	for (uint32_t i = 0; i < node->n; i++) {
		struct span key = ocdbt_node_key(node, i);

		assert(ocdbt_node_rank(node, key, i * 7 % (node->n + 1)) == i + 1);
	}
}

static void try_record(struct span stored)
{
	auto_of(ocdbt_node) struct ocdbt_node *node = NULL, *again = NULL;
	auto_buf text = { 0 }, packed = { 0 }, text_again = { 0 }, whole = { 0 }, undumped = { 0 };
	struct ocdbt_stats stats, stats_again;

	if (ocdbt_node_parse(stored, span_of(NULL, 0), &node) < 0) {
		assert(!node);
		return;
	}
	search_all(node);
	ocdbt_node_stats(node, &stats);
	if (ocdbt_node_text(&text, node) < 0 || ocdbt_node_pack(node, NULL, &packed) < 0)
		return;
	assert(ocdbt_node_parse(buf_span(&packed), span_of(NULL, 0), &again) == 0);
	assert(ocdbt_node_text(&text_again, again) == 0);
	assert(span_eq(buf_span(&text), buf_span(&text_again)));
	ocdbt_node_stats(again, &stats_again);
	assert(!memcmp(&stats, &stats_again, sizeof(stats)));
	assert(ocdbt_record_text(&whole, buf_span(&packed)) == 0);
	assert(ocdbt_record_undump(buf_span(&whole), &undumped) == 0);
	assert(span_eq(buf_span(&undumped), buf_span(&packed)));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	auto_buf framed = { 0 };

	try_record(span_of(data, size));
	if (ocdbt_frame_pack(OCDBT_BTREENODE, NULL, span_of(data, size), &framed) >= 0)
		try_record(buf_span(&framed));
	return 0;
}
