/* SPDX-License-Identifier: Apache-2.0 */
/*
 * t_google_jwt.c - tokens of service accounts: RFC 7515's example, and a key that is made here; the
 * files of Google's tools, and the answers of token endpoints.
 */
#include <openssl/core_names.h>
#include <openssl/param_build.h>
#include <openssl/pem.h>
#include <openssl/rsa.h>

#include "core/base/digest.h"
#include "core/remote/credentials/google_jwt.h"
#include "tests/unit/lib/unit.h"

/* Decode base64url without padding, as in JSON Web Keys and tokens. */
static void decode(struct span text, struct buf *ret)
{
	auto_buf padded = { 0 };

	assert_int_equal(buf_add_span(&padded, text), 0);
	while (padded.n % 4)
		assert_int_equal(buf_add_byte(&padded, '='), 0);
	assert_int_equal(base64_get(ret, buf_span(&padded), BASE64_URL), 0);
}

static char *pem_of(EVP_PKEY *key)
{
	BIO *out = BIO_new(BIO_s_mem());
	char *at = NULL, *ret;
	long n;

	assert_int_equal(PEM_write_bio_PKCS8PrivateKey(out, key, NULL, NULL, 0, NULL, NULL), 1);
	n = BIO_get_mem_data(out, &at);
	ret = span_dup_str(span_of(at, (size_t)n));
	BIO_free(out);
	return ret;
}

/* Appendix A.2: the key as a JSON Web Key. */
static const struct {
	const char *name, *value;
} rfc_key[] = {
	{ OSSL_PKEY_PARAM_RSA_N,
	  "ofgWCuLjybRlzo0tZWJjNiuSfb4p4fAkd_wWJcyQoTbji9k0l8W26mPddxHmfHQp-Vaw-4qPCJrcS2mJPMEzP1Pt0Bm4d4QlL-"
	  "yRT-SFd2lZS-pCgNMsD1W_YpRPEwOWvG6b32690r2jZ47soMZo9wGzjb_7OMg0LOL-bSf63kpaSHSXndS5z5rexMdbBYUsLA9e-"
	  "KXBdQOS-UTo7WTBEMa2R2CapHg665xsmtdVMTBQY4uDZlxvb3qCo5ZwKh9kG4LT6_I5IhlJH7aGhyxXFvUK-DWNmoudF8NAco9_"
	  "h9iaGNj8q2ethFkMLs91kzk2PAcDTW9gb54h4FRWyuXpoQ" },
	{ OSSL_PKEY_PARAM_RSA_E, "AQAB" },
	{ OSSL_PKEY_PARAM_RSA_D,
	  "Eq5xpGnNCivDflJsRQBXHx1hdR1k6Ulwe2JZD50LpXyWPEAeP88vLNO97IjlA7_GQ5sLKMgvfTeXZx9SE-7YwVol2NXOoAJe46su"
	  "i395IW_GO-pWJ1O0BkTGoVEn2bKVRUCgu-GjBVaYLU6f3l9kJfFNS3E0QbVdxzubSu3Mkqzjkn439X0M_V51gfpRLI9JYanrC4D4"
	  "qAdGcopV_0ZHHzQlBjudU2QvXt4ehNYTCBr6XCLQUShb1juUO1ZdiYoFaFQT5Tw8bGUl_x_jTj3ccPDVZFD9pIuhLhBOneufuBiB"
	  "4cS98l2SR_RQyGWSeWjnczT0QU91p1DhOVRuOopznQ" },
	{ OSSL_PKEY_PARAM_RSA_FACTOR1,
	  "4BzEEOtIpmVdVEZNCqS7baC4crd0pqnRH_5IB3jw3bcxGn6QLvnEtfdUdiYrqBdss1l58BQ3KhooKeQTa9AB0Hw_Py5PJdTJNPY8"
	  "cQn7ouZ2KKDcmnPGBY5t7yLc1QlQ5xHdwW1VhvKn-nXqhJTBgIPgtldC-KDV5z-y2XDwGUc" },
	{ OSSL_PKEY_PARAM_RSA_FACTOR2,
	  "uQPEfgmVtjL0Uyyx88GZFF1fOunH3-7cepKmtH4pxhtCoHqpWmT8YAmZxaewHgHAjLYsp1ZSe7zFYHj7C6ul7TjeLQeZD_YwD66t"
	  "62wDmpe_HlB-TnBA-njbglfIsRLtXlnDzQkv5dTltRJ11BKBBypeeF6689rjcJIDEz9RWdc" },
	{ OSSL_PKEY_PARAM_RSA_EXPONENT1,
	  "BwKfV3Akq5_MFZDFZCnW-wzl-CCo83WoZvnLQwCTeDv8uzluRSnm71I3QCLdhrqE2e9YkxvuxdBfpT_PI7Yz-FOKnu1R6HsJeDCj"
	  "n12Sk3vmAktV2zb34MCdy7cpdTh_YVr7tss2u6vneTwrA86rZtu5Mbr1C1XsmvkxHQAdYo0" },
	{ OSSL_PKEY_PARAM_RSA_EXPONENT2,
	  "h_96-mK1R_7glhsum81dZxjTnYynPbZpHziZjeeHcXYsXaaMwkOlODsWa7I9xXDoRwbKgB719rrmI2oKr6N3Do9U0ajaHF-NKJnw"
	  "gjMd2w9cjz3_-kyNlxAr2v4IKhGNpmM5iIgOS1VZnOZ68m6_pbLBSp3nssTdlqvd0tIiTHU" },
	{ OSSL_PKEY_PARAM_RSA_COEFFICIENT1,
	  "IYd7DHOhrWvxkwPQsRM2tOgrjbcrfvtQJipd-DlcxyVuuM9sQLdgjVk2oy26F0EmpScGLq2MowX7fhd_QJQ3ydy5cY7YIBi87w93"
	  "IKLEdfnbJtoOPLUW0ITrJReOgo1cq9SbsxYawBgfp_gh6A5603k2-ZQwVK0JKSHuLFkuQ3U" },
};
static const char rfc_token[] =
	"eyJhbGciOiJSUzI1NiJ9."
	"eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ."
	"cC4hiUPoj9Eetdgtv3hF80EGrhuB__dzERat0XF9g2VtQgr9PJbu3XOiZj5RZmh7AAuHIm4Bh-0Qc_lF5YKt_O8W2Fp5jujGbds9"
	"uJdbF9CUAr7t1dnZcAcQjbKBYNX4BAynRFdiuB--f_nZLgrnbyTyWzO75vRK5h6xBArLIARNPvkSjtQBMHlb1L07Qe7K0GarZRmB"
	"_eSN9383LcOLn6_dO--xi12jzDwusC-eOkHWEsqtFZESc6BfI7noOPqvhJ1phCnvWh6IeYI2w9QOYEUipUTI8np6LbgGY9Fs98rq"
	"Vt5AXLIhWkWywlVmtVrBp0igcN_IoypGlUPQGe77Rw";

