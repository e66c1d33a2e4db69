/* SPDX-License-Identifier: Apache-2.0 */
/*
 * t_json_pull.c - the pull reader accepts what json_parse() accepts, refuses what it refuses, and
 * respells as json_print() does.
 */
#include "tests/unit/lib/unit.h"

#include <string.h>

#include "core/base/json_pull.h"

static const char *const documents[] = {
	"{}",
	"[]",
	" [ ] ",
	"null",
	"true",
	"-0.5e-3",
	"\"\"",
	"{\"a\": [1, 2.5e3, \"x\\u00e9\\n\"], \"b\": {\"c\": null, \"d\": true, \"\": []}}",
	"[NaN, Infinity, -Infinity, 1e400, -0.0, 0, -7, 1767225600000000001]",
	"\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u0000\\u0001\\ud83d\\ude00\\u20ac\"",
	"{\"long plain text that is more than sixteen bytes\": "
	"\"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\"}",
	"[[[[[[1]]], {\"x\": [{}]}]]]",
	"{\"k\": 1, \"k\": 2}",
};

/* Returns 0 and appends the respelled text, or returns the error. */
static int respell(struct span text, struct buf *out)
{
	auto_json_pull p = { 0 };
	int r;

	json_pull_init(&p, text, "x");
	r = json_pull_respell(&p, out);
	return r < 0 ? r : json_pull_end(&p);
}

static void compare_with_parse(struct span text)
{
	auto_json d = { 0 };
	auto_buf want = { 0 }, got = { 0 };
	int want_r = json_parse(text, "x", &d), got_r = respell(text, &got);

	if (want_r != got_r)
		fail_msg("'%.*s': json_parse %d, pull %d: %s", SPAN_ARG(text), want_r, got_r,
			 err_text(got_r));
	if (want_r < 0)
		return;
	json_print(&want, d.root, JSON_PYTHON);
	if (!span_eq(buf_span(&want), buf_span(&got)))
		fail_msg("'%.*s': '%.*s', pull '%.*s'", SPAN_ARG(text), SPAN_ARG(want),
			 SPAN_ARG(got));
}

static void respells_as_a_parsed_document_prints(void **state)
{
	for (size_t i = 0; i < ARRAY_LEN(documents); i++)
		compare_with_parse(span_str(documents[i]));
}

static void agrees_with_parse_on_every_damage(void **state)
{
	static const uint8_t bytes[] = "\0\1 \"\\{}[],:-+.0eEnNItu\x7f\x80\xc3\xff";

	for (size_t i = 0; i < ARRAY_LEN(documents); i++) {
		size_t n = strlen(documents[i]);
		auto_free char *text = malloc(n + 2);

		for (size_t at = 0; at <= n; at++) {
			compare_with_parse(span_of(documents[i], at));
			for (size_t k = 0; k < sizeof(bytes) - 1; k++) {
				memcpy(text, documents[i], n);
				if (at < n)
					text[at] = (char)bytes[k];
				compare_with_parse(span_of(text, n));
				/* The byte inserted, in addition to the byte replaced. */
				memcpy(text, documents[i], at);
				text[at] = (char)bytes[k];
				memcpy(text + at + 1, documents[i] + at, n - at);
				compare_with_parse(span_of(text, n + 1));
			}
		}
	}
}

static void integers_of_any_length_are_preserved(void **state)
{
	auto_buf out = { 0 };

	assert_int_equal(respell(span_str("[1000000000000000000000000000000, "
					  "18446744073709551615, -0, 5.0]"),
				 &out),
			 0);
	assert_string_equal(buf_str(&out), "[1000000000000000000000000000000, "
					   "18446744073709551615, 0, 5.0]");
}

static void typed_values_are_taken_one_by_one(void **state)
{
	auto_json_pull p = { 0 };
	struct span name, s;
	int64_t i;
	bool b;

	json_pull_init(&p,
		       span_str("{\"n\": 5.0, \"\\u0073\": \"a\\tb\", \"b\": true, \"l\": [1, "
				"-2], \"x\": {}}"),
		       "x");
	assert_int_equal(json_pull_enter(&p, JSON_OBJECT), 0);
	assert_int_equal(json_pull_next(&p, &name), 1);
	assert_int_equal(json_pull_int(&p, &i), 0);
	assert_int_equal(i, 5);
	assert_int_equal(json_pull_next(&p, &name), 1);
	assert_true(span_eq(name, span_str("s")));
	assert_int_equal(json_pull_str(&p, &s), 0);
	assert_true(span_eq(s, span_str("a\tb")));
	assert_int_equal(json_pull_next(&p, NULL), 1);
	assert_int_equal(json_pull_bool(&p, &b), 0);
	assert_true(b);
	assert_int_equal(json_pull_next(&p, &name), 1);
	assert_int_equal(json_pull_enter(&p, JSON_ARRAY), 0);
	assert_int_equal(json_pull_next(&p, NULL), 1);
	assert_int_equal(json_pull_int(&p, &i), 0);
	assert_int_equal(json_pull_next(&p, NULL), 1);
	assert_int_equal(json_pull_int(&p, &i), 0);
	assert_int_equal(i, -2);
	assert_int_equal(json_pull_next(&p, NULL), 0);
	assert_int_equal(json_pull_next(&p, &name), 1);
	assert_int_equal(json_pull_raw(&p, &s), 0);
	assert_true(span_eq(s, span_str("{}")));
	assert_int_equal(json_pull_next(&p, &name), 0);
	assert_int_equal(json_pull_end(&p), 0);
}

