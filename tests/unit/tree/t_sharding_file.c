/* SPDX-License-Identifier: Apache-2.0 */
/*
 * t_sharding_file.c - the file `_sharding`: names in base64, texts in strings.
 */
#include "tests/unit/lib/unit.h"

#include <string.h>

#include "core/tree/sharding.h"

static const char document[] =
	"{\"\":\"bare\",\"cGFyYW1zLmRlbnNlLmJpYXM=\":\"{\\\"sharding_type\\\": "
	"\\\"SingleDeviceSharding\\\", "
	"\\\"device_str\\\": "
	"\\\"cpu:0\\\"}\",\"cGFyYW1zLmRlbnNlLmtlcm5lbA==\":\"x\",\"w78_Pw==\":\"x\"}";

static const char *text_of(const struct shardings *s, const char *param)
{
	struct span text;

	return shardings_find(s, span_str(param), &text) ? (const char *)text.p : NULL;
}

static void parameters_are_found(void **state)
{
	auto_of(shardings) struct shardings *s = NULL;
	auto_buf out = { 0 };

	assert_int_equal(shardings_parse(span_str(document), "x", &s), 0);
	assert_int_equal(s->n, 4);
	assert_string_equal(text_of(s, ""), "bare");
	assert_string_equal(text_of(s, "params.dense.bias"),
			    "{\"sharding_type\": \"SingleDeviceSharding\", \"device_str\": "
			    "\"cpu:0\"}");
	/* Equal texts are stored once. */
	assert_ptr_equal(text_of(s, "params.dense.kernel"), text_of(s, "\xc3\xbf??"));
	assert_null(text_of(s, "params"));
	assert_null(text_of(s, "zzz"));
	assert_int_equal(shardings_print(s->entries, s->n, &out), 0);
	assert_string_equal(buf_str(&out), document);
}

/* Orbax 0.4.0 and 0.4.1: names are JSON pointers, and there are empty texts. */
static void plain_names_are_read(void **state)
{
	static const char text[] = "{\"params.dense.k\":\"1\",\"YQ==\":\"2\",\"none\":\"\","
				   "\"params.x\":{\"y\":{\"z~\":\"3\"},\"w/v\":\"4\",\"\":\"5\"},"
				   "\"last\":\"6\"}";
	auto_of(shardings) struct shardings *s = NULL;

	assert_int_equal(shardings_parse(span_str(text), "x", &s), 0);
	assert_int_equal(s->n, 6);
	assert_string_equal(text_of(s, "params.dense.k"), "1");
	/* One name that is not base64 shows that none is. */
	assert_string_equal(text_of(s, "YQ=="), "2");
	assert_string_equal(text_of(s, "params.x/y/z~0"), "3");
	assert_string_equal(text_of(s, "params.x/w~1v"), "4");
	assert_string_equal(text_of(s, "params.x/"), "5");
	assert_string_equal(text_of(s, "last"), "6");
	assert_null(text_of(s, "none"));
	shardings_free(take(s));
	/* "YQ==" is base64, and "////" would be, but of no text. */
	assert_int_equal(shardings_parse(span_str("{\"YQ==\": \"1\", \"____\": \"2\"}"), "x", &s),
			 0);
	assert_string_equal(text_of(s, "YQ=="), "1");
	assert_string_equal(text_of(s, "____"), "2");
}

static void the_last_of_two_wins(void **state)
{
	auto_of(shardings) struct shardings *s = NULL;

	assert_int_equal(shardings_parse(span_str("{\"YQ==\": \"1\", \"Yg==\": \"2\", \"YQ==\": "
						  "\"3\"}"),
					 "x", &s),
			 0);
	assert_int_equal(s->n, 2);
	assert_string_equal(text_of(s, "a"), "3");
}

static void an_empty_file_has_none(void **state)
{
	auto_of(shardings) struct shardings *s = NULL;
	auto_buf out = { 0 };

	assert_int_equal(shardings_parse(span_str("{}"), "x", &s), 0);
	assert_int_equal(s->n, 0);
	assert_null(text_of(s, ""));
	assert_int_equal(shardings_print(NULL, 0, &out), 0);
	assert_string_equal(buf_str(&out), "{}");
}

static void malformed_files_are_refused(void **state)
{
	static const char *const bad[] = {
		"",
		"[]",
		"{\"a\": {\"b\": 5}}",
		"{\"a\": [\"b\"]}",
		"{\"YQ==\": 5}",
		"{\"YQ==\": null}",
		"{\"YQ==\": \"x\"} x",
		"{\"YQ==\": \"x\"",
	};

	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		struct shardings *s = NULL;

		if (shardings_parse(span_str(bad[i]), "x", &s) != -EUCLEAN)
			fail_msg("'%s' was taken", bad[i]);
		assert_null(s);
	}
}

static void writing_sorts_by_the_written_name(void **state)
{
	/* "a?" is YT8=, "a>" is YT4=, "b" is Yg==: not in the order of the parameters. */
	const struct sharding_entry entries[] = {
		{ span_str("a?"), span_str("1") },
		{ span_str("b"), span_str("2") },
		{ span_str("a>"), span_str("3") },
	};
	const struct sharding_entry twice[] = {
		{ span_str("a"), span_str("1") },
		{ span_str("b"), span_str("2") },
		{ span_str("a"), span_str("3") },
	};
	auto_buf out = { 0 };

	assert_int_equal(shardings_print(entries, 3, &out), 0);
	assert_string_equal(buf_str(&out), "{\"YT4=\":\"3\",\"YT8=\":\"1\",\"Yg==\":\"2\"}");
	buf_clear(&out);
	assert_int_equal(shardings_print(twice, 3, &out), -EINVAL);
	assert_int_equal(out.n, 0);
}

static void damage_is_refused_or_read(void **state)
{
	static const uint8_t bytes[] = "\0 \"{}[],:-=A\\/_\xff";
	size_t n = sizeof(document) - 1;
	char text[sizeof(document)];

	for (size_t at = 0; at < n; at++) {
		struct shardings *cut = NULL;

		assert_int_equal(shardings_parse(span_of(document, at), "x", &cut), -EUCLEAN);
		assert_null(cut);
		for (size_t k = 0; k < sizeof(bytes) - 1; k++) {
			auto_of(shardings) struct shardings *s = NULL;
			auto_of(shardings) struct shardings *again = NULL;
			auto_buf a = { 0 }, b = { 0 };

			memcpy(text, document, n);
			text[at] = (char)bytes[k];
			if (shardings_parse(span_of(text, n), "x", &s) < 0)
				continue;
			assert_int_equal(shardings_print(s->entries, s->n, &a), 0);
			assert_int_equal(shardings_parse(buf_span(&a), "x", &again), 0);
			assert_int_equal(shardings_print(again->entries, again->n, &b), 0);
			assert_string_equal(buf_str(&a), buf_str(&b));
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(parameters_are_found),
		cmocka_unit_test(plain_names_are_read),
		cmocka_unit_test(the_last_of_two_wins),
		cmocka_unit_test(an_empty_file_has_none),
		cmocka_unit_test(malformed_files_are_refused),
		cmocka_unit_test(writing_sorts_by_the_written_name),
		cmocka_unit_test(damage_is_refused_or_read),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
