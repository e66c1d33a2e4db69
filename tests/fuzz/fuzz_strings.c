/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_strings.c - `_strings.json`: every value that is indexed has a text of the length it says,
 * and what can be written back is found again.
 */
#include "core/tree/strings.h"
#include "tests/fuzz/fuzz.h"

/* A text as bytes of the input and of what was written, found by name. */
static void check_found(const struct strings *s, struct span doc, struct span name,
			struct span want)
{
	const struct strings_entry *e = strings_find(s, name);
	auto_buf text = { 0 };

	must(e && e->off + e->len <= doc.n);
	must(strings_text(span_of(doc.p + e->off, e->len), "value", &text) == 0);
	must(span_eq(buf_span(&text), want));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	auto_of(strings) struct strings *s = NULL;
	auto_of(strings) struct strings *again = NULL;
	auto_free struct strings_pair *pairs = NULL;
	auto_free struct buf *texts = NULL;
	auto_buf out = { 0 };

	if (strings_parse(span_of(data, size), "input", &s) < 0) {
		must(!s);
		return 0;
	}
	pairs = calloc(s->n + 1, sizeof(*pairs));
	texts = calloc(s->n + 1, sizeof(*texts));
	for (size_t i = 0; i < s->n; i++) {
		const struct strings_entry *e = &s->entries[i];

		must(e->off + e->len <= size);
		must(strings_text(span_of(data + e->off, e->len), "value", &texts[i]) == 0);
		must(texts[i].n == e->text_len);
		pairs[i] = (struct strings_pair){ e->name, buf_span(&texts[i]) };
	}
	if (strings_print(pairs, s->n, &out) == 0) {
		must(strings_parse(buf_span(&out), "printed", &again) == 0);
		must(again->n == s->n);
		for (size_t i = 0; i < s->n; i++)
			check_found(again, buf_span(&out), pairs[i].name, pairs[i].text);
	}
	for (size_t i = 0; i < s->n; i++)
		buf_release(&texts[i]);
	return 0;
}
