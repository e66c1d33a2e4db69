/* SPDX-License-Identifier: Apache-2.0 */
/*
 * t_s3_place.c - the https URL of a bucket of S3.
 */
#include "core/remote/dialects/s3_place.h"
#include "tests/unit/lib/unit.h"

static void check(const char *url, const struct url_store_opts *opts, const char *endpoint,
		  const char *region, const char *want)
{
	struct s3_place p = { 0 };
	auto_free char *got = NULL;

	assert_int_equal(s3_place(url, opts, endpoint, region, &p), 0);
	got = str_fmt("%s %s %s %s", p.url, p.host, p.region, p.prefix);
	assert_string_equal(got, want);
	s3_place_release(&p);
}

static void test_amazon(void **state)
{
	const struct url_store_opts none = { 0 };
	const struct url_store_opts path = { .addressing = URL_ADDRESSING_PATH };
	const struct url_store_opts region = { .region = "eu-west-1" };

	check("s3://bkt/run/7/", &none, NULL, NULL,
	      "https://bkt.s3.us-east-1.amazonaws.com bkt.s3.us-east-1.amazonaws.com us-east-1 run/7");
	check("s3://bkt", &region, NULL, "us-west-2",
	      "https://bkt.s3.eu-west-1.amazonaws.com bkt.s3.eu-west-1.amazonaws.com eu-west-1 ");
	check("s3://bkt/", &none, NULL, "cn-north-1",
	      "https://bkt.s3.cn-north-1.amazonaws.com.cn bkt.s3.cn-north-1.amazonaws.com.cn cn-north-1 ");
	check("s3://bkt/a b", &path, NULL, NULL,
	      "https://s3.us-east-1.amazonaws.com/bkt s3.us-east-1.amazonaws.com us-east-1 a b");
	/* The certificate allows only one label before the host, so a name with a dot is in the
	 * path. */
	check("s3://my.Bkt_1/a", &none, NULL, NULL,
	      "https://s3.us-east-1.amazonaws.com/my.Bkt_1 s3.us-east-1.amazonaws.com us-east-1 a");
}

static void test_endpoints(void **state)
{
	const struct url_store_opts none = { 0 };
	const struct url_store_opts own = { .endpoint = "https://Obj.Example.Org:443/" };
	const struct url_store_opts virtual = { .addressing = URL_ADDRESSING_VIRTUAL };

	check("s3://bkt/a", &none, "http://127.0.0.1:9000", "auto",
	      "http://127.0.0.1:9000/bkt 127.0.0.1:9000 auto a");
	check("s3://bkt/a", &own, "http://127.0.0.1:9000", NULL,
	      "https://obj.example.org/bkt obj.example.org us-east-1 a");
	check("s3://bkt/a", &virtual, "https://cwobject.com", NULL,
	      "https://bkt.cwobject.com bkt.cwobject.com us-east-1 a");
	check("s3://bkt/a", &none, "http://host:80/storage/s3/", NULL,
	      "http://host/storage/s3/bkt host us-east-1 a");
}

static void refused(const char *url, const char *endpoint, const char *region, const char *why)
{
	const struct url_store_opts none = { 0 };
	struct s3_place p = { 0 };

	assert_int_equal(s3_place(url, &none, endpoint, region, &p), -EINVAL);
	s3_place_release(&p);
	if (!strstr(err_text(-EINVAL), why) || strstr(err_text(-EINVAL), "secret"))
		fail_msg("'%s' is not in '%s'", why, err_text(-EINVAL));
}

static void test_refused(void **state)
{
	refused("s3://", NULL, NULL, "has no name of a bucket");
	refused("s3:///a", NULL, NULL, "has no name of a bucket");
	refused("s3://a:secret@b/c", NULL, NULL, "a bucket has letters");
	refused("s3://b/a/../c", NULL, NULL, "has '..' as a part");
	refused("s3://b/./c", NULL, NULL, "has '.' as a part");
	refused("s3://b/a//c", NULL, NULL, "has '' as a part");
	refused("s3://b/c", "host", NULL, "is not a URL");
	refused("s3://b/c", "https://", NULL, "is not a URL");
	refused("s3://b/c", "https://host/?a", NULL, "is not a URL");
	refused("s3://b/c", "https://host\r\nX: y", NULL, "is not a URL");
	refused("s3://b/c", "https://a:secret@host", NULL, "is not taken");
	refused("s3://b/c", NULL, "evil.org/", "is not the name of a region");
	refused("s3://b/c", NULL, "", "is not the name of a region");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_amazon),
		cmocka_unit_test(test_endpoints),
		cmocka_unit_test(test_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
