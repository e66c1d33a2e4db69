/* SPDX-License-Identifier: Apache-2.0 */
/*
 * t_strings.c - `_strings.json`: names as JSON pointers, texts of other values, writing and its
 * refusals. tests/interop compares with TensorStore.
 */
#include "tests/unit/lib/unit.h"

#include <string.h>

#include "core/base/json.h"
#include "core/base/limits.h"
#include "core/tree/strings.h"

static const char document[] =
	" {\"tag\": \"run-A\", \"a.b\": \"x\", \"meta\": {\"author\": \"me\", \"\": {\"\": "
	"\"deep\"}, \"b~/c\": \"odd\"},"
	" \"\": \"bare\", \"list\": [\"p\", {\"q\": \"r\"}, []], \"n\": 5, \"f\": 1e-7, \"big\": "
	"123456789012345678901234,"
	" \"u\": 18446744073709551615, \"t\": true, \"no\": false, \"nil\": null, \"nul\": "
	"\"a\\u0000\\u00e9\", \"o\": {},"
	" \"twice\": \"first\", \"twice\": \"last\", \"nan\": NaN, \"inf\": -Infinity, \"m0\": "
	"-0, \"e\": \"\", \"gone\": {\"a\": \"x\"}, \"gone\": \"text\", \"late\": \"text\", "
	"\"late\": {\"a\": \"y\"}, \"both\": {\"a\": \"x\"}, \"both\": {\"b\": \"y\"}} ";

/* The text of a parameter through the index, or NULL. */
static const char *text_of(const struct strings *s, const char *param, struct buf *out)
{
	const struct strings_entry *e = strings_find(s, span_str(param));

	buf_clear(out);
	if (!e)
		return NULL;
	assert_true(e->off + e->len < sizeof(document));
	assert_int_equal(strings_text(span_of(document + e->off, e->len), "x", out), 0);
	assert_int_equal(out->n, e->text_len);
	return buf_str(out);
}

static void texts_are_found_by_pointer(void **state)
{
	static const struct {
		const char *param, *want;
	} cases[] = {
		{ "tag", "run-A" },
		{ "a.b", "x" },
		{ "meta/author", "me" },
		{ "meta//", "deep" },
		{ "meta/b~0~1c", "odd" },
		{ "", "bare" },
		{ "list/0", "p" },
		{ "list/1/q", "r" },
		{ "n", "5" },
		{ "f", "1e-07" },
		{ "big", "1.2345678901234569e+23" },
		{ "u", "18446744073709551615" },
		{ "t", "True" },
		{ "no", "False" },
		{ "nil", "None" },
		{ "twice", "last" },
		{ "nan", "nan" },
		{ "inf", "-inf" },
		{ "m0", "0" },
		{ "e", "" },
		{ "gone", "text" },
		{ "late/a", "y" },
		{ "both/b", "y" },
		/* None of these exists and is a text. */
		{ "meta", NULL },
		{ "gone/a", NULL },
		{ "late", NULL },
		{ "both/a", NULL },
		{ "o", NULL },
		{ "list", NULL },
		{ "list/2", NULL },
		{ "list/00", NULL },
		{ "list/-", NULL },
		{ "meta/b~/c", NULL },
		{ "a~b", NULL },
		{ "tag/", NULL },
		{ "/tag", NULL },
		{ "a", NULL },
		{ "meta/", NULL },
		{ "~", NULL },
	};
	auto_of(strings) struct strings *s = NULL;
	auto_buf out = { 0 };

	assert_int_equal(strings_parse(span_str(document), "x", &s), 0);
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		const char *got = text_of(s, cases[i].param, &out);

		if (!got || !cases[i].want)
			assert_ptr_equal(got, cases[i].want);
		else
			assert_string_equal(got, cases[i].want);
	}
	text_of(s, "nul", &out);
	assert_int_equal(out.n, 4);
	assert_memory_equal(out.p, "a\0\xc3\xa9", 4);
}

static void other_documents(void **state)
{
	static const struct {
		const char *doc;
		int want;
		size_t n;
	} cases[] = {
		{ "5", 0, 0 },
		{ "[]", 0, 0 },
		{ "{}", 0, 0 },
		{ "[1, 2]", 0, 2 },
		{ "", -EUCLEAN },
		{ "{", -EUCLEAN },
		{ "{\"a\": \"b\"} x", -EUCLEAN },
		{ "{\"a\": \"\xff\"}", -EUCLEAN },
		{ "{\"a\": }", -EUCLEAN },
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		auto_of(strings) struct strings *s = NULL;

		assert_int_equal(strings_parse(span_str(cases[i].doc), "x", &s), cases[i].want);
		if (s)
			assert_int_equal(s->n, cases[i].n);
	}
}

