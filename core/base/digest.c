/* SPDX-License-Identifier: Apache-2.0 */
/*
 * digest.c - SHA-256 through libmd; base64 in both alphabets.
 */
#include "core/base/digest.h"

#include <sha2.h>

#include "core/base/err.h"

void sha256_parts(const struct span *parts, size_t n, uint8_t ret[32])
{
	SHA2_CTX ctx;

	SHA256Init(&ctx);
	for (size_t i = 0; i < n; i++)
		SHA256Update(&ctx, parts[i].p, parts[i].n);
	SHA256Final(ret, &ctx);
}

void sha256(struct span s, uint8_t ret[32])
{
	sha256_parts(&s, 1, ret);
}

struct sha256 {
	SHA2_CTX ctx;
};

int sha256_new(struct sha256 **ret)
{
	struct sha256 *s = malloc(sizeof(*s));

	if (!s)
		return fail(-ENOMEM, "cannot compute a SHA-256: not enough memory");
	SHA256Init(&s->ctx);
	*ret = s;
	return 0;
}

void sha256_add(struct sha256 *s, struct span piece)
{
	SHA256Update(&s->ctx, piece.p, piece.n);
}

void sha256_end(struct sha256 *s, uint8_t ret[32])
{
	SHA256Final(ret, &s->ctx);
}

void sha256_free(struct sha256 *s)
{
	free(s);
}

uint64_t hash64(struct span s, uint64_t seed)
{
	uint64_t h = 0xcbf29ce484222325 ^ seed;

	for (size_t i = 0; i < s.n; i++)
		h = (h ^ s.p[i]) * 0x100000001b3;
	return mix64(h);
}

#define LETTERS "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"

static const char *const letters[] = { [BASE64_STD] = LETTERS "+/", [BASE64_URL] = LETTERS "-_" };

int base64_put(struct buf *out, struct span s, enum base64_alphabet alphabet)
{
	int r = buf_reserve(out, s.n / 3 * 4 + 4);

	for (size_t i = 0; i < s.n && r >= 0; i += 3) {
		size_t n = MIN(s.n - i, (size_t)3);
		unsigned v = (unsigned)s.p[i] << 16 | (n > 1 ? (unsigned)s.p[i + 1] << 8 : 0) |
			     (n > 2 ? s.p[i + 2] : 0u);
		char four[4];

		for (unsigned k = 0; k < 4; k++)
			four[k] = k <= n ? letters[alphabet][v >> (18 - 6 * k) & 63] : '=';
		r = buf_add(out, four, 4);
	}
	return r;
}

int base64_get(struct buf *out, struct span text, enum base64_alphabet alphabet)
{
	size_t was = out->n;

	if (text.n % 4)
		return fail(-EUCLEAN, "base64 text of %zu characters is not padded", text.n);
	for (size_t i = 0; i < text.n; i += 4) {
		unsigned n = 4, v = 0;
		uint8_t bytes[3];
		int r;

		if (i + 4 == text.n)
			while (n > 2 && text.p[i + n - 1] == '=')
				n--;
		for (unsigned k = 0; k < 4; k++) {
			const char *at = k < n ? memchr(letters[alphabet], text.p[i + k], 64) :
						 letters[alphabet];

			if (!at) {
				out->n = was;
				return fail(-EUCLEAN, "base64 text has the byte %02x",
					    text.p[i + k]);
			}
			v = v << 6 | (unsigned)(at - letters[alphabet]);
		}
		for (unsigned k = 0; k < 3; k++)
			bytes[k] = (uint8_t)(v >> (16 - 8 * k));
		r = buf_add(out, bytes, n - 1);
		if (r < 0) {
			out->n = was;
			return r;
		}
	}
	return 0;
}
