/*
 * digest.h - SHA-256 and base64, for names and text forms.
 */
#ifndef PYTREEFS_DIGEST_H
#define PYTREEFS_DIGEST_H

#include "core/base/buf.h"

void sha256(struct span s, uint8_t ret[32]);
/* The same of n pieces, one behind the other. */
void sha256_parts(const struct span *parts, size_t n, uint8_t ret[32]);
/* 64-bit hash of bytes, stable across processes and machines (FNV-1a, finished by a mixer). */
uint64_t hash64(struct span s, uint64_t seed);

enum base64_alphabet { BASE64_STD, BASE64_URL };

/* With '=' padding. */
int base64_put(struct buf *out, struct span s, enum base64_alphabet alphabet);
/* Appends the decoded bytes; -EUCLEAN when text is not padded base64 of the alphabet. */
int base64_get(struct buf *out, struct span text, enum base64_alphabet alphabet);

#endif
