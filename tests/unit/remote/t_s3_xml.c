/* SPDX-License-Identifier: Apache-2.0 */
/*
 * t_s3_xml.c - pages of listings and errors as S3 and servers like it write them, and malformed
 * ones.
 */
#include "core/remote/documents/s3_xml.h"
#include "tests/unit/lib/unit.h"

#define BEGIN \
	"<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">"
#define END "</ListBucketResult>"

static int print(void *arg, struct span key, const struct io_object *o)
{
	return buf_addf(arg, "%.*s%s %llu %s %lld\n", SPAN_ARG(key), o->is_dir ? " dir" : "",
			(unsigned long long)o->size, o->tag, (long long)o->mtime.tv_sec);
}

static int parse(const char *text, struct buf *out, struct bucket_page *page)
{
	*page = (struct bucket_page){ 0 };
	return s3_parse_page(span_str(text), print, out, page);
}

static void check(const char *text, const char *want, bool truncated, const char *next)
{
	auto_buf out = { 0 };
	struct bucket_page page;

	assert_int_equal(parse(text, &out, &page), 0);
	assert_string_equal(buf_str(&out), want);
	assert_int_equal(page.is_truncated, truncated);
	assert_string_equal(buf_str(&page.next), next);
	buf_release(&page.next);
}

static void test_page(void **state)
{
	check(BEGIN
	      "<Name>b</Name><Prefix>run/</Prefix><KeyCount>3</KeyCount><IsTruncated>true</IsTruncated>"
	      "<NextContinuationToken>1ueG+/=</NextContinuationToken>\n"
	      "  <Contents><Key>run/_METADATA</Key><LastModified>1970-01-01T00:01:07.000Z</LastModified>"
	      "<ETag>&quot;ab-1&quot;</ETag><Size>18446744</Size><Owner><ID>x</ID></Owner></Contents>"
	      "<Contents><Size>0</Size><ETag>cd</ETag><Key>run/a&amp;b c</Key></Contents>"
	      "<CommonPrefixes><Prefix>run/d/</Prefix></CommonPrefixes>" END,
	      "run/_METADATA 18446744 \"ab-1\" 67\nrun/a&b c 0 \"cd\" 0\nrun/d/ dir 0  0\n", true,
	      "1ueG+/=");
	check(BEGIN "<IsTruncated>false</IsTruncated>" END, "", false, "");
}

static int print_upload(void *arg, struct span key, struct span id)
{
	return buf_addf(arg, "%.*s=%.*s\n", SPAN_ARG(key), SPAN_ARG(id));
}

static void test_uploads(void **state)
{
	auto_buf id = { 0 }, out = { 0 };
	bool is_truncated;

	assert_int_equal(
		s3_parse_upload(span_str("<InitiateMultipartUploadResult xmlns=\"x\"><Bucket>b"
					 "</Bucket><Key>run/a</Key><UploadId>2~a+/b=</UploadId>"
					 "</InitiateMultipartUploadResult>"),
				&id),
		0);
	assert_string_equal(buf_str(&id), "2~a+/b=");
	buf_clear(&id);
	assert_int_equal(s3_parse_upload(span_str("<Other><UploadId>x</UploadId></Other>"), &id),
			 -EUCLEAN);
	assert_int_equal(
		s3_parse_uploads(
			span_str(
				"<ListMultipartUploadsResult><Bucket>b</Bucket><KeyMarker/>"
				"<IsTruncated>true</IsTruncated><Upload><Key>run/a&amp;b</Key><Initiator>"
				"<ID>no</ID></Initiator><UploadId>1</UploadId></Upload><Upload><UploadId>2"
				"</UploadId><Key>c</Key></Upload><Upload><Key>without</Key></Upload>"
				"</ListMultipartUploadsResult>"),
			print_upload, &out, &is_truncated),
		0);
	assert_string_equal(buf_str(&out), "run/a&b=1\nc=2\n");
	assert_true(is_truncated);
	assert_int_equal(s3_parse_uploads(span_str("<ListBucketResult/>"), print_upload, &out,
					  &is_truncated),
			 -EUCLEAN);
}

/* Keys may have characters that XML cannot: they are escaped on request, and the element that says
 * so may be anywhere in the page. */
static void test_escaped(void **state)
{
	check(BEGIN "<Contents><Key>a%01%2Bb+c%C3%A9</Key><Size>1</Size></Contents>"
		    "<EncodingType>url</EncodingType>" END,
	      "a\001+b c\303\251 1  0\n", false, "");
	check(BEGIN "<Contents><Key>a%2Bb+c</Key><Size>1</Size></Contents>" END, "a%2Bb+c 1  0\n",
	      false, "");
}

