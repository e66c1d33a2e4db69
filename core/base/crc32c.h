/* SPDX-License-Identifier: Apache-2.0 */
/*
 * crc32c.h - CRC-32C (Castagnoli), as OCDBT and the zarr v3 crc32c codec use it.
 */
#ifndef PYTREEFS_CRC32C_H
#define PYTREEFS_CRC32C_H

#include "core/base/buf.h"

/* crc32c("123456789") is e3069283. */
uint32_t crc32c(struct span s);
/* The checksum of a ‖ s, from the checksum of a; start with 0. */
uint32_t crc32c_more(uint32_t crc, struct span s);
/* The checksum of a ‖ b, from the checksums of a and of b, which has n_b bytes. */
uint32_t crc32c_join(uint32_t a, uint32_t b, uint64_t n_b);

#endif
