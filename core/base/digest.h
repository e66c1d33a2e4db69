/* SPDX-License-Identifier: Apache-2.0 */
/*
 * digest.h - SHA-256, base64 and 64-bit hashes.
 */
#ifndef PYTREEFS_DIGEST_H
#define PYTREEFS_DIGEST_H

#include "core/base/buf.h"

void sha256(struct span s, uint8_t ret[32]);
/* The digest of the concatenation of n pieces. */
void sha256_parts(const struct span *parts, size_t n, uint8_t ret[32]);
/* The same for pieces that arrive one by one. */
struct sha256;
int sha256_new(struct sha256 **ret);
void sha256_add(struct sha256 *s, struct span piece);
/* The digest of all pieces so far. Nothing may be added afterwards. */
void sha256_end(struct sha256 *s, uint8_t ret[32]);
/* Accepts NULL. */
void sha256_free(struct sha256 *s);
DEFINE_AUTO(sha256, struct sha256, sha256_free);
/*
 * A 64-bit hash that is the same in all processes and on all machines (FNV-1a and a final mixer).
 */
uint64_t hash64(struct span s, uint64_t seed);
/* Scatter a number over all 64 bits; a bijection. */
static inline uint64_t mix64(uint64_t h)
{
	h = (h ^ h >> 33) * 0xff51afd7ed558ccd;
	h = (h ^ h >> 33) * 0xc4ceb9fe1a85ec53;
	return h ^ h >> 33;
}

enum base64_alphabet { BASE64_STD, BASE64_URL };

/* Append the base64 text of s, with '=' padding. */
int base64_put(struct buf *out, struct span s, enum base64_alphabet alphabet);
/* Append the decoded bytes; -EUCLEAN when text is not padded base64 of the alphabet. */
int base64_get(struct buf *out, struct span text, enum base64_alphabet alphabet);

#endif
