/* SPDX-License-Identifier: Apache-2.0 */
/*
 * crc32c.c - the only file that uses ISA-L.
 *
 * crc32_iscsi() takes and returns the raw register, so both inversions are done here. It counts in
 * int, so long spans are passed in pieces.
 */
#include "core/base/crc32c.h"

#include <isa-l/crc.h>

#include "core/base/limits.h"

uint32_t crc32c_more(uint32_t crc, struct span s)
{
	unsigned reg = ~crc;

	while (s.n > 0) {
		size_t n = MIN(s.n, (size_t)(1 * GiB));

		/* The library's parameter lacks const, but it does not write. */
		reg = crc32_iscsi((unsigned char *)(uintptr_t)s.p, (int)n, reg);
		s = span_from(s, n);
	}
	return ~reg;
}

/*
 * Polynomials over GF(2), modulo that of the checksum. The highest bit is the coefficient of x^0.
 */
#define POLYNOMIAL 0x82f63b78u
#define ONE (1u << 31)
#define X_TO_8 (1u << 23)

static uint32_t times(uint32_t a, uint32_t b)
{
	uint32_t product = 0;

	for (uint32_t bit = ONE; bit; bit >>= 1) {
		if (a & bit)
			product ^= b;
		b = b & 1 ? (b >> 1) ^ POLYNOMIAL : b >> 1;
	}
	return product;
}

uint32_t crc32c_join(uint32_t a, uint32_t b, uint64_t n_b)
{
	uint32_t shift = ONE, square = X_TO_8;

	/* Appending n_b zero bytes to a multiplies its checksum by x^8, n_b times. */
	for (; n_b; n_b >>= 1) {
		if (n_b & 1)
			shift = times(shift, square);
		square = times(square, square);
	}
	return times(shift, a) ^ b;
}

uint32_t crc32c(struct span s)
{
	return crc32c_more(0, s);
}
