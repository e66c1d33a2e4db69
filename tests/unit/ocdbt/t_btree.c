/* SPDX-License-Identifier: Apache-2.0 */
/*
 * t_btree.c - one B+tree node: the test vectors, each rule broken once, searching, and memory.
 */
#include "tests/unit/lib/ocdbt_test.h"

#include <time.h>

static int parse(struct span stored)
{
	struct ocdbt_node *node = NULL;
	auto_buf again = { 0 };
	int r = ocdbt_node_parse(stored, NONE, &node);

	if (r < 0) {
		assert_null(node);
		return r;
	}
	assert_int_equal(ocdbt_node_pack(node, NULL, &again), 0);
	ocdbt_node_free(node);
	return 0;
}

static struct ocdbt_node *node_of(struct span stored, struct span transitive)
{
	struct ocdbt_node *node;

	assert_int_equal(ocdbt_node_parse(stored, transitive, &node), 0);
	return node;
}

static void inline_values_are_read(void **state)
{
	/* clang-format off */
	static const struct {
		const uint8_t *p;
		size_t n;
	} vectors[] = { { vec_leaf_inline, sizeof(vec_leaf_inline) }, { vec_leaf_zstd, sizeof(vec_leaf_zstd) } };

	for (size_t i = 0; i < ARRAY_LEN(vectors); i++) {
		auto_of(ocdbt_node) struct ocdbt_node *n = node_of(span_of(vectors[i].p, vectors[i].n), NONE);
		struct ocdbt_value v;

		assert_int_equal(n->height, 0);
		assert_int_equal(n->n, 1);
		assert_true(span_eq(ocdbt_node_key(n, 0), S("a")));
		ocdbt_node_value(n, 0, &v);
		assert_int_equal(v.kind, OCDBT_INLINE);
		assert_true(span_eq(v.bytes, S("b")));
	}
}

static void values_in_files_are_read(void **state)
{
	auto_of(ocdbt_node) struct ocdbt_node *n = node_of(VEC(leaf_mixed), S("sub/"));
	struct ocdbt_stats stats;
	struct ocdbt_value v;

	assert_int_equal(n->n, 2);
	ocdbt_node_value(n, 0, &v);
	assert_true(span_eq(v.bytes, S("b")));
	assert_true(span_eq(ocdbt_node_key(n, 1), S("b")));
	ocdbt_node_value(n, 1, &v);
	assert_int_equal(v.kind, OCDBT_FILE);
	assert_true(span_eq(v.ref.base, S("sub/")));
	assert_true(span_eq(v.ref.rel, S("d/00112233445566778899aabbccddeeff")));
	assert_int_equal(v.ref.off, 0);
	assert_int_equal(v.ref.len, 2);
	ocdbt_node_stats(n, &stats);
	assert_int_equal(stats.keys, 2);
	assert_int_equal(stats.value_bytes, 2);
	assert_int_equal(stats.tree_bytes, 0);
}

static void base_paths_are_read(void **state)
{
	auto_of(ocdbt_node) struct ocdbt_node *n = node_of(VEC(leaf_merged), NONE);
	struct ocdbt_value v;

	ocdbt_node_value(n, 1, &v);
	assert_true(span_eq(ocdbt_node_key(n, 1), S("a/1")));
	assert_true(span_eq(v.ref.base, S("ocdbt.process_1/")));
	assert_true(span_eq(v.ref.rel, S("d/ffeeddccbbaa99887766554433221100")));
	assert_int_equal(v.ref.len, 2000);
}

