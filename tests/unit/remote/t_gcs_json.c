/* SPDX-License-Identifier: Apache-2.0 */
/*
 * t_gcs_json.c - pages of listings, objects and errors as Google Cloud Storage and its emulators
 * write them, and malformed ones.
 */
#include "core/remote/documents/gcs_json.h"
#include "tests/unit/lib/unit.h"

static int print(void *arg, struct span key, const struct io_object *o)
{
	return buf_addf(arg, "%.*s%s %llu %s %lld\n", SPAN_ARG(key), o->is_dir ? " dir" : "",
			(unsigned long long)o->size, o->tag, (long long)o->mtime.tv_sec);
}

static void check(const char *text, const char *want, bool truncated, const char *next)
{
	auto_buf out = { 0 };
	struct bucket_page page = { 0 };

	assert_int_equal(gcs_parse_page(span_str(text), print, &out, &page), 0);
	assert_string_equal(buf_str(&out), want);
	assert_int_equal(page.is_truncated, truncated);
	assert_string_equal(buf_str(&page.next), next);
	buf_release(&page.next);
}

static void test_page(void **state)
{
	check("{\"kind\":\"storage#objects\",\"nextPageToken\":\"Cg9h\\u002b/=\",\"prefixes\":[\"run/d/\"],"
	      "\"items\":[{\"name\":\"run/_METADATA\",\"size\":\"18446744\",\"generation\":"
	      "\"1360887697105000\",\"updated\":\"1970-01-01T00:01:07.123Z\",\"metadata\":{\"a\":[]}},"
	      "{\"size\":0,\"name\":\"run/a\\\"b \\u00e9\"}]}",
	      "run/d/ dir 0  0\nrun/_METADATA 18446744 1360887697105000 67\nrun/a\"b \303\251 0  0\n",
	      true, "Cg9h+/=");
	/* With `fields=` the page of an empty listing is an empty object. */
	check("{}\n", "", false, "");
}

static void test_written(void **state)
{
	struct io_object o;
	bool has_crc;
	uint32_t crc;

	assert_int_equal(
		gcs_parse_written(
			span_str("{\"crc32c\":\"4waSgw==\",\"name\":\"a\",\"size\":\"9\"}"), &o,
			&has_crc, &crc),
		0);
	assert_true(has_crc && crc == 0xe3069283 && o.size == 9);
	assert_int_equal(gcs_parse_written(span_str("{\"name\":\"a\",\"size\":\"9\"}"), &o,
					   &has_crc, &crc),
			 0);
	assert_false(has_crc);
	assert_int_equal(
		gcs_parse_written(span_str("{\"crc32c\":\"4waS\",\"name\":\"a\",\"size\":\"9\"}"),
				  &o, &has_crc, &crc),
		-EUCLEAN);
}

static void test_object(void **state)
{
	struct io_object o = { 0 };

	assert_int_equal(gcs_parse_object(span_str("{\"name\":\"a\",\"size\":\"7\",\"generation\":"
						   "\"12\",\"updated\":\"1970-01-01T00:00:09Z\"}"),
					  &o),
			 0);
	assert_int_equal(o.size, 7);
	assert_string_equal(o.tag, "12");
	assert_int_equal(o.mtime.tv_sec, 9);
	assert_int_equal(gcs_parse_object(span_str("{\"name\":\"a\",\"size\":\"8\"} x"), &o),
			 -EUCLEAN);
	assert_int_equal(o.size, 7);
}

static int nothing(void *arg, struct span key, const struct io_object *o)
{
	return 0;
}

static int stop(void *arg, struct span key, const struct io_object *o)
{
	return -EFBIG;
}

static void test_malformed(void **state)
{
	static const struct {
		const char *text, *why;
	} bad[] = {
		{ "", "truncated" },
		{ "[]", "" },
		{ "{\"items\":{}}", "" },
		{ "{\"items\":[{\"name\":\"a\",\"size\":\"1\"}", "truncated" },
		{ "{\"items\":[{\"name\":\"a\"}]}", "an object without a name and a size" },
		{ "{\"items\":[{\"size\":\"1\"}]}", "an object without a name and a size" },
		{ "{\"items\":[{\"name\":\"a\",\"size\":-1}]}", "a size that is not a number" },
		{ "{\"items\":[{\"name\":\"a\",\"size\":\"99999999999999999999\"}]}",
		  "a size that is not a number" },
		{ "{\"items\":[{\"name\":\"a\",\"size\":\"1\",\"generation\":\"1\\r\\nX: y\"}]}",
		  "a generation that is not a number" },
		{ "{\"items\":[{\"name\":\"a\",\"size\":\"1\",\"updated\":\"soon\"}]}",
		  "a time that is not one" },
		{ "{\"prefixes\":[7]}", "" },
		{ "{\"nextPageToken\":\"a\\u0000b\"}", "a token of a page that is not one" },
	};
	struct bucket_page page = { 0 };

	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		int r = gcs_parse_page(span_str(bad[i].text), nothing, NULL, &page);

		assert_int_equal(r, -EUCLEAN);
		if (!strstr(err_text(r), bad[i].why))
			fail_msg("'%s' is not in '%s'", bad[i].why, err_text(r));
	}
	assert_int_equal(gcs_parse_page(span_str("{\"prefixes\":[\"a/\"]}"), stop, NULL, &page),
			 -EFBIG);
	buf_release(&page.next);
}

static void error(const char *text, const char *want)
{
	char got[GCS_REASON_MAX];

	gcs_parse_error(span_str(text), got, sizeof(got));
	assert_string_equal(got, want);
}

static void test_errors(void **state)
{
	error("{\"error\":{\"code\":403,\"message\":\"no\",\"errors\":[{\"domain\":\"global\","
	      "\"reason\":\"forbidden\"}]}}",
	      "forbidden");
	error("{\"error\":\"invalid_grant\",\"error_description\":\"no\"}", "invalid_grant");
	/* The document may be truncated after the reason. */
	error("{\"error\":{\"errors\":[{\"reason\":\"notFound\",\"mess", "notFound");
	error("No such object: b/a", "");
	error("{\"error\":{\"errors\":[{\"reason\":\"two words\"}]}}", "");
	error("{\"error\":7}", "");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_page),   cmocka_unit_test(test_written),
		cmocka_unit_test(test_object), cmocka_unit_test(test_malformed),
		cmocka_unit_test(test_errors),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
