/* SPDX-License-Identifier: Apache-2.0 */
/*
 * t_json.c - values that cJSON alone would lose (64-bit integers, NUL, NaN), refusals with line and
 * column, and both spellings that we write.
 */
#include "tests/unit/lib/unit.h"

#include <math.h>
#include <string.h>

#include "core/base/json.h"
#include "core/base/json_pull.h"
#include "core/base/limits.h"

static int parse(const char *text, struct json_doc *ret)
{
	return json_parse(span_str(text), "'x.json'", ret);
}

static void integers_are_exact(void **state)
{
	auto_json d = { 0 };
	int64_t v;

	assert_int_equal(
		parse("{\"t\": 1767225600000000001, \"f\": 5.0, \"u\": 18446744073709551615,"
		      " \"m\": -9223372036854775808, \"g\": 1.5}",
		      &d),
		0);
	assert_int_equal(json_get_int(d.root, "t", "x", &v), 1);
	assert_int_equal(v, 1767225600000000001);
	assert_int_equal(json_get_int(d.root, "f", "x", &v), 1);
	assert_int_equal(v, 5);
	assert_int_equal(json_get_int(d.root, "m", "x", &v), 1);
	assert_true(v == INT64_MIN);
	assert_int_equal(json_member(d.root, "u")->kind, JSON_UINT);
	assert_true(json_member(d.root, "u")->u == UINT64_MAX);
	assert_int_equal(json_get_int(d.root, "g", "x", &v), -EUCLEAN);
	assert_string_equal(err_text(-EUCLEAN), "x: member 'g' is not an integer");
	assert_int_equal(json_get_int(d.root, "none", "x", &v), 0);
}

static void integral_floats_are_integers_up_to_the_end_of_the_range(void **state)
{
	auto_json d = { 0 };
	int64_t v = 7;

	assert_int_equal(
		parse("[9007199254740994.0, -9.223372036854775808e18, 9.223372036854775e18,"
		      " 9223372036854775808, 9.223372036854775808e18, 1e400, NaN]",
		      &d),
		0);
	assert_true(json_as_int(&d.root->items[0], &v));
	assert_true(v == 9007199254740994);
	assert_true(json_as_int(&d.root->items[1], &v));
	assert_true(v == INT64_MIN);
	assert_true(json_as_int(&d.root->items[2], &v));
	assert_true(v == 9223372036854774784);
	for (size_t i = 3; i < d.root->n; i++)
		assert_false(json_as_int(&d.root->items[i], &v));
	assert_true(v == 9223372036854774784);
}

static void numbers_beyond_the_range_are_marked(void **state)
{
	auto_json d = { 0 };

	assert_int_equal(
		parse("[18446744073709551616, -9223372036854775809, 1e400, -1e400,"
		      " 18446744073709551615, -9223372036854775808, 1e300, Infinity, -Infinity, NaN, 1e-400]",
		      &d),
		0);
	for (size_t i = 0; i < d.root->n; i++)
		assert_int_equal(d.root->items[i].is_beyond, i < 4);
}

/* Nothing computes with them. */
static void numbers_beyond_the_range_are_printed_as_they_were(void **state)
{
	const char *text = "[18446744073709551616, -9223372036854775809, 1e400, -1.50E+999,"
			   " 274670000000000000000000000000000000001]";
	auto_buf out = { 0 }, pulled = { 0 };
	auto_json_pull p = { 0 };
	auto_json d = { 0 };

	assert_int_equal(parse(text, &d), 0);
	assert_int_equal(json_print(&out, d.root, JSON_PYTHON), 0);
	assert_string_equal(buf_str(&out), text);
	json_pull_init(&p, span_str(text), "x");
	assert_int_equal(json_pull_respell(&p, &pulled), 0);
	assert_string_equal(buf_str(&pulled), text);
}