static void refused(const char *text, const char *why)
{
	auto_buf out = { 0 };
	struct bucket_page page;

	assert_int_equal(parse(text, &out, &page), -EUCLEAN);
	if (!strstr(err_text(-EUCLEAN), why))
		fail_msg("'%s' is not in '%s'", why, err_text(-EUCLEAN));
	buf_release(&page.next);
}

static void test_malformed(void **state)
{
	refused("", "no element found");
	refused("{}", "line 1: ");
	refused(BEGIN, "line 2: ");
	refused("<html></html>", "it is not a listing: '/html'");
	refused("<!DOCTYPE a [<!ENTITY b \"c\">]>" END, "it has a document type");
	refused(BEGIN "<Contents><Size>1</Size></Contents>" END,
		"an entry without a key and a size");
	refused(BEGIN "<Contents><Key>k</Key></Contents>" END,
		"an entry without a key and a size: 'k'");
	refused(BEGIN "<Contents><Key>k</Key><Size>-1</Size></Contents>" END, "not a number: '-1'");
	refused(BEGIN "<Contents><Key>k</Key><Size>99999999999999999999</Size></Contents>" END,
		"not a number");
	refused(BEGIN "<Contents><LastModified>now</LastModified></Contents>" END,
		"a time that is not one");
	refused(BEGIN "<IsTruncated>true</IsTruncated>" END, "has no token");
	refused(BEGIN
		"<EncodingType>url</EncodingType><Contents><Key>a%2</Key><Size>1</Size></Contents>" END,
		"an entry without");
	refused("<a><a><a><a><a><a><a><a><a><a><a><a><a><a><a><a><a>", "nested too deeply");
}

static void test_error(void **state)
{
	struct s3_error e;

	s3_parse_error(
		span_str(
			"<?xml version=\"1.0\"?><Error><Code>PermanentRedirect</Code><Message>m</Message>"
			"<Region>eu-west-1</Region></Error>"),
		&e);
	assert_string_equal(e.code, "PermanentRedirect");
	assert_string_equal(e.region, "eu-west-1");
	/* A truncated document yields the values before its end. */
	s3_parse_error(
		span_str("<Error><Code>RequestTimeTooSkewed</Code><ServerTime>2026-01-02T03:04:05Z"
			 "</ServerTime><Mess"),
		&e);
	assert_string_equal(e.code, "RequestTimeTooSkewed");
	assert_string_equal(e.time, "2026-01-02T03:04:05Z");
	s3_parse_error(span_str("<Error><Code>a b\033[1m</Code><Region>\n</Region></Error>"), &e);
	assert_string_equal(e.code, "");
	assert_string_equal(e.region, "");
	s3_parse_error(span_str("no"), &e);
	assert_string_equal(e.code, "");
}

#define KEYS "<AssumeRoleWithWebIdentityResponse><AssumeRoleWithWebIdentityResult><Credentials>"
#define KEYS_END \
	"</Credentials></AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>"

static void test_keys(void **state)
{
	struct sts_keys k = { 0 };

	assert_int_equal(
		sts_parse_keys(span_str(KEYS
					"<AccessKeyId>A</AccessKeyId><SecretAccessKey>b/+="
					"</SecretAccessKey><SessionToken>c</SessionToken>"
					"<Expiration>1970-01-01T00:01:00Z</Expiration>" KEYS_END),
			       &k),
		0);
	assert_string_equal(buf_str(&k.id), "A");
	assert_string_equal(buf_str(&k.secret), "b/+=");
	assert_string_equal(buf_str(&k.token), "c");
	assert_int_equal(k.expires, 60);
	sts_keys_release(&k);
	assert_int_equal(sts_parse_keys(span_str(KEYS "<AccessKeyId>A</AccessKeyId>" KEYS_END), &k),
			 -EUCLEAN);
	assert_string_equal(err_text(-EUCLEAN), "the answer has no keys");
	assert_int_equal(
		sts_parse_keys(span_str(KEYS "<SecretAccessKey>se cret</SecretAccessKey>" KEYS_END),
			       &k),
		-EUCLEAN);
	assert_null(strstr(err_text(-EUCLEAN), "cret"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_page),    cmocka_unit_test(test_uploads),
		cmocka_unit_test(test_escaped), cmocka_unit_test(test_malformed),
		cmocka_unit_test(test_error),   cmocka_unit_test(test_keys),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
