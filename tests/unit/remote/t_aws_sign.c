/* SPDX-License-Identifier: Apache-2.0 */
/*
 * t_aws_sign.c - signatures that AWS publishes: the examples of S3's manual, and vectors of its
 * suite.
 */
#include "core/remote/credentials/aws_sign.h"
#include "tests/unit/lib/unit.h"

#define S3_HOST "examplebucket.s3.amazonaws.com"
#define S3_TIME "20130524T000000Z"

static void check(const struct aws_request *q, const char *want)
{
	auto_buf got = { 0 };

	assert_int_equal(aws_authorization(q, &got), 0);
	assert_string_equal(buf_str(&got), want);
}

static struct aws_request s3(const struct aws_header *header, size_t n)
{
	return (struct aws_request){ .method = "GET",
				     .path = "/",
				     .query = "",
				     .header = header,
				     .n_headers = n,
				     .body_hash = AWS_EMPTY,
				     .time = S3_TIME,
				     .region = "us-east-1",
				     .service = "s3",
				     .key_id = "AKIAIOSFODNN7EXAMPLE",
				     .secret = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY" };
}

#define S3_SIGNED                                                                               \
	"AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request, " \
	"SignedHeaders="

static void test_range_of_an_object(void **state)
{
	const struct aws_header header[] = { { "host", S3_HOST },
					     { "range", "bytes=0-9" },
					     { "x-amz-content-sha256", AWS_EMPTY },
					     { "x-amz-date", S3_TIME } };
	struct aws_request q = s3(header, 4);

	q.path = "/test.txt";
	check(&q, S3_SIGNED "host;range;x-amz-content-sha256;x-amz-date, Signature="
			    "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41");
}

static const struct aws_header plain[] = { { "host", S3_HOST },
					   { "x-amz-content-sha256", AWS_EMPTY },
					   { "x-amz-date", S3_TIME } };

static void test_listing(void **state)
{
	struct aws_request q = s3(plain, 3);

	q.query = "max-keys=2&prefix=J";
	check(&q, S3_SIGNED "host;x-amz-content-sha256;x-amz-date, Signature="
			    "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7");
}

static void test_parameter_without_a_value(void **state)
{
	struct aws_request q = s3(plain, 3);

	q.query = "lifecycle=";
	check(&q, S3_SIGNED "host;x-amz-content-sha256;x-amz-date, Signature="
			    "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543");
}

/* "get-vanilla" of the suite: another service, and a secret with a plus. */
static void test_suite(void **state)
{
	const struct aws_header header[] = { { "host", "example.amazonaws.com" },
					     { "x-amz-date", "20150830T123600Z" } };
	struct aws_request q = { .method = "GET",
				 .path = "/",
				 .query = "",
				 .header = header,
				 .n_headers = 2,
				 .body_hash = AWS_EMPTY,
				 .time = "20150830T123600Z",
				 .region = "us-east-1",
				 .service = "service",
				 .key_id = "AKIDEXAMPLE",
				 .secret = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY" };

	check(&q,
	      "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request, "
	      "SignedHeaders=host;x-amz-date, Signature="
	      "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31");
}

static void test_time(void **state)
{
	char text[AWS_TIME_MAX];

	aws_time(1369353600, text);
	assert_string_equal(text, S3_TIME);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_range_of_an_object),
		cmocka_unit_test(test_listing),
		cmocka_unit_test(test_parameter_without_a_value),
		cmocka_unit_test(test_suite),
		cmocka_unit_test(test_time),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