static void strings_keep_nul_and_marks(void **state)
{
	auto_json d = { 0 };
	struct span s;

	assert_int_equal(
		parse("{\"a\\u0000b\": \"\\u0001n5\\u0000\", \"e\": \"\\ud83d\\ude00\\n\"}", &d),
		0);
	assert_int_equal(d.root->items[0].name.n, 3);
	assert_memory_equal(d.root->items[0].name.p, "a\0b", 3);
	assert_int_equal(d.root->items[0].kind, JSON_STRING);
	assert_int_equal(d.root->items[0].s.n, 4);
	assert_memory_equal(d.root->items[0].s.p, "\001n5\0", 4);
	assert_int_equal(json_get_str(d.root, "e", "x", &s), 1);
	assert_string_equal((const char *)s.p, "\xf0\x9f\x98\x80\n");
}

static void python_words_are_numbers(void **state)
{
	auto_json d = { 0 };

	assert_int_equal(parse(" [NaN, Infinity, -Infinity, 1e400, -0.0] ", &d), 0);
	assert_int_equal(d.root->n, 5);
	assert_true(isnan(d.root->items[0].d));
	assert_true(d.root->items[1].d == INFINITY);
	assert_true(d.root->items[2].d == -INFINITY);
	assert_true(d.root->items[3].d == INFINITY);
	assert_true(signbit(d.root->items[4].d));
}

static void the_last_of_two_names_wins(void **state)
{
	auto_json d = { 0 };
	auto_buf text = { 0 };
	int64_t v;

	buf_add_str(&text, "{\"k\": 1, \"k\": 2");
	for (int i = 0; i < 40; i++)
		buf_addf(&text, ", \"k%d\": %d", i, i);
	buf_add_str(&text, ", \"k7\": 99}");
	assert_int_equal(json_parse(buf_span(&text), "x", &d), 0);
	assert_non_null(d.root->sorted);
	assert_int_equal(json_get_int(d.root, "k", "x", &v), 1);
	assert_int_equal(v, 2);
	assert_int_equal(json_get_int(d.root, "k7", "x", &v), 1);
	assert_int_equal(v, 99);
	assert_int_equal(json_get_int(d.root, "k39", "x", &v), 1);
	assert_int_equal(json_get_int(d.root, "k40", "x", &v), 0);
}

static void refusals_give_line_and_column(void **state)
{
	static const struct {
		const char *text, *want;
	} cases[] = {
		{ "", "line 1, column 1" },
		{ "{\"a\": 1,}", "line 1, column 9" },
		{ "{\"a\": 01}", "line 1, column 8" },
		{ "{\n  \"a\": tru\n}", "line 2, column 8" },
		{ "[1, 2", "line 1" },
		{ "[1] x", "line 1, column 5" },
		{ "\"a\tb\"", "control character" },
		{ "\"\xff\"", "not UTF-8" },
		{ "\"\\q\"", "unknown escape" },
		{ "\"\\ud800\"", "line 1" },
		{ "[+1]", "line 1, column 2" },
		{ "[.5]", "line 1, column 2" },
		{ "[1.]", "malformed number" },
		{ "\"abc", "truncated" },
		{ "{1: 2}", "a member's name is a number" },
		{ "{\"a\": 1, -2.5: 2}", "a member's name is a number" },
		{ "\1{}", "control character outside a string" },
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct json_doc d = { 0 };

		assert_int_equal(parse(cases[i].text, &d), -EUCLEAN);
		assert_null(d.root);
		if (!strstr(err_text(-EUCLEAN), cases[i].want))
			fail_msg("'%s' gave '%s'", cases[i].text, err_text(-EUCLEAN));
	}
}

static void depth_is_bounded(void **state)
{
	auto_buf b = { 0 };
	struct json_doc d = { 0 };

	for (int i = 0; i < 100000; i++)
		buf_add_byte(&b, '[');
	assert_int_equal(json_parse(buf_span(&b), "x", &d), -EUCLEAN);
	assert_non_null(strstr(err_text(-EUCLEAN), "deeply"));
}