static void interior_nodes_are_read(void **state)
{
	auto_of(ocdbt_node) struct ocdbt_node *n = node_of(VEC_TS_ROOT, NONE);
	struct ocdbt_child c;
	struct ocdbt_stats stats;

	assert_int_equal(n->height, 1);
	assert_int_equal(n->n, 2);
	ocdbt_node_child(n, 1, &c);
	assert_true(span_eq(c.key, S("w/b/.zarray")));
	assert_int_equal(c.cut, 4);
	assert_int_equal(c.ref.off, 92);
	assert_int_equal(c.ref.len, 78);
	assert_int_equal(c.stats.keys, 2);
	assert_int_equal(c.stats.tree_bytes, 78);
	assert_int_equal(c.stats.value_bytes, 6);
	ocdbt_node_stats(n, &stats);
	assert_int_equal(stats.keys, 4);
	assert_int_equal(stats.tree_bytes, 156);
	assert_int_equal(stats.value_bytes, 14);
}

static void packing_gives_the_same_bytes(void **state)
{
	const struct span vectors[] = { VEC(leaf_inline), VEC(leaf_merged), VEC_TS_LEAF_A, VEC_TS_LEAF_B,
					VEC_TS_ROOT };

	for (size_t i = 0; i < ARRAY_LEN(vectors); i++) {
		auto_of(ocdbt_node) struct ocdbt_node *n = node_of(vectors[i], NONE);
		auto_buf b = { 0 };

		assert_int_equal(ocdbt_node_pack(n, NULL, &b), 0);
		assert_true(span_eq(buf_span(&b), vectors[i]));
	}
}

static void damage_is_refused(void **state)
{
	test_falsify(VEC(leaf_inline), parse);
	test_falsify(VEC(leaf_zstd), parse);
	test_falsify(VEC(leaf_mixed), parse);
	test_falsify(VEC(leaf_merged), parse);
	test_falsify(VEC_TS_LEAF_A, parse);
	test_falsify(VEC_TS_ROOT, parse);
}

/*
 * Bodies: height, table, entries, columns of keys, values. "\x01\x01\x00x" is a table of the single
 * file "x".
 */
static void every_rule_is_checked(void **state)
{
	static const struct {
		const char *body;
		size_t n;
		int code;
		const char *text;
	} cases[] = {
#define BODY(text) text, sizeof(text) - 1
		{ BODY("\x00\x00\x01\x00\x00\x00"), 0, "" },			/* the empty key */
		{ BODY("\x00\x00\x00"), -EUCLEAN, "node of 0 entries" },
		{ BODY("\x00\x00\x81\x80\x40"), -EUCLEAN, "node of 1048577 entries" },
		{ BODY("\x00\x00\x80\x80\x40"), -EUCLEAN, "is truncated" },
		{ BODY("\x00\x00\x02\x02\x01\x01" "ab" "\x00\x00\x00\x00"), -EUCLEAN,
		  "key 1 shares 2 bytes with a key of 1" },
		{ BODY("\x00\x00\x02\x01\x01\x00" "a" "\x00\x00\x00\x00"), -EUCLEAN,
		  "key 1 does not sort after key 0" },
		{ BODY("\x00\x00\x02\x00\x01\x01" "ba" "\x00\x00\x00\x00"), -EUCLEAN,
		  "key 1 does not sort after key 0" },
		{ BODY("\x00\x00\x02\x01\x01\x01" "ab" "\x00\x00\x00\x00"), 0, "" },	/* "a", "ab" */
		{ BODY("\x00\x00\x02\x00\x02\x01" "abb" "\x00\x00\x00\x00"), 0, "" },	/* prefix not the longest */
		{ BODY("\x00\x00\x01\x01" "a" "\x00\x02"), -EUCLEAN, "value of kind 2" },
		{ BODY("\x00\x01\x01\x00x\x01\x01" "a" "\x05\x01\x00\x07"), 0, "" },
		{ BODY("\x00\x01\x01\x00x\x01\x01" "a" "\x05\x01\x01\x07"), -EUCLEAN, "data file 1 of 1" },
		{ BODY("\x00\x00\x01\x01" "a" "\x05\x01\x00\x07"), -EUCLEAN, "data file 0 of 0" },
		{ BODY("\x00\x01\x01\x00x\x01\x01" "a" "\x05\x01\x00\xff\xff\xff\xff\xff\xff\xff\xff\x7f"), -EUCLEAN,
		  "beyond 2^63" },
		{ BODY("\x00\x00\x01\x01" "a" "\x01\x00"), -EUCLEAN, "inline values are truncated" },
		{ BODY("\x00\x00\x01\x01" "a" "\x81\x80\x40\x00" "b"), -EUCLEAN, "inline value of 1048577 bytes" },
		{ BODY("\x00\x00\x01\x01" "a" "\x01\x00" "bc"), -EUCLEAN, "1 bytes follow the last entry" },
		{ BODY("\x01\x01\x01\x00x\x01\x01\x01" "a" "\x00\x07\x1e\x01\x1e\x00"), 0, "" },
		{ BODY("\x01\x01\x01\x00x\x01\x01\x02" "a" "\x00\x07\x1e\x01\x1e\x00"), -EUCLEAN,
		  "child 0 leaves out 2 bytes of a key of 1" },
		{ BODY("\x01\x01\x01\x00x\x01\x01\x01" "a" "\x01\x07\x1e\x01\x1e\x00"), -EUCLEAN, "data file 1 of 1" },
		{ BODY(""), -EUCLEAN, "empty" },
#undef BODY
	};
	/* clang-format on */

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		auto_buf b = { 0 };
		int r;

		assert_int_equal(ocdbt_frame_pack(OCDBT_BTREENODE, NULL,
						  span_of(cases[i].body, cases[i].n), &b),
				 0);
		r = parse(buf_span(&b));
		if (r != cases[i].code || (r < 0 && !strstr(err_text(r), cases[i].text)))
			fail_msg("case %zu: %d, %s", i, r, err_text(r));
	}
}

