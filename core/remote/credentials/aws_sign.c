/* SPDX-License-Identifier: Apache-2.0 */
/*
 * aws_sign.c - AWS Signature Version 4.
 *
 * The signed parts of the request are put into one text and hashed. The hash, the time and the
 * scope are signed with a key that is derived from the secret for that day, region and service.
 */
#include "core/remote/credentials/aws_sign.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdio.h>

#include "core/base/digest.h"
#include "core/base/err.h"

#define HASH 32
#define DAY 8 /* the first characters of a time are its day */

void aws_time(time_t t, char ret[AWS_TIME_MAX])
{
	struct tm tm;

	gmtime_r(&t, &tm);
	strftime(ret, AWS_TIME_MAX, "%Y%m%dT%H%M%SZ", &tm);
}

int aws_body_hash(struct span body, char ret[AWS_HASH_MAX])
{
	uint8_t hash[HASH];

	if (EVP_Digest(body.p, body.n, hash, NULL, EVP_sha256(), NULL) != 1)
		return fail(-ENOMEM, "cannot sign a request");
	hex_text(span_of(hash, HASH), ret);
	return 0;
}

static int hmac(const void *key, size_t n, struct span text, uint8_t ret[HASH])
{
	unsigned len = HASH;

	return HMAC(EVP_sha256(), key, (int)n, text.p, text.n, ret, &len) ?
		       0 :
		       fail(-ENOMEM, "cannot sign a request");
}

static int aws_sign_text(const struct aws_request *q, struct span text, uint8_t ret[HASH])
{
	const struct span step[] = { span_of(q->time, DAY), span_str(q->region),
				     span_str(q->service), span_str("aws4_request"), text };
	auto_free char *secret = str_fmt("AWS4%s", q->secret);
	int r = secret ? hmac(secret, strlen(secret), step[0], ret) :
			 fail(-ENOMEM, "cannot sign a request");

	for (size_t i = 1; i < ARRAY_LEN(step) && r >= 0; i++) {
		uint8_t key[HASH];

		memcpy(key, ret, HASH);
		r = hmac(key, HASH, step[i], ret);
		explicit_bzero(key, HASH);
	}
	if (secret)
		explicit_bzero(secret, strlen(secret));
	return r;
}

int aws_authorization(const struct aws_request *q, struct buf *ret)
{
	auto_free char *scope =
		str_fmt("%.*s/%s/%s/aws4_request", DAY, q->time, q->region, q->service);
	auto_buf canonical = { 0 }, names = { 0 }, text = { 0 };
	uint8_t hash[HASH];
	char hex[2 * HASH + 1];
	int r;

	buf_addf(&canonical, "%s\n%s\n%s\n", q->method, q->path, q->query);
	for (size_t i = 0; i < q->n_headers; i++) {
		buf_addf(&canonical, "%s:%s\n", q->header[i].name, q->header[i].value);
		buf_addf(&names, "%s%s", i ? ";" : "", q->header[i].name);
	}
	buf_addf(&canonical, "\n%.*s\n%s", SPAN_ARG(buf_span(&names)), q->body_hash);
	sha256(buf_span(&canonical), hash);
	hex_text(span_of(hash, HASH), hex);
	buf_addf(&text, "AWS4-HMAC-SHA256\n%s\n%s\n%s", q->time, scope ? scope : "", hex);
	if (!scope || buf_failed(&names) || buf_failed(&canonical) || buf_failed(&text))
		return fail(-ENOMEM, "cannot sign a request");
	r = aws_sign_text(q, buf_span(&text), hash);
	if (r < 0)
		return r;
	hex_text(span_of(hash, HASH), hex);
	return buf_addf(ret, "AWS4-HMAC-SHA256 Credential=%s/%s, SignedHeaders=%.*s, Signature=%s",
			q->key_id, scope, SPAN_ARG(buf_span(&names)), hex);
}
