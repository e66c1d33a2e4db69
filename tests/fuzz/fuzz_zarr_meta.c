/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_zarr_meta.c - arbitrary documents: what passes keeps the invariants of its header, says the
 * same again when it is written anew as JSON, and its first and last chunk keys come back.
 */
#include <assert.h>
#include <stdlib.h>

#include "core/zarr/meta/zarr_meta.h"

static void check_level(const struct zarr_meta *m, const struct zarr_level *l, unsigned depth)
{
	uint64_t n = dtype_info(m->dtype)->size, entries = 1;
	uint32_t visited = 0;

	for (unsigned i = 0; i < m->rank; i++) {
		assert(l->axis[i] < m->rank && !(visited >> l->axis[i] & 1));
		visited |= 1u << l->axis[i];
		assert(l->shape[i] > 0 && l->shape[i] <= m->chunk[l->axis[i]]);
	}
	if (!l->shard) {
		for (unsigned i = 0; i < m->rank; i++)
			n *= l->shape[i];
		assert(n == l->bytes && l->codecs.n <= LIMIT_CODECS);
		return;
	}
	assert(depth < LIMIT_SHARD_NESTING && l->codecs.n == 0);
	for (unsigned i = 0; i < m->rank; i++) {
		assert(l->shard->grid[i] && l->shape[i] % l->shard->grid[i] == 0);
		entries *= l->shard->grid[i];
	}
	assert(entries == l->shard->entries && entries <= LIMIT_SHARD_ENTRIES);
	check_level(m, &l->shard->inner, depth + 1);
}

static void check_keys(const struct zarr_meta *m)
{
	for (int last = 0; last < 2; last++) {
		uint64_t index[LIMIT_RANK], again[LIMIT_RANK];
		auto_buf key = { 0 };

		for (unsigned i = 0; i < m->rank; i++) {
			if (!m->grid[i])
				return;
			index[i] = last ? m->grid[i] - 1 : 0;
		}
		assert(zarr_chunk_key(m, index, &key) == 0);
		assert(zarr_chunk_key_parse(m, buf_span(&key), again) == 1);
		for (unsigned i = 0; i < m->rank; i++)
			assert(index[i] == again[i]);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	auto_zarr_meta m = { 0 }, again = { 0 };
	auto_buf text = { 0 }, same = { 0 }, json = { 0 };
	auto_json doc = { 0 };

	if (zarr_meta_parse(span_of(data, size), "document", &m) < 0)
		return 0;
	for (unsigned i = 0; i < m.rank; i++)
		assert(m.chunk[i] &&
		       m.grid[i] == m.shape[i] / m.chunk[i] + !!(m.shape[i] % m.chunk[i]));
	check_level(&m, &m.level, 0);
	check_keys(&m);
	assert(zarr_meta_text(&text, &m) == 0);
	assert(json_parse(span_of(data, size), "document", &doc) == 0);
	assert(json_print(&json, doc.root, JSON_PRETTY) == 0);
	assert(zarr_meta_parse(buf_span(&json), "document", &again) == 0);
	assert(zarr_meta_text(&same, &again) == 0);
	assert(span_eq(buf_span(&text), buf_span(&same)));
	return 0;
}
