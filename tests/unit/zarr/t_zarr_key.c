/* SPDX-License-Identifier: Apache-2.0 */
/*
 * t_zarr_key.c - chunk keys of both encodings and separators, printed and parsed; keys that are not
 * valid.
 */
#include "tests/unit/lib/unit.h"

#include <string.h>

#include "core/zarr/meta/zarr_meta.h"

static struct zarr_meta meta(enum zarr_keys keys, char separator, unsigned rank)
{
	struct zarr_meta m = { .keys = keys, .separator = separator, .rank = rank };

	for (unsigned i = 0; i < rank; i++)
		m.grid[i] = 12 + i;
	return m;
}

static void keys_are_printed_and_parsed(void **state)
{
	static const struct {
		enum zarr_keys keys;
		char separator;
		unsigned rank;
		const char *key;
	} cases[] = {
		{ ZARR_KEYS_V2, '.', 2, "3.0" },        { ZARR_KEYS_V2, '/', 2, "3/0" },
		{ ZARR_KEYS_V2, '.', 1, "3" },          { ZARR_KEYS_V2, '.', 0, "0" },
		{ ZARR_KEYS_V2, '/', 0, "0" },          { ZARR_KEYS_DEFAULT, '/', 2, "c/3/0" },
		{ ZARR_KEYS_DEFAULT, '.', 2, "c.3.0" }, { ZARR_KEYS_DEFAULT, '/', 0, "c" },
		{ ZARR_KEYS_DEFAULT, '.', 0, "c" },     { ZARR_KEYS_DEFAULT, '/', 3, "c/3/0/11" },
	};
	static const uint64_t index[] = { 3, 0, 11 };

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct zarr_meta m = meta(cases[i].keys, cases[i].separator, cases[i].rank);
		uint64_t again[3] = { 0 };
		auto_buf key = { 0 };

		buf_add_str(&key, "before/");
		assert_int_equal(zarr_chunk_key(&m, index, &key), 0);
		assert_string_equal(buf_str(&key) + 7, cases[i].key);
		assert_int_equal(zarr_chunk_key_parse(&m, span_str(cases[i].key), again), 1);
		assert_memory_equal(again, index, cases[i].rank * sizeof(*index));
	}
}

static void other_keys_are_not_chunk_keys(void **state)
{
	static const char *const keys[] = {
		"",
		"c",
		"c/",
		"c/3",
		"c/3/",
		"c/3/0/",
		"c/3/0/0",
		"c/03/0",
		"c/3/00",
		"c/-1/0",
		"c/+3/0",
		"c/3 /0",
		"c/12/0",
		"c/3/13",
		"c.3.0",
		"3/0",
		"c//0",
		"c/3//0",
		"c/18446744073709551616/0",
		"c/99999999999999999999999/0",
		"c/0x3/0",
		"d/3/0",
		"cc/3/0",
		"c/3/0\n",
		".zarray",
		"zarr.json",
	};
	struct zarr_meta m = meta(ZARR_KEYS_DEFAULT, '/', 2), v2 = meta(ZARR_KEYS_V2, '.', 0);

	for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
		uint64_t index[2] = { 77, 77 };

		if (zarr_chunk_key_parse(&m, span_str(keys[i]), index) != 0)
			fail_msg("'%s' is a key", keys[i]);
		assert_true(index[0] == 77 && index[1] == 77);
		assert_int_equal(zarr_chunk_key_parse(&v2, span_str(keys[i]), index), 0);
	}
	assert_int_equal(zarr_chunk_key_parse(&v2, span_str("00"), NULL), 0);
	assert_int_equal(zarr_chunk_key_parse(&m, span_of("c/3/0\0", 6), NULL), 0);
}

static void an_empty_array_has_no_keys(void **state)
{
	struct zarr_meta m = meta(ZARR_KEYS_V2, '.', 1);
	uint64_t index;

	m.grid[0] = 0;
	assert_int_equal(zarr_chunk_key_parse(&m, span_str("0"), &index), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(keys_are_printed_and_parsed),
		cmocka_unit_test(other_keys_are_not_chunk_keys),
		cmocka_unit_test(an_empty_array_has_no_keys),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
