/* SPDX-License-Identifier: Apache-2.0 */
/*
 * t_files.c - data file tables: the rules of prefixes and bases, transitive paths, the sorted
 * packing.
 */
#include "tests/unit/lib/ocdbt_test.h"

static const struct {
	const char *base, *rel;
} bases[] = { { "", "d/a1" }, { "p0/", "d/b2" }, { "p0/", "d/b3" }, { "p1/", "d/c4" } };

static void a_table_with_bases_is_read(void **state)
{
	struct wire w = wire_of(VEC(table_bases));
	auto_arena a = { 0 };
	struct ocdbt_files f;

	assert_int_equal(ocdbt_files_parse(&w, S("top/"), &a, &f), 0);
	assert_int_equal(wire_left(&w), 0);
	assert_int_equal(f.n, 4);
	for (uint32_t i = 0; i < f.n; i++) {
		struct ocdbt_ref ref;
		char want[32];

		ocdbt_files_get(&f, i, &ref);
		snprintf(want, sizeof(want), "top/%s", bases[i].base);
		assert_true(span_eq(ref.base, span_str(want)));
		assert_true(span_eq(ref.rel, span_str(bases[i].rel)));
	}
}

static void files_are_packed_sorted_and_once(void **state)
{
	static const unsigned order[] = { 2, 0, 3, 2, 1, 0, 3 };
	auto_filelist t = { 0 };
	uint32_t id[ARRAY_LEN(order)], index[ARRAY_LEN(order)];
	auto_buf b = { 0 };

	for (size_t i = 0; i < ARRAY_LEN(order); i++)
		assert_int_equal(ocdbt_filelist_add(&t, span_str(bases[order[i]].base),
						    span_str(bases[order[i]].rel), &id[i]),
				 0);
	assert_int_equal(ocdbt_filelist_pack(&t, &b, index), 0);
	assert_true(span_eq(buf_span(&b), VEC(table_bases)));
	for (size_t i = 0; i < ARRAY_LEN(order); i++)
		assert_int_equal(index[id[i]], order[i]);
}

static void the_empty_table_is_one_byte(void **state)
{
	auto_filelist t = { 0 };
	auto_arena a = { 0 };
	struct ocdbt_files f;
	auto_buf b = { 0 };
	struct wire w;
	uint32_t none;

	assert_int_equal(ocdbt_filelist_pack(&t, &b, &none), 0);
	assert_true(span_eq(buf_span(&b), span_of("\0", 1)));
	w = wire_of(buf_span(&b));
	assert_int_equal(ocdbt_files_parse(&w, NONE, &a, &f), 0);
	assert_int_equal(f.n, 0);
}