/* Half a million keys that share 65000 bytes each would be 32 GB. */
static void key_expansion_is_bounded(void **state)
{
	struct ocdbt_node *node = NULL;
	auto_buf body = { 0 }, b = { 0 };
	uint32_t n = 500000;

	buf_add(&body, "\x00\x00", 2);
	wire_put_varint(&body, n);
	for (uint32_t i = 1; i < n; i++)
		wire_put_varint(&body, 65000);
	wire_put_varint(&body, 65003);
	for (uint32_t i = 1; i < n; i++)
		wire_put_varint(&body, 3);
	buf_add_zero(&body, 65000);
	for (uint32_t i = 0; i < n; i++)
		buf_add(&body, (uint8_t[]){ (uint8_t)(i >> 16), (uint8_t)(i >> 8), (uint8_t)i }, 3);
	buf_add_zero(&body, (size_t)2 * n);
	assert_int_equal(ocdbt_frame_pack(OCDBT_BTREENODE, NULL, buf_span(&body), &b), 0);
	assert_int_equal(ocdbt_node_parse(buf_span(&b), NONE, &node), -EFBIG);
	assert_null(node);
}

/* ---- searching ---- */

static void key_of(uint32_t i, char *ret)
{
	sprintf(ret, "layer%04u/w/%u.%u", i / 1000, i % 1000 / 30 + 100, i % 1000 % 30 + 10);
}

static struct ocdbt_node *big_node(uint32_t n)
{
	auto_packer p = { 0 };
	auto_buf b = { 0 };
	struct ocdbt_stats stats;

	for (uint32_t i = 0; i < n; i++) {
		char key[64], path[64];
		struct ocdbt_entry e = { .value.kind = OCDBT_FILE };

		key_of(i, key);
		sprintf(path, "d/%032u", i % 7);
		e.key = span_str(key);
		e.value.ref = (struct ocdbt_ref){ .rel = span_str(path),
						  .off = (uint64_t)i * 4096,
						  .len = 4096 };
		assert_int_equal(ocdbt_packer_add(&p, &e), 0);
	}
	assert_int_equal(ocdbt_packer_pack(&p, 0, NULL, &b, &stats), 0);
	return node_of(buf_span(&b), NONE);
}

