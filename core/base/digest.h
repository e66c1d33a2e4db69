/* SPDX-License-Identifier: Apache-2.0 */
/*
 * digest.h - SHA-256 and base64, for names and text forms.
 */
#ifndef PYTREEFS_DIGEST_H
#define PYTREEFS_DIGEST_H

#include "core/base/buf.h"

void sha256(struct span s, uint8_t ret[32]);
/* The same of n pieces, one after the other. */
void sha256_parts(const struct span *parts, size_t n, uint8_t ret[32]);
/* The same, piece by piece. */
struct sha256;
int sha256_new(struct sha256 **ret);
void sha256_add(struct sha256 *s, struct span piece);
/* Of all pieces so far; nothing may be added afterwards. */
void sha256_end(struct sha256 *s, uint8_t ret[32]);
/* Accepts NULL. */
void sha256_free(struct sha256 *s);
DEFINE_AUTO(sha256, struct sha256, sha256_free);
/* 64-bit hash of bytes, stable across processes and machines (FNV-1a, finished by a mixer). */
uint64_t hash64(struct span s, uint64_t seed);
/* Scatters a number over all 64 bits. No two numbers have the same result. */
static inline uint64_t mix64(uint64_t h)
{
	h = (h ^ h >> 33) * 0xff51afd7ed558ccd;
	h = (h ^ h >> 33) * 0xc4ceb9fe1a85ec53;
	return h ^ h >> 33;
}

enum base64_alphabet { BASE64_STD, BASE64_URL };

/* With '=' padding. */
int base64_put(struct buf *out, struct span s, enum base64_alphabet alphabet);
/* Appends the decoded bytes; -EUCLEAN when text is not padded base64 of the alphabet. */
int base64_get(struct buf *out, struct span text, enum base64_alphabet alphabet);

#endif
