/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_digests.c - `.sha256sums`: what parses is found by name, and is the same when it was printed.
 */
#include "core/tree/digests.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	auto_of(digests) struct digests *d = NULL;
	auto_of(digests) struct digests *again = NULL;
	auto_buf out = { 0 };

	if (digests_parse(span_of(data, size), "input", &d) < 0) {
		must(!d);
		return 0;
	}
	for (size_t i = 0; i < d->n; i++) {
		must(digests_find(d, d->entry[i].name) == &d->entry[i]);
		must(digests_print(d->entry[i].name, d->entry[i].sha256, &out) == 0);
	}
	must(digests_parse(buf_span(&out), "printed", &again) == 0);
	must(again->n == d->n);
	for (size_t i = 0; i < d->n; i++) {
		must(span_eq(again->entry[i].name, d->entry[i].name));
		must(!memcmp(again->entry[i].sha256, d->entry[i].sha256, DIGEST_BYTES));
	}
	return 0;
}