static void values_are_bounded(void **state)
{
	auto_buf b = { 0 };
	struct json_doc d = { 0 };

	buf_add_byte(&b, '[');
	for (int i = 0; i < LIMIT_JSON_NODES; i++)
		buf_add_str(&b, "0,");
	buf_add_str(&b, "0]");
	assert_int_equal(json_parse(buf_span(&b), "x", &d), -EFBIG);
	assert_null(d.root);
}

static void truncated_documents_are_refused(void **state)
{
	static const char text[] =
		"{\"a\": [1, 2.5e3, \"x\\u00e9\"], \"b\": {\"c\": null, \"d\": true}}";

	for (size_t n = 0; n < sizeof(text) - 1; n++) {
		struct json_doc d = { 0 };

		assert_int_equal(json_parse(span_of(text, n), "x", &d), -EUCLEAN);
		assert_null(d.root);
	}
}

static void prints_as_python_and_tensorstore_do(void **state)
{
	static const char text[] =
		"{\"b\": [1, 0.1, 1e16, NaN], \"a\": \"\xc3\xa9\\n\x7f\", \"A\": {}}";
	auto_json d = { 0 };
	auto_buf py = { 0 }, ts = { 0 };

	assert_int_equal(parse(text, &d), 0);
	json_print(&py, d.root, JSON_PYTHON);
	assert_string_equal(
		buf_str(&py),
		"{\"b\": [1, 0.1, 1e+16, NaN], \"a\": \"\\u00e9\\n\\u007f\", \"A\": {}}");
	json_print(&ts, d.root, JSON_COMPACT);
	assert_string_equal(buf_str(&ts),
			    "{\"A\":{},\"a\":\"\xc3\xa9\\n\x7f\",\"b\":[1,0.1,1e+16,\"NaN\"]}");
}

static void doubles_are_shortest(void **state)
{
	static const struct {
		double d;
		const char *python, *compact;
	} cases[] = {
		{ 0.0, "0.0", "0.0" },
		{ -0.0, "-0.0", "-0.0" },
		{ 1.0, "1.0", "1.0" },
		{ 1e5, "100000.0", "100000.0" },
		{ 1e15, "1000000000000000.0", "1e+15" },
		{ 1e16, "1e+16", "1e+16" },
		{ 1e-4, "0.0001", "0.0001" },
		{ 1e-5, "1e-05", "1e-05" },
		{ (double)0.1f, "0.10000000149011612", "0.10000000149011612" },
		{ 5e-324, "5e-324", "5e-324" },
		{ 123.456, "123.456", "123.456" },
		{ 1.7976931348623157e308, "1.7976931348623157e+308", "1.7976931348623157e+308" },
		/*
		 * Powers of two for which rounding to sixteen digits does not find the shortest
		 * digits.
		 */
		{ 0x1p-1017, "7.120236347223045e-307", "7.120236347223045e-307" },
		{ -0x1p-957, "-8.209073602596753e-289", "-8.209073602596753e-289" },
		{ -2.5, "-2.5", "-2.5" },
		{ 0.05, "0.05", "0.05" },
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		auto_buf py = { 0 }, ts = { 0 };

		json_put_double(&py, cases[i].d, JSON_PYTHON);
		assert_string_equal(buf_str(&py), cases[i].python);
		json_put_double(&ts, cases[i].d, JSON_COMPACT);
		assert_string_equal(buf_str(&ts), cases[i].compact);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(integers_are_exact),
		cmocka_unit_test(integral_floats_are_integers_up_to_the_end_of_the_range),
		cmocka_unit_test(numbers_beyond_the_range_are_marked),
		cmocka_unit_test(numbers_beyond_the_range_are_printed_as_they_were),
		cmocka_unit_test(strings_keep_nul_and_marks),
		cmocka_unit_test(python_words_are_numbers),
		cmocka_unit_test(the_last_of_two_names_wins),
		cmocka_unit_test(refusals_give_line_and_column),
		cmocka_unit_test(depth_is_bounded),
		cmocka_unit_test(values_are_bounded),
		cmocka_unit_test(truncated_documents_are_refused),
		cmocka_unit_test(prints_as_python_and_tensorstore_do),
		cmocka_unit_test(doubles_are_shortest),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
