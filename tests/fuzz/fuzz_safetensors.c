/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_safetensors.c - heads of safetensors files: tensors of what parses tile the data, and each
 * has the bytes that its shape says; its names and shapes written anew parse, and say the same.
 */
#include <string.h>

#include "handlers/format/safetensors.h"
#include "tests/fuzz/fuzz.h"

static void check_tiles(const struct safetensors *st)
{
	uint64_t at = 0;

	for (size_t i = 0; i < st->n; i++) {
		const struct safetensor *t = &st->tensor[i];
		uint64_t n = t->array.dtype == DTYPE_UNKNOWN ? t->bytes :
							       dtype_info(t->array.dtype)->size;

		for (unsigned k = 0; k < t->array.rank && t->array.dtype != DTYPE_UNKNOWN; k++)
			n *= t->array.shape[k];
		must(t->begin == at && t->bytes == n);
		at += n;
	}
	must(at == st->bytes);
}

/* A header of ours has no types of less than a byte. */
static bool has_packed(const struct safetensors *st)
{
	for (size_t i = 0; i < st->n; i++)
		if (st->tensor[i].array.dtype == DTYPE_UNKNOWN)
			return true;
	return false;
}

static void check_again(const struct safetensors *st)
{
	struct st_tensor *t = calloc(st->n + 1, sizeof(*t));
	struct safetensors again = { 0 };
	auto_buf head = { 0 };

	must(t != NULL);
	for (size_t i = 0; i < st->n; i++)
		t[i] = (struct st_tensor){ .name = st->tensor[i].name,
					   .path = st->tensor[i].name,
					   .array = st->tensor[i].array,
					   .bytes = st->tensor[i].bytes };
	/* Names of ours are stricter: UTF-8, and none is __metadata__. */
	if (safetensors_header(t, st->n, NULL, 0, &head) >= 0) {
		must(safetensors_parse(buf_span(&head), &again) == 1);
		must(again.n == st->n && again.bytes == st->bytes && again.data == head.n);
		check_tiles(&again);
		safetensors_release(&again);
	}
	free(t);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct safetensors st = { 0 };

	if (safetensors_parse(span_of(data, size), &st) != 1)
		return 0;
	must(st.data <= size);
	check_tiles(&st);
	if (!has_packed(&st))
		check_again(&st);
	safetensors_release(&st);
	return 0;
}