static void the_rules_are_checked(void **state)
{
	static const struct {
		const char *bytes;
		size_t n;
		int code;
		const char *text;
	} cases[] = {
		/* n, prefix lengths, suffix lengths, base lengths, bytes */
		{ "\x01\x01\x00"
		  "a",
		  4, 0, "" },
		{ "\x01\x01\x02"
		  "a",
		  4, -EUCLEAN, "base of 2 bytes in a path of 1" },
		{ "\x02\x02\x01\x01\x00\x00"
		  "ab",
		  8, -EUCLEAN, "shares 2 bytes with a path of 1" },
		{ "\x02\x01\x01\x01\x00\x01"
		  "ab",
		  8, -EUCLEAN, "shares 1 bytes across bases of 0 and 1" },
		{ "\x02\x01\x02\x01\x01\x02"
		  "abc",
		  9, 0, "" },
		/* A base that is a prefix of the previous one is read as it is written. */
		{ "\x02\x01\x02\x01\x02\x01"
		  "abc",
		  9, 0, "" },
		{ "\x01\x01\x00", 3, -EUCLEAN, "truncated" },
		{ "\x05\x00", 2, -EUCLEAN, "truncated" },
		{ "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 10, -EFBIG, "the limit is 1048577" },
		{ "\x01\x80\x80\x04\x00", 5, -EUCLEAN, "malformed" },
		{ "", 0, -EUCLEAN, "truncated" },
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct wire w = wire_of(span_of(cases[i].bytes, cases[i].n));
		struct ocdbt_files f = { .n = 77 };
		auto_arena a = { 0 };
		int r = ocdbt_files_parse(&w, NONE, &a, &f);

		if (r != cases[i].code || (r < 0 && !strstr(err_text(r), cases[i].text)))
			fail_msg("case %zu: %d, %s", i, r, err_text(r));
		if (r < 0)
			assert_int_equal(f.n, 77);
	}
}

static void paths_end_at_their_limit(void **state)
{
	auto_buf table = { 0 }, long_base = { 0 };
	auto_filelist list = { 0 };
	auto_arena a = { 0 };
	struct ocdbt_files f;
	uint32_t id;

	/* A path of 65533 bytes below a base of 2 is at the limit, below a base of 3 beyond it. */
	wire_put_varint(&table, 1);
	wire_put_varint(&table, 65533);
	wire_put_varint(&table, 0);
	buf_add_zero(&table, 65533);
	for (int n = 2; n < 4; n++) {
		struct wire w = wire_of(buf_span(&table));

		assert_int_equal(ocdbt_files_parse(&w, span_of("abc", n), &a, &f),
				 n == 2 ? 0 : -EUCLEAN);
	}
	buf_add_zero(&long_base, 65536);
	assert_int_equal(ocdbt_filelist_add(&list, buf_span(&long_base), NONE, &id), -EINVAL);
	assert_int_equal(ocdbt_filelist_add(&list, span_of(long_base.p, 65535), S("x"), &id),
			 -EINVAL);
	assert_int_equal(ocdbt_filelist_add(&list, span_of(long_base.p, 65535), NONE, &id), 0);
}

/* Each path repeats the previous one and costs four bytes; expanded they would need 13 GB. */
static void expansion_is_bounded(void **state)
{
	auto_buf b = { 0 };
	auto_arena a = { 0 };
	struct ocdbt_files f;
	struct wire w;
	uint32_t n = 200000;

	wire_put_varint(&b, n);
	for (uint32_t i = 1; i < n; i++)
		wire_put_varint(&b, 65535);
	wire_put_varint(&b, 65535);
	buf_add_zero(&b, n - 1);
	buf_add_zero(&b, n);
	buf_add_zero(&b, 65535);
	w = wire_of(buf_span(&b));
	assert_int_equal(ocdbt_files_parse(&w, NONE, &a, &f), -EFBIG);
	assert_int_equal(a.total, 0);
}

static void truncated_tables_are_refused(void **state)
{
	for (size_t n = 0; n < sizeof(vec_table_bases); n++) {
		auto_free uint8_t *exact = malloc(n + 1);
		struct wire w = wire_of(span_of(exact, n));
		auto_arena a = { 0 };
		struct ocdbt_files f;

		memcpy(exact, vec_table_bases, n);
		assert_int_equal(ocdbt_files_parse(&w, NONE, &a, &f), -EUCLEAN);
	}
}

static void random_tables_are_read_back(void **state)
{
	uint64_t seed = 5;

	for (int round = 0; round < 300; round++) {
		uint32_t n = test_random(&seed, 12), id[12], index[12];
		char base[12][8], rel[12][8];
		auto_filelist t = { 0 };
		auto_arena a = { 0 };
		struct ocdbt_files f;
		auto_buf b = { 0 };
		struct wire w;

		for (uint32_t i = 0; i < n; i++) {
			/* Few letters, so that prefixes and repetitions are frequent. */
			snprintf(base[i], 8, "%.*s", (int)test_random(&seed, 4),
				 test_random(&seed, 2) ? "aa/" : "ab/");
			snprintf(rel[i], 8, "%.*s", (int)test_random(&seed, 6),
				 test_random(&seed, 2) ? "aaaaa" : "aabaa");
			assert_int_equal(ocdbt_filelist_add(&t, span_str(base[i]), span_str(rel[i]),
							    &id[i]),
					 0);
		}
		assert_int_equal(ocdbt_filelist_pack(&t, &b, index), 0);
		w = wire_of(buf_span(&b));
		assert_int_equal(ocdbt_files_parse(&w, NONE, &a, &f), 0);
		assert_int_equal(wire_left(&w), 0);
		for (uint32_t i = 0; i < n; i++) {
			struct ocdbt_ref ref;

			ocdbt_files_get(&f, index[id[i]], &ref);
			assert_true(span_eq(ref.base, span_str(base[i])));
			assert_true(span_eq(ref.rel, span_str(rel[i])));
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_table_with_bases_is_read),
		cmocka_unit_test(files_are_packed_sorted_and_once),
		cmocka_unit_test(the_empty_table_is_one_byte),
		cmocka_unit_test(the_rules_are_checked),
		cmocka_unit_test(paths_end_at_their_limit),
		cmocka_unit_test(expansion_is_bounded),
		cmocka_unit_test(truncated_tables_are_refused),
		cmocka_unit_test(random_tables_are_read_back),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
