/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_sharding.c - `_sharding` and a single sharding's text: what parses, prints and parses again
 * to the same; boxes lie inside the array.
 */
#include "core/tree/sharding.h"
#include "tests/fuzz/fuzz.h"

static void check_boxes(const struct sharding *s)
{
	static const uint64_t shape[LIMIT_RANK] = { 720, 0, 64, 1 };

	for (unsigned rank = 0; rank <= 4; rank++) {
		if (sharding_check(s, shape, rank) < 0)
			continue;
		for (uint64_t i = 0; i < s->n_devices && i < 1000; i++) {
			struct sharding_box box;

			sharding_box(s, shape, rank, i, &box);
			must(box.replica < s->n_devices);
			for (unsigned d = 0; d < rank; d++)
				must(box.start[d] <= box.stop[d] && box.stop[d] <= shape[d]);
		}
	}
}

static void check_one(struct span in)
{
	auto_of(sharding) struct sharding *s = NULL;
	auto_of(sharding) struct sharding *again = NULL;
	auto_buf a = { 0 }, b = { 0 };

	if (sharding_parse(in, "input", &s) < 0)
		return;
	must(sharding_print(s, &a) == 0);
	must(sharding_parse(buf_span(&a), "printed", &again) == 0);
	must(sharding_print(again, &b) == 0);
	must(span_eq(buf_span(&a), buf_span(&b)));
	check_boxes(s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	auto_of(shardings) struct shardings *s = NULL;
	auto_of(shardings) struct shardings *again = NULL;
	auto_buf a = { 0 }, b = { 0 };

	check_one(span_of(data, size));
	if (shardings_parse(span_of(data, size), "input", &s) < 0) {
		must(!s);
		return 0;
	}
	for (size_t i = 0; i < s->n; i++)
		check_one(s->entries[i].text);
	must(shardings_print(s->entries, s->n, &a) == 0);
	must(shardings_parse(buf_span(&a), "printed", &again) == 0);
	must(shardings_print(again->entries, again->n, &b) == 0);
	must(again->n == s->n && span_eq(buf_span(&a), buf_span(&b)));
	return 0;
}
