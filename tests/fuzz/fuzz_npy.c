/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_npy.c - heads of .npy files: what parses has sizes that fit, and written anew it says the
 * same.
 */
#include <string.h>

#include "handlers/format/npy.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct npy a, b;
	auto_buf head = { 0 };
	uint64_t n = 1;

	if (npy_parse(span_of(data, size), &a) != 1)
		return 0;
	must(a.data <= size && a.rank <= LIMIT_RANK && a.item > 0);
	for (unsigned i = 0; i < a.rank; i++)
		n *= a.shape[i];
	must(n * a.item == a.bytes);
	if (a.dtype == DTYPE_UNKNOWN)
		return 0;
	must(npy_header(&(struct array_type){ a.dtype, a.rank, a.shape }, &head) == 0 &&
	     head.n % 64 == 0);
	must(npy_parse(buf_span(&head), &b) == 1);
	must(b.dtype == a.dtype || b.dtype == DTYPE_UNKNOWN);
	must(b.data == head.n && b.bytes == a.bytes && b.rank == a.rank && !b.fortran);
	must(!memcmp(a.shape, b.shape, a.rank * sizeof(a.shape[0])));
	return 0;
}