static void another_kind_is_refused_with_its_place(void **state)
{
	static const struct {
		const char *text;
		int (*take)(struct json_pull *p);
		const char *want;
	} cases[] = {
		{ "\n [1]", NULL, "x: line 2, column 2: not an object" },
		{ "5", NULL, "not an object" },
		{ "", NULL, "line 1, column 1: the document is truncated" },
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		auto_json_pull p = { 0 };

		json_pull_init(&p, span_str(cases[i].text), "x");
		assert_int_equal(json_pull_enter(&p, JSON_OBJECT), -EUCLEAN);
		assert_non_null(strstr(err_text(-EUCLEAN), cases[i].want));
		/* Once failed, it stays failed. */
		assert_int_equal(json_pull_skip(&p), -EUCLEAN);
		assert_int_equal(json_pull_end(&p), -EUCLEAN);
	}
}

static void integers_out_of_range_are_refused(void **state)
{
	static const char *const bad[] = {
		"1.5",   "9223372036854775808",           "-9223372036854775809", "NaN", "Infinity",
		"1e300", "123456789012345678901234567890"
	};
	static const char *const unsigned_bad[] = { "-1",  "-0",  "2.0",
						    "2e0", "NaN", "18446744073709551616" };
	int64_t i = 77;

	for (size_t k = 0; k < ARRAY_LEN(bad); k++) {
		auto_json_pull p = { 0 };

		json_pull_init(&p, span_str(bad[k]), "x");
		assert_int_equal(json_pull_int(&p, &i), -EUCLEAN);
		assert_int_equal(i, 77);
	}
	for (size_t k = 0; k < ARRAY_LEN(unsigned_bad); k++) {
		auto_json_pull p = { 0 };
		uint64_t u;

		json_pull_init(&p, span_str(unsigned_bad[k]), "x");
		assert_int_equal(json_pull_uint(&p, &u), -EUCLEAN);
	}
	for (size_t k = 0; k < 2; k++) {
		auto_json_pull p = { 0 };
		uint64_t u;

		json_pull_init(&p, span_str(k ? "0" : "18446744073709551615"), "x");
		assert_int_equal(json_pull_uint(&p, &u), 0);
		assert_true(u == (k ? 0 : UINT64_MAX));
	}
	for (size_t k = 0; k < 2; k++) {
		auto_json_pull p = { 0 };

		json_pull_init(&p, span_str(k ? "-9223372036854775808" : "9223372036854775807"),
			       "x");
		assert_int_equal(json_pull_int(&p, &i), 0);
		assert_true(i == (k ? INT64_MIN : INT64_MAX));
	}
}

static void depth_is_bounded(void **state)
{
	for (unsigned n = LIMIT_JSON_PULL_DEPTH; n <= LIMIT_JSON_PULL_DEPTH + 1; n++) {
		auto_buf b = { 0 }, out = { 0 };

		for (unsigned i = 0; i < n; i++)
			buf_add_byte(&b, '[');
		for (unsigned i = 0; i < n; i++)
			buf_add_byte(&b, ']');
		assert_int_equal(respell(buf_span(&b), &out),
				 n > LIMIT_JSON_PULL_DEPTH ? -EUCLEAN : 0);
		assert_int_equal(out.n, n > LIMIT_JSON_PULL_DEPTH ? 0 : b.n);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(respells_as_a_parsed_document_prints),
		cmocka_unit_test(agrees_with_parse_on_every_damage),
		cmocka_unit_test(integers_of_any_length_are_preserved),
		cmocka_unit_test(typed_values_are_taken_one_by_one),
		cmocka_unit_test(another_kind_is_refused_with_its_place),
		cmocka_unit_test(integers_out_of_range_are_refused),
		cmocka_unit_test(depth_is_bounded),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
