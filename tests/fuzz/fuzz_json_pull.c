/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_json_pull.c - the pull reader takes what json_parse() takes, but for its bounds, and what it
 * respells it reads back to the same text.
 */
#include <errno.h>

#include "core/base/json_pull.h"
#include "tests/fuzz/fuzz.h"

static int respell(struct span in, struct buf *out)
{
	auto_json_pull p = { 0 };
	int r;

	json_pull_init(&p, in, "input");
	r = json_pull_respell(&p, out);
	return r < 0 ? r : json_pull_end(&p);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	auto_json doc = { 0 };
	auto_buf a = { 0 }, b = { 0 };
	int parsed = json_parse(span_of(data, size), "input", &doc);
	int pulled = respell(span_of(data, size), &a);

	/* Deeper than 256 and more values are for the pull reader alone. */
	must(parsed == pulled || (pulled == 0 && parsed < 0 && size > 2 * LIMIT_JSON_DEPTH) ||
	     parsed == -EFBIG);
	if (pulled == 0) {
		must(respell(buf_span(&a), &b) == 0);
		must(span_eq(buf_span(&a), buf_span(&b)));
	}
	return 0;
}
