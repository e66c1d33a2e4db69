/* SPDX-License-Identifier: Apache-2.0 */
/*
 * google_jwt.c - JSON Web Tokens of service accounts, by libcrypto.
 */
#include "core/remote/credentials/google_jwt.h"

#include <inttypes.h>
#include <openssl/evp.h>
#include <openssl/pem.h>

#include "core/base/digest.h"
#include "core/base/err.h"
#include "core/base/json.h"

#define LIFETIME 3600 /* seconds: the longest that Google accepts */

/* Without this callback libcrypto would ask for an encrypted key's password at the terminal. */
static int no_password(char *buf, int size, int is_writing, void *arg)
{
	return -1;
}

static int jwt_sign(const char *key_text, struct span text, struct buf *ret)
{
	BIO *from = BIO_new_mem_buf(key_text, -1);
	EVP_PKEY *key = from ? PEM_read_bio_PrivateKey(from, NULL, no_password, NULL) : NULL;
	EVP_MD_CTX *ctx = EVP_MD_CTX_new();
	bool is_key = key && EVP_PKEY_base_id(key) == EVP_PKEY_RSA;
	size_t n = 0;
	bool is_signed =
		is_key && ctx && EVP_DigestSignInit(ctx, NULL, EVP_sha256(), NULL, key) == 1 &&
		EVP_DigestSign(ctx, NULL, &n, text.p, text.n) == 1 && buf_reserve(ret, n) >= 0 &&
		EVP_DigestSign(ctx, ret->p, &n, text.p, text.n) == 1;

	EVP_MD_CTX_free(ctx);
	EVP_PKEY_free(key);
	BIO_free(from);
	if (!is_signed)
		return fail(-EINVAL, is_key ? "the private key does not sign" :
					      "the private key is not an RSA key in PEM");
	ret->n = n;
	return 0;
}

/* Base64url without padding. */
static void add_base64(struct buf *b, struct span s)
{
	base64_put(b, s, BASE64_URL);
	while (b->n && b->p[b->n - 1] == '=')
		b->n--;
}

int jws_rs256(const char *key_text, struct span header, struct span payload, struct buf *ret)
{
	auto_secret text = { 0 };
	auto_buf signature = { 0 };
	int r;

	add_base64(&text, header);
	buf_add_byte(&text, '.');
	add_base64(&text, payload);
	r = buf_failed(&text);
	if (r < 0)
		return r;
	r = jwt_sign(key_text, buf_span(&text), &signature);
	if (r < 0)
		return r;
	buf_add_byte(&text, '.');
	add_base64(&text, buf_span(&signature));
	r = buf_failed(&text);
	return r < 0 ? r : buf_add_span(ret, buf_span(&text));
}

/* Begin a JSON object with strings; NULL: it has no such member. */
static void jwt_add_members(struct buf *b, const char *const (*member)[2], size_t n)
{
	buf_add_byte(b, '{');
	for (size_t i = 0; i < n; i++)
		if (member[i][1]) {
			json_put_member(b, span_str(member[i][0]), JSON_COMPACT);
			json_put_str(b, span_str(member[i][1]), JSON_COMPACT);
		}
}

int google_assertion(const struct google_account *a, const char *scope, int64_t now,
		     struct buf *ret)
{
	const char *const of_header[][2] = { { "alg", "RS256" },
					     { "typ", "JWT" },
					     { "kid", a->key_id } };
	const char *const of_claims[][2] = { { "iss", a->email },
					     { "scope", scope },
					     { "aud", a->token_uri } };
	auto_buf header = { 0 }, claims = { 0 };

	jwt_add_members(&header, of_header, ARRAY_LEN(of_header));
	buf_add_byte(&header, '}');
	jwt_add_members(&claims, of_claims, ARRAY_LEN(of_claims));
	buf_addf(&claims, ",\"iat\":%" PRId64 ",\"exp\":%" PRId64 "}", now, now + LIFETIME);
	if (buf_failed(&header) || buf_failed(&claims))
		return -ENOMEM;
	return jws_rs256(a->private_key, buf_span(&header), buf_span(&claims), ret);
}