static EVP_PKEY *make_rfc_key(void)
{
	OSSL_PARAM_BLD *b = OSSL_PARAM_BLD_new();
	EVP_PKEY_CTX *ctx = EVP_PKEY_CTX_new_from_name(NULL, "RSA", NULL);
	BIGNUM *number[ARRAY_LEN(rfc_key)];
	EVP_PKEY *key = NULL;
	OSSL_PARAM *params;

	for (size_t i = 0; i < ARRAY_LEN(rfc_key); i++) {
		auto_buf bytes = { 0 };

		decode(span_str(rfc_key[i].value), &bytes);
		number[i] = BN_bin2bn(bytes.p, (int)bytes.n, NULL);
		assert_int_equal(OSSL_PARAM_BLD_push_BN(b, rfc_key[i].name, number[i]), 1);
	}
	params = OSSL_PARAM_BLD_to_param(b);
	assert_int_equal(EVP_PKEY_fromdata_init(ctx), 1);
	assert_int_equal(EVP_PKEY_fromdata(ctx, &key, EVP_PKEY_KEYPAIR, params), 1);
	for (size_t i = 0; i < ARRAY_LEN(number); i++)
		BN_free(number[i]);
	OSSL_PARAM_free(params);
	OSSL_PARAM_BLD_free(b);
	EVP_PKEY_CTX_free(ctx);
	return key;
}

/* The signature equals the RFC's, since PKCS #1 version 1.5 uses no random bytes. */
static void test_rfc_7515(void **state)
{
	EVP_PKEY *key = make_rfc_key();
	auto_free char *pem = pem_of(key);
	auto_buf got = { 0 };

	assert_int_equal(jws_rs256(pem, span_str("{\"alg\":\"RS256\"}"),
				   span_str("{\"iss\":\"joe\",\r\n \"exp\":1300819380,\r\n "
					    "\"http://example.com/is_root\":true}"),
				   &got),
			 0);
	assert_string_equal(buf_str(&got), rfc_token);
	EVP_PKEY_free(key);
}