static void a_value_that_is_not_text_is_refused(void **state)
{
	auto_buf out = { 0 };

	assert_int_equal(strings_text(span_str("{}"), "x", &out), -EUCLEAN);
	assert_int_equal(strings_text(span_str("[\"a\"]"), "x", &out), -EUCLEAN);
	assert_int_equal(strings_text(span_str(""), "x", &out), -EUCLEAN);
	assert_int_equal(strings_text(span_str("tru"), "x", &out), -EUCLEAN);
	assert_int_equal(out.n, 0);
}

static void taken(const char *content, size_t text_len, bool same_buffer)
{
	auto_buf json = { 0 }, out = { 0 }, want = { 0 };
	const uint8_t *at;

	assert_int_equal(buf_add_str(&json, "\""), 0);
	for (size_t i = 0; i < 100000; i++)
		assert_int_equal(buf_add_byte(&json, 'x'), 0);
	assert_int_equal(buf_add_str(&json, content), 0);
	assert_int_equal(buf_add_str(&json, "\""), 0);
	at = json.p;
	assert_int_equal(strings_text(buf_span(&json), "x", &want), 0);
	assert_int_equal(want.n, 100000 + text_len);
	assert_int_equal(strings_take(&json, want.n, "x", &out), 0);
	assert_true(span_eq(buf_span(&out), buf_span(&want)));
	assert_int_equal(out.p == at, same_buffer);
}

static void a_long_text_reuses_the_buffer_of_its_json(void **state)
{
	auto_buf json = { 0 }, out = { 0 };

	taken("", 0, true);
	taken("\xc3\xa9", 2, true);
	taken("\\n", 1, false);
	/* Bytes that JSON does not allow are refused, at any length. */
	assert_int_equal(buf_add_str(&json, "\"\xff"), 0);
	for (size_t i = 0; i < 100000; i++)
		assert_int_equal(buf_add_byte(&json, 'x'), 0);
	assert_int_equal(buf_add_str(&json, "\""), 0);
	assert_int_equal(strings_take(&json, 100001, "x", &out), -EUCLEAN);
	json.p[1] = '\n';
	assert_int_equal(strings_take(&json, 100001, "x", &out), -EUCLEAN);
	assert_int_equal(out.n, 0);
}

static void one_document_per_leaf(void **state)
{
	auto_buf out = { 0 };

	assert_int_equal(strings_parse_leaf(span_str("{\"a/b~\": \"text\"}"), "x", span_str("a/b~"),
					    &out),
			 0);
	assert_string_equal(buf_str(&out), "text");
	assert_int_equal(strings_parse_leaf(span_str("{\"a\": \"text\"}"), "x", span_str("b"),
					    &out),
			 -EUCLEAN);
	assert_int_equal(strings_parse_leaf(span_str("{\"a\": [1]}"), "x", span_str("a"), &out),
			 -EUCLEAN);
	assert_int_equal(strings_parse_leaf(span_str("{\"a\": \"x\""), "x", span_str("a"), &out),
			 -EUCLEAN);
	assert_int_equal(out.n, 4);
}

static void pairs_are_written_sorted_and_nested(void **state)
{
	static const struct strings_pair pairs[] = {
		{ { (const uint8_t *)"b", 1 }, { (const uint8_t *)"x", 1 } },
		{ { (const uint8_t *)"a", 1 }, { (const uint8_t *)"\x7f\x1f\"", 3 } },
		{ { (const uint8_t *)"0/1", 3 }, { (const uint8_t *)"z", 1 } },
		{ { (const uint8_t *)"a~1b", 4 }, { (const uint8_t *)"s", 1 } },
		{ { (const uint8_t *)"c/d/e", 5 }, { (const uint8_t *)"1", 1 } },
		{ { (const uint8_t *)"c-", 2 }, { (const uint8_t *)"2", 1 } },
		{ { (const uint8_t *)"0/0", 3 }, { (const uint8_t *)"", 0 } },
		{ { (const uint8_t *)"", 0 }, { (const uint8_t *)"root", 4 } },
		{ { (const uint8_t *)"c/d/a", 5 }, { (const uint8_t *)"3", 1 } },
		{ { (const uint8_t *)"c//", 3 }, { (const uint8_t *)"4", 1 } },
	};
	auto_buf out = { 0 };

	assert_int_equal(strings_print(pairs, ARRAY_LEN(pairs), &out), 0);
	assert_string_equal(
		buf_str(&out),
		"{\"\":\"root\",\"0\":{\"0\":\"\",\"1\":\"z\"},\"a\":\"\x7f\\u001f\\\"\","
		"\"a/b\":\"s\",\"b\":\"x\","
		"\"c\":{\"\":{\"\":\"4\"},\"d\":{\"a\":\"3\",\"e\":\"1\"}},\"c-\":\"2\"}");
	buf_clear(&out);
	assert_int_equal(strings_print(NULL, 0, &out), 0);
	assert_string_equal(buf_str(&out), "{}");
}

