/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_dtype_value.c - arbitrary JSON as an element, and as a fill value of v2 and v3: what parses
 * prints, and parses again to the same bytes.
 *
 * Input: a byte that picks the type, the text.
 */
#include <assert.h>
#include <string.h>

#include "core/dtype/dtype.h"

static int parse(enum dtype t, int version, struct span text, uint8_t *element)
{
	auto_json doc = { 0 };
	int r = json_parse(text, "value", &doc);

	if (r < 0)
		return r;
	return version ? dtype_fill_parse(t, version, doc.root, element) :
			 dtype_value_parse(t, doc.root, element);
}

/* version 0: a value, not a fill value. */
static void check(enum dtype t, int version, struct span text)
{
	uint8_t element[LIMIT_ITEM_BYTES] = { 0 }, again[LIMIT_ITEM_BYTES] = { 0 };
	auto_buf printed = { 0 }, twice = { 0 };

	if (parse(t, version, text, element) < 0)
		return;
	assert((version ? dtype_fill_print(t, version, element, &printed) :
			  dtype_value_print(t, element, &printed)) == 0);
	assert(parse(t, version, buf_span(&printed), again) == 0);
	/* v2 writes every NaN alike. */
	if (version == 2 && printed.n && strstr(buf_str(&printed), "NaN")) {
		assert(dtype_fill_print(t, version, again, &twice) == 0);
		assert(span_eq(buf_span(&printed), buf_span(&twice)));
		return;
	}
	assert(memcmp(element, again, dtype_info(t)->size) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	enum dtype t;

	if (size < 2)
		return 0;
	t = DTYPE_BOOL + data[0] % (DTYPE_COUNT - DTYPE_BOOL);
	for (int version = 0; version <= 3; version += version ? 1 : 2)
		check(t, version, span_of(data + 1, size - 1));
	return 0;
}
