/* SPDX-License-Identifier: Apache-2.0 */
/*
 * t_digest.c - SHA-256 by the standard's vectors, base64 in both directions, a hash that is the
 * same everywhere.
 */
#include "tests/unit/lib/unit.h"

#include "core/base/digest.h"

static void sha256_by_the_standards_vectors(void **state)
{
	static const struct {
		const char *text;
		uint8_t first[4], last[4];
	} cases[] = {
		{ "", { 0xe3, 0xb0, 0xc4, 0x42 }, { 0x78, 0x52, 0xb8, 0x55 } },
		{ "abc", { 0xba, 0x78, 0x16, 0xbf }, { 0xf2, 0x00, 0x15, 0xad } },
		{ "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
		  { 0x24, 0x8d, 0x6a, 0x61 },
		  { 0x19, 0xdb, 0x06, 0xc1 } },
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct span s = span_str(cases[i].text),
			    parts[2] = { span_of(s.p, s.n / 3), span_from(s, s.n / 3) };
		uint8_t a[32], b[32];

		sha256(s, a);
		sha256_parts(parts, 2, b);
		assert_memory_equal(a, b, 32);
		assert_memory_equal(a, cases[i].first, 4);
		assert_memory_equal(a + 28, cases[i].last, 4);
	}
}

static void base64_in_both_directions(void **state)
{
	static const char *const cases[][2] = {
		{ "", "" },
		{ "f", "Zg==" },
		{ "fo", "Zm8=" },
		{ "foo", "Zm9v" },
		{ "foob", "Zm9vYg==" },
		{ "fooba", "Zm9vYmE=" },
		{ "foobar", "Zm9vYmFy" },
		{ "\xfb\xff\xbf", "+/+/" },
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		auto_buf text = { 0 }, back = { 0 };

		assert_int_equal(base64_put(&text, span_str(cases[i][0]), BASE64_STD), 0);
		assert_true(span_eq(buf_span(&text), span_str(cases[i][1])));
		assert_int_equal(buf_add_str(&back, "x"), 0);
		assert_int_equal(base64_get(&back, buf_span(&text), BASE64_STD), 0);
		assert_true(span_eq(span_from(buf_span(&back), 1), span_str(cases[i][0])));
	}
}

static void every_byte_in_both_alphabets(void **state)
{
	uint8_t all[256];

	for (unsigned i = 0; i < 256; i++)
		all[i] = (uint8_t)(i * 167);
	for (size_t n = 0; n <= 256; n++)
		for (int a = 0; a < 2; a++) {
			auto_buf text = { 0 }, back = { 0 };

			assert_int_equal(
				base64_put(&text, span_of(all, n), (enum base64_alphabet)a), 0);
			assert_int_equal(text.n, (n + 2) / 3 * 4);
			assert_int_equal(
				base64_get(&back, buf_span(&text), (enum base64_alphabet)a), 0);
			assert_true(span_eq(buf_span(&back), span_of(all, n)));
		}
}

static void malformed_base64_is_refused(void **state)
{
	static const char *const cases[] = { "Z",
					     "Zg",
					     "Zg=",
					     "====",
					     "Z===",
					     "Zg==Zg==",
					     "Zm9v\n",
					     "Zm=v",
					     "Zm9-",
					     "Zm 9",
					     "\xff\xff\xff\xff" };

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		auto_buf out = { 0 };

		assert_int_equal(buf_add_str(&out, "kept"), 0);
		if (base64_get(&out, span_str(cases[i]), BASE64_STD) != -EUCLEAN)
			fail_msg("'%s' was taken", cases[i]);
		assert_int_equal(out.n, 4);
	}
	{
		auto_buf out = { 0 };

		assert_int_equal(base64_get(&out, span_str("-_-_"), BASE64_STD), -EUCLEAN);
		assert_int_equal(base64_get(&out, span_str("-_-_"), BASE64_URL), 0);
		assert_int_equal(base64_get(&out, span_of("Zm\0v", 4), BASE64_URL), -EUCLEAN);
	}
}

static void the_hash_is_the_same_everywhere(void **state)
{
	/* Inode numbers are derived from it: a change here changes them all. */
	assert_true(hash64(span_str(""), 0) == hash64(span_str(""), 0));
	assert_true(hash64(span_str("params"), 0) != hash64(span_str("params"), 1));
	assert_true(hash64(span_str("a"), 7) != hash64(span_str("b"), 7));
	assert_int_equal(hash64(span_str("params"), 1), 0x3ff02a2c0a15a3f3);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sha256_by_the_standards_vectors),
		cmocka_unit_test(base64_in_both_directions),
		cmocka_unit_test(every_byte_in_both_alphabets),
		cmocka_unit_test(malformed_base64_is_refused),
		cmocka_unit_test(the_hash_is_the_same_everywhere),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