static void names_that_cannot_be_stored_are_refused(void **state)
{
	static const struct {
		const char *a, *b, *text, *want;
	} cases[] = {
		{ "a~", "z", "", "string 'a~' cannot be stored: '~' is not followed by 0 or 1" },
		{ "a~2", "z", "", "'~' is not followed" },
		{ "a", "a", "", "two strings have the name 'a'" },
		{ "a", "a/b", "", "string 'a/b' cannot be stored: its place is inside 'a'" },
		{ "", "/b", "", "its place is inside ''" },
		{ "\xff", "z", "", "its name is not UTF-8" },
		{ "a", "z", "\xff", "its text is not UTF-8" },
	};
	auto_buf deep = { 0 }, out = { 0 };

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		const struct strings_pair pairs[] = {
			{ span_str(cases[i].b), span_str("") },
			{ span_str("m"), span_str("") },
			{ span_str(cases[i].a), span_str(cases[i].text) },
		};

		assert_int_equal(strings_print(pairs, 3, &out), -EINVAL);
		if (!strstr(err_text(-EINVAL), cases[i].want))
			fail_msg("case %zu: %s", i, err_text(-EINVAL));
		assert_int_equal(out.n, 0);
	}
	for (int i = 0; i < LIMIT_TREE_DEPTH; i++)
		buf_add_byte(&deep, '/');
	assert_int_equal(strings_check_name(buf_span(&deep)), -EINVAL);
	deep.n--;
	assert_int_equal(strings_check_name(buf_span(&deep)), 0);
}

static uint64_t seed = 42;

static unsigned rnd(unsigned n)
{
	seed = seed * 6364136223846793005u + 1442695040888963407u;
	return (unsigned)(seed >> 33) % n;
}

/*
 * Random names of the characters that matter: every name that was written is found, with its text.
 */
static void written_names_are_found(void **state)
{
	static const char chars[] = "//01abcdefgh-";
	unsigned written = 0;

	for (int round = 0; round < 20000; round++) {
		char names[6][8], texts[6][8];
		struct strings_pair pairs[6];
		auto_of(strings) struct strings *s = NULL;
		auto_buf out = { 0 };

		for (int i = 0; i < 6; i++) {
			size_t n = 0;

			for (; n < 5 && rnd(8); n++) {
				names[i][n] = chars[rnd(sizeof(chars) - 1)];
				/* A '~' is always followed by what must follow it. */
				if (n < 4 && rnd(16) == 0) {
					names[i][n++] = '~';
					names[i][n] = "01"[rnd(2)];
				}
			}
			snprintf(texts[i], sizeof(texts[i]), "%d", i);
			pairs[i] =
				(struct strings_pair){ span_of(names[i], n), span_str(texts[i]) };
		}
		if (strings_print(pairs, 6, &out) < 0)
			continue;
		written++;
		assert_int_equal(strings_parse(buf_span(&out), "x", &s), 0);
		assert_int_equal(s->n, 6);
		for (int i = 0; i < 6; i++) {
			const struct strings_entry *e = strings_find(s, pairs[i].name);
			auto_buf text = { 0 };

			assert_non_null(e);
			assert_int_equal(strings_text(span_of(out.p + e->off, e->len), "x", &text),
					 0);
			assert_string_equal(buf_str(&text), texts[i]);
		}
	}
	assert_true(written > 1000);
}

static void damage_is_refused_or_read(void **state)
{
	static const uint8_t bytes[] = "\0 \"{}[],:-1\\/nt\xff";
	size_t n = sizeof(document) - 1;
	char text[sizeof(document)];

	for (size_t at = 0; at < n; at++) {
		struct strings *cut = NULL;

		if (at < n - 1)
			assert_int_equal(strings_parse(span_of(document, at), "x", &cut), -EUCLEAN);
		assert_null(cut);
		for (size_t k = 0; k < sizeof(bytes) - 1; k++) {
			auto_of(strings) struct strings *s = NULL;

			memcpy(text, document, n);
			text[at] = (char)bytes[k];
			if (strings_parse(span_of(text, n), "x", &s) < 0)
				assert_null(s);
			for (size_t i = 0; s && i < s->n; i++) {
				auto_buf out = { 0 };

				assert_int_equal(strings_text(span_of(text + s->entries[i].off,
								      s->entries[i].len),
							      "x", &out),
						 0);
				assert_int_equal(out.n, s->entries[i].text_len);
			}
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(texts_are_found_by_pointer),
		cmocka_unit_test(other_documents),
		cmocka_unit_test(a_value_that_is_not_text_is_refused),
		cmocka_unit_test(a_long_text_reuses_the_buffer_of_its_json),
		cmocka_unit_test(one_document_per_leaf),
		cmocka_unit_test(pairs_are_written_sorted_and_nested),
		cmocka_unit_test(names_that_cannot_be_stored_are_refused),
		cmocka_unit_test(written_names_are_found),
		cmocka_unit_test(damage_is_refused_or_read),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
