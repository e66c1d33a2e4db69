/* SPDX-License-Identifier: Apache-2.0 */
/*
 * crc32c.c - the one door to ISA-L.
 *
 * crc32_iscsi() takes and gives the register itself, so both inversions are ours; it counts in
 * int, so long spans go in pieces.
 */
#include "core/base/crc32c.h"

#include <isa-l/crc.h>

#include "core/base/limits.h"

uint32_t crc32c_more(uint32_t crc, struct span s)
{
	unsigned reg = ~crc;

	while (s.n > 0) {
		size_t n = MIN(s.n, (size_t)(1 * GiB));

		/* The library's parameter lacks const; it does not write. */
		reg = crc32_iscsi((unsigned char *)(uintptr_t)s.p, (int)n, reg);
		s = span_from(s, n);
	}
	return ~reg;
}

uint32_t crc32c(struct span s)
{
	return crc32c_more(0, s);
}