static void the_search_agrees_with_counting(void **state)
{
	auto_of(ocdbt_node) struct ocdbt_node *n = big_node(2000);
	uint64_t seed = 3;

	for (int round = 0; round < 3000; round++) {
		uint32_t i = test_random(&seed, n->n), want = 0;
		char key[64];

		key_of(i, key);
		/* Sometimes search a key that is between two, or before or after all. */
		if (test_random(&seed, 3) == 0)
			key[test_random(&seed, (uint32_t)strlen(key))] =
				(char)test_random(&seed, 256);
		for (uint32_t k = 0; k < n->n && span_cmp(ocdbt_node_key(n, k), span_str(key)) <= 0;
		     k++)
			want++;
		assert_int_equal(ocdbt_node_rank(n, span_str(key), test_random(&seed, n->n + 5)),
				 want);
	}
	assert_int_equal(ocdbt_node_rank(n, NONE, 0), 0);
	assert_int_equal(ocdbt_node_rank(n, S("\xff"), 0), 2000);
}

/* Time of the processor, so that a machine that is busy or stands still does not matter. */
static double seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/*
 * A full node: its memory, and the time of a hundred thousand look-ups, compared with that of as
 * many scans.
 */
static void a_full_node_is_small_and_fast(void **state)
{
	auto_of(ocdbt_node) struct ocdbt_node *n = big_node(LIMIT_NODE_ENTRIES);
	uint32_t hint = 0;
	double began;

	assert_int_equal(n->n, LIMIT_NODE_ENTRIES);
	assert_true(ocdbt_node_charge(n) < (uint64_t)n->n * 24 + n->key_end[n->n - 1] + 4 * MiB);
	began = seconds();
	for (uint32_t i = 0; i < 100000; i++) {
		char key[64];

		key_of(i * 10, key);
		hint = ocdbt_node_rank(n, span_str(key), hint) - 1;
		assert_int_equal(hint, i * 10);
	}
	assert_true(seconds() - began < 10.0);
}

static void repeated_letters_of_all_lengths_are_keys(void **state)
{
	auto_packer p = { 0 };
	auto_buf b = { 0 }, key = { 0 };
	auto_of(ocdbt_node) struct ocdbt_node *n = NULL;
	struct ocdbt_stats stats;

	/* "", "k", "kk", ... up to the longest key. */
	for (size_t i = 0; i <= LIMIT_KEY_BYTES; i += 4369) {
		struct ocdbt_entry e = test_entry(NONE, S("v"));

		buf_clear(&key);
		for (size_t k = 0; k < i; k++)
			buf_add_byte(&key, 'k');
		e.key = buf_span(&key);
		assert_int_equal(ocdbt_packer_add(&p, &e), 0);
	}
	assert_int_equal(p.n, 16);
	assert_int_equal(ocdbt_packer_pack(&p, 0, NULL, &b, &stats), 0);
	n = node_of(buf_span(&b), NONE);
	assert_int_equal(ocdbt_node_key(n, 0).n, 0);
	assert_int_equal(ocdbt_node_key(n, 15).n, LIMIT_KEY_BYTES);
}

int main(void)
{
	/* clang-format off */
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(inline_values_are_read),
		cmocka_unit_test(values_in_files_are_read),
		cmocka_unit_test(base_paths_are_read),
		cmocka_unit_test(interior_nodes_are_read),
		cmocka_unit_test(packing_gives_the_same_bytes),
		cmocka_unit_test(damage_is_refused),
		cmocka_unit_test(every_rule_is_checked),
		cmocka_unit_test(key_expansion_is_bounded),
		cmocka_unit_test(the_search_agrees_with_counting),
		cmocka_unit_test(a_full_node_is_small_and_fast),
		cmocka_unit_test(repeated_letters_of_all_lengths_are_keys),
	};
	/* clang-format on */

	return cmocka_run_group_tests(tests, NULL, NULL);
}
