/* SPDX-License-Identifier: Apache-2.0 */
/*
 * t_py_repr.c - quotes, escapes, and printable characters. tests/interop compares all code points
 * with Python.
 */
#include "tests/unit/lib/unit.h"

#include <string.h>

#include "core/tree/py_repr.h"

static void texts_are_spelled_as_by_python(void **state)
{
	static const struct {
		const char *text, *want;
	} cases[] = {
		{ "", "''" },
		{ "a b", "'a b'" },
		{ "it's", "\"it's\"" },
		{ "say \"hi\"", "'say \"hi\"'" },
		{ "'\"", "'\\'\"'" },
		{ "\\", "'\\\\'" },
		{ "a\n\r\t\b\x7f", "'a\\n\\r\\t\\x08\\x7f'" },
		{ "\xc3\xa9\xe6\x97\xa5\xf0\x9f\x98\x80",
		  "'\xc3\xa9\xe6\x97\xa5\xf0\x9f\x98\x80'" },
		{ "\xc2\xa0\xc2\x80", "'\\xa0\\x80'" },
		{ "\xe2\x80\x8b\xe2\x80\xa8", "'\\u200b\\u2028'" },
		{ "\xf3\xa0\x80\x81\xf4\x8f\xbf\xbf", "'\\U000e0001\\U0010ffff'" },
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		auto_buf out = { 0 };

		assert_int_equal(py_repr(&out, span_str(cases[i].text)), 0);
		assert_string_equal(buf_str(&out), cases[i].want);
	}
}

static void nul_is_escaped(void **state)
{
	auto_buf out = { 0 };

	assert_int_equal(py_repr(&out, span_of("a\0b", 3)), 0);
	assert_string_equal(buf_str(&out), "'a\\x00b'");
}

static void bytes_that_are_not_text_are_refused(void **state)
{
	auto_buf out = { 0 };

	buf_add_str(&out, "x");
	assert_int_equal(py_repr(&out, span_str("ab\xff")), -EINVAL);
	assert_int_equal(out.n, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(texts_are_spelled_as_by_python),
		cmocka_unit_test(nul_is_escaped),
		cmocka_unit_test(bytes_that_are_not_text_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
