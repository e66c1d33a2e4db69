/* SPDX-License-Identifier: Apache-2.0 */
/*
 * t_digests.c - `.sha256sums`: lines as sha256sum(1) writes them, names with escapes, and refused
 * texts.
 */
#include "tests/unit/lib/unit.h"

#include <string.h>

#include "core/base/digest.h"
#include "core/base/err.h"
#include "core/tree/digests.h"

#define ABC "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
#define NONE "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

/* The second name has a newline, a carriage return and a backslash in it. */
static const char good[] = ABC "  params/w.bin\n\\" NONE "  a\\nb\\rc\\\\d.bin\n";

static void lines_are_found_by_name(void **state)
{
	auto_of(digests) struct digests *d = NULL;
	const struct digests_entry *e;
	auto_buf out = { 0 };
	uint8_t abc[DIGEST_BYTES];

	sha256(span_str("abc"), abc);
	assert_int_equal(digests_parse(span_str(good), "x", &d), 0);
	assert_int_equal(d->n, 2);
	e = digests_find(d, span_str("params/w.bin"));
	assert_non_null(e);
	assert_memory_equal(e->sha256, abc, DIGEST_BYTES);
	e = digests_find(d, span_str("a\nb\rc\\d.bin"));
	assert_non_null(e);
	assert_null(digests_find(d, span_str("params/w")));
	assert_int_equal(digests_print(span_str("params/w.bin"), abc, &out), 0);
	assert_int_equal(digests_print(e->name, e->sha256, &out), 0);
	assert_true(span_eq(buf_span(&out), span_str(good)));
}

static void other_texts_are_refused(void **state)
{
	static const struct {
		const char *text, *why;
	} bad[] = {
		{ ABC "  w.bin", "truncated" },
		{ "\n", "1 lines in 1 bytes" },
		{ ABC "  \n", "line 1: no name" },
		{ ABC " *w.bin\n", "line 1" },
		{ ABC "  a\n" NONE "  b\n" ABC "\n", "line 3" },
		{ "BA7816BF8F01CFEA414140DE5DAE2223B00361A396177A9CB410FF61F20015AD  w\n",
		  "line 1" },
		{ "\\" ABC "  a\\tb\n", "escape" },
		{ "\\" ABC "  a\\\n", "escape" },
		{ ABC "  a\n" NONE "  a\n", "'a' comes twice" },
	};

	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		struct digests *d = NULL;

		assert_int_equal(digests_parse(span_str(bad[i].text), "x", &d), -EUCLEAN);
		assert_null(d);
		assert_non_null(strstr(err_text(-EUCLEAN), bad[i].why));
	}
}

static void pieces_have_the_digest_of_the_whole(void **state)
{
	uint8_t whole[DIGEST_BYTES], parts[DIGEST_BYTES];
	auto_of(sha256) struct sha256 *s = NULL;
	static uint8_t data[1000];

	for (size_t i = 0; i < sizeof(data); i++)
		data[i] = (uint8_t)(7 * i);
	sha256(span_of(data, sizeof(data)), whole);
	assert_int_equal(sha256_new(&s), 0);
	for (size_t at = 0, n = 1; at < sizeof(data); at += n, n = (n * 3) % 97)
		sha256_add(s, span_of(data + at, MIN(n, sizeof(data) - at)));
	sha256_end(s, parts);
	assert_memory_equal(parts, whole, DIGEST_BYTES);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(lines_are_found_by_name),
		cmocka_unit_test(other_texts_are_refused),
		cmocka_unit_test(pieces_have_the_digest_of_the_whole),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