static void verify(EVP_PKEY *key, const char *token)
{
	const char *dot = strrchr(token, '.');
	EVP_MD_CTX *ctx = EVP_MD_CTX_new();
	auto_buf signature = { 0 };

	decode(span_str(dot + 1), &signature);
	assert_int_equal(EVP_DigestVerifyInit(ctx, NULL, EVP_sha256(), NULL, key), 1);
	assert_int_equal(EVP_DigestVerify(ctx, signature.p, signature.n, (const uint8_t *)token,
					  (size_t)(dot - token)),
			 1);
	EVP_MD_CTX_free(ctx);
}

static void test_assertion(void **state)
{
	EVP_PKEY *key = EVP_RSA_gen(2048);
	auto_free char *pem = pem_of(key);
	char email[] = "a\"b@c", uri[] = "https://h/token", id[] = "7";
	struct google_account a = {
		.email = email, .private_key = pem, .key_id = id, .token_uri = uri
	};
	auto_buf token = { 0 }, header = { 0 }, claims = { 0 };
	const char *first, *second;

	assert_int_equal(google_assertion(&a, "read only", 100, &token), 0);
	verify(key, buf_str(&token));
	first = strchr(buf_str(&token), '.');
	second = strchr(first + 1, '.');
	decode(span_of(token.p, (size_t)(first - buf_str(&token))), &header);
	decode(span_of(first + 1, (size_t)(second - first) - 1), &claims);
	assert_string_equal(buf_str(&header), "{\"alg\":\"RS256\",\"typ\":\"JWT\",\"kid\":\"7\"}");
	assert_string_equal(
		buf_str(&claims),
		"{\"iss\":\"a\\\"b@c\",\"scope\":\"read only\",\"aud\":\"https://h/token\","
		"\"iat\":100,\"exp\":3700}");
	EVP_PKEY_free(key);
}

/* An encrypted key is refused without a prompt at the terminal, and so is a key of another kind. */
static void test_keys_that_are_refused(void **state)
{
	static const char encrypted[] = "-----BEGIN ENCRYPTED PRIVATE KEY-----\nMAA=\n"
					"-----END ENCRYPTED PRIVATE KEY-----\n";
	EVP_PKEY *other = EVP_EC_gen("P-256");
	auto_free char *pem = pem_of(other);
	const char *const bad[] = { "", "secret", encrypted, pem };
	auto_buf got = { 0 };

	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		int r = jws_rs256(bad[i], span_str("{}"), span_str("{}"), &got);

		assert_int_equal(r, -EINVAL);
		assert_string_equal(err_text(r), "the private key is not an RSA key in PEM");
	}
	assert_int_equal(got.n, 0);
	EVP_PKEY_free(other);
}

static void test_accounts(void **state)
{
	struct google_account a;

	assert_int_equal(
		google_account_parse(span_str("{\"type\":\"service_account\",\"project_id\":\"p\","
					      "\"private_key\":\"a\\nb\",\"client_email\":\"e\"}"),
				     "file", &a),
		0);
	assert_int_equal(a.kind, GOOGLE_SERVICE_ACCOUNT);
	assert_string_equal(a.private_key, "a\nb");
	assert_string_equal(a.token_uri, "https://oauth2.googleapis.com/token");
	assert_null(a.key_id);
	google_account_release(&a);
	assert_int_equal(google_account_parse(
				 span_str("{\"client_id\":\"i\",\"client_secret\":\"s\","
					  "\"refresh_token\":\"r\",\"type\":\"authorized_user\","
					  "\"token_uri\":\"https://h\"}"),
				 "file", &a),
			 0);
	assert_int_equal(a.kind, GOOGLE_AUTHORIZED_USER);
	assert_string_equal(a.token_uri, "https://h");
	google_account_release(&a);
}

static void test_tokens(void **state)
{
	static const char *const bad[] = { "",
					   "{}",
					   "{\"access_token\":\"sec ret\"}",
					   "{\"access_token\":\"sec\\nret\"}",
					   "{\"access_token\":7}",
					   "{\"access_token\":\"secret\"" };
	struct credentials k = { 0 };

	assert_int_equal(
		google_token_parse(span_str("{\"access_token\":\"ya29.a\",\"expires_in\":3599,"
					    "\"token_type\":\"Bearer\"}"),
				   "it", 1000, &k),
		0);
	assert_string_equal(k.token, "ya29.a");
	assert_int_equal(k.expires, 4599);
	credentials_release(&k);
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		int r = google_token_parse(span_str(bad[i]), "it", 1000, &k);

		assert_int_equal(r, -EUCLEAN);
		assert_null(strstr(err_text(r), "sec"));
		assert_null(k.token);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_rfc_7515),
		cmocka_unit_test(test_assertion),
		cmocka_unit_test(test_keys_that_are_refused),
		cmocka_unit_test(test_accounts),
		cmocka_unit_test(test_tokens),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
