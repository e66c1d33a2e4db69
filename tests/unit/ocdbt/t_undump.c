/* SPDX-License-Identifier: Apache-2.0 */
/*
 * t_undump.c - records as text and back: the same bytes, and refusals that name the line.
 */
#include "tests/unit/lib/ocdbt_test.h"

static void text_goes_back_to_the_same_bytes(void **state)
{
	const struct span vectors[] = {
		VEC(manifest_inline), VEC(manifest_empty), VEC(manifest_two),  VEC(manifest_ts),
		VEC(leaf_inline),     VEC(leaf_merged),    VEC_TS_LEAF_A,      VEC_TS_LEAF_B,
		VEC_TS_ROOT,          VEC(vnode_leaf),     VEC(vnode_interior)
	};

	for (size_t i = 0; i < ARRAY_LEN(vectors); i++) {
		auto_buf text = { 0 }, back = { 0 };

		assert_non_null(test_text(vectors[i], &text));
		assert_int_equal(ocdbt_record_undump(buf_span(&text), &back), 0);
		if (!span_eq(buf_span(&back), vectors[i]))
			fail_msg("vector %zu differs after\n%s", i, (const char *)text.p);
	}
}

static void compressed_records_keep_their_meaning(void **state)
{
	auto_buf text = { 0 }, back = { 0 }, again = { 0 };

	assert_non_null(test_text(VEC(leaf_mixed), &text));
	assert_int_equal(ocdbt_record_undump(buf_span(&text), &back), 0);
	assert_int_equal(back.p[13], OCDBT_ZSTD);
	assert_string_equal(test_text(buf_span(&back), &again), (const char *)text.p);
}

static void the_text_has_every_field(void **state)
{
	auto_buf leaf = { 0 }, root = { 0 }, manifest = { 0 }, vnode = { 0 };

	assert_string_equal(test_text(VEC(leaf_mixed), &leaf),
			    "btreenode\n"
			    "compression zstd\n"
			    "height 0\n"
			    "entry \"a\" inline \"b\"\n"
			    "entry \"b\" file \"\" \"d/00112233445566778899aabbccddeeff\" 0 2\n");
	assert_string_equal(
		test_text(VEC_TS_ROOT, &root),
		"btreenode\n"
		"compression none\n"
		"height 1\n"
		"child \"w/a/.zarray\" cut 4 node \"\" \"d/085055c458ad08b9e95374b324652525\" 14 78"
		" keys 2 tree_bytes 78 value_bytes 8\n"
		"child \"w/b/.zarray\" cut 4 node \"\" \"d/085055c458ad08b9e95374b324652525\" 92 78"
		" keys 2 tree_bytes 78 value_bytes 6\n");
	assert_string_equal(
		test_text(VEC(manifest_two), &manifest),
		"manifest\n"
		"compression none\n"
		"uuid 000102030405060708090a0b0c0d0e0f\n"
		"manifest_kind 0\n"
		"max_inline_value_bytes 100\n"
		"max_decoded_node_bytes 8388608\n"
		"version_tree_arity_log2 4\n"
		"config_compression none\n"
		"version 1 empty \"\" \"\" time 1700000000000000000\n"
		"version 2 height 0 root \"\" \"d/00112233445566778899aabbccddeeff\" 0 26"
		" keys 1 tree_bytes 26 value_bytes 0 time 1700000000000000001\n");
	assert_string_equal(
		test_text(VEC(vnode_interior), &vnode),
		"versionnode\n"
		"compression none\n"
		"version_tree_arity_log2 1\n"
		"height 1\n"
		"versionnode 2 height 0 node \"\" \"d/02c3a31edd2ae7a255c540622072a2d0\" 26 125"
		" generations 2 time 1795271261595018968\n");
}

static void odd_bytes_survive(void **state)
{
	static const char bytes[] = "\0\"%\n\xff plain ~[]{}";
	struct ocdbt_entry e =
		test_entry(span_of(bytes, sizeof(bytes)), span_of(bytes, sizeof(bytes)));
	auto_buf record = { 0 }, text = { 0 }, back = { 0 };
	struct ocdbt_stats stats;
	auto_packer p = { 0 };

	assert_int_equal(ocdbt_packer_add(&p, &e), 0);
	assert_int_equal(ocdbt_packer_pack(&p, 0, NULL, &record, &stats), 0);
	assert_non_null(test_text(buf_span(&record), &text));
	assert_non_null(strstr((const char *)text.p, "\"%00%22%25%0A%FF plain ~[]{}%00\""));
	assert_int_equal(ocdbt_record_undump(buf_span(&text), &back), 0);
	assert_true(span_eq(buf_span(&back), buf_span(&record)));
}

static void refusals_name_the_line(void **state)
{
	static const struct {
		const char *text, *want;
	} cases[] = {
		{ "", "empty text" },
		{ "nonsense\n", "line 1" },
		{ "btreenode\n", "line 1" },
		{ "btreenode\ncompression lz4\n", "line 2" },
		{ "btreenode\ncompression none\nheight x\n", "line 3 is not 'height %u'" },
		{ "btreenode\ncompression none\nheight 256\n", "line 3" },
		{ "btreenode\ncompression none\nheight 0\n", "without entries" },
		{ "btreenode\ncompression none\nheight 0\nentry \"a\" inline \"b\" \n", "line 4" },
		{ "btreenode\ncompression none\nheight 0\nentry \"a inline\n", "line 4" },
		{ "btreenode\ncompression none\nheight 0\nentry \"%4\" inline \"b\"\n", "line 4" },
		{ "btreenode\ncompression none\nheight 0\nentry \"%zz\" inline \"b\"\n", "line 4" },
		{ "btreenode\ncompression none\nheight 0\nentry \"b\" inline \"\"\nentry \"a\" inline \"\"\n",
		  "key 'a' follows 'b'" },
		{ "btreenode\ncompression none\nheight 1\nentry \"a\" inline \"b\"\n", "line 4" },
		{ "btreenode\ncompression none\nheight 1\nchild \"a\" cut 2 node \"\" \"\" 0 0 keys 0 tree_bytes 0"
		  " value_bytes 0\n",
		  "line 4" },
		{ "btreenode\ncompression none\nheight 0\nentry \"a\" file \"\" \"x\" 18446744073709551616 1\n",
		  "line 4" },
		{ "versionnode\ncompression none\nversion_tree_arity_log2 4\nheight 0\n",
		  "with 0 entries" },
		{ "versionnode\ncompression none\nversion_tree_arity_log2 17\nheight 0\n"
		  "version 1 empty \"\" \"\" time 0\n",
		  "arity 2^17" },
		{ "manifest\ncompression none\nuuid 00\n", "text ends before 'manifest_kind %u'" },
		{ "manifest\ncompression none\nuuid 00\nmanifest_kind 0\nmax_inline_value_bytes 1\n"
		  "max_decoded_node_bytes 1\nversion_tree_arity_log2 1\nconfig_compression none\n",
		  "cannot be stored" },
		{ "manifest\ncompression none\nuuid 00000000000000000000000000000000\nmanifest_kind 0\n"
		  "max_inline_value_bytes 1\nmax_decoded_node_bytes 1\nversion_tree_arity_log2 1\n"
		  "config_compression none\n",
		  "manifest with 0 versions" },
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		auto_buf b = { 0 };

		assert_int_equal(ocdbt_record_undump(span_str(cases[i].text), &b), -EINVAL);
		assert_int_equal(b.n, 0);
		if (!strstr(err_text(-EINVAL), cases[i].want))
			fail_msg("case %zu says '%s'", i, err_text(-EINVAL));
	}
}

/* Every prefix of a text is either refused or a record. */
static void truncated_texts_are_refused_cleanly(void **state)
{
	const struct span vectors[] = { VEC(manifest_two), VEC_TS_ROOT, VEC(leaf_merged),
					VEC(vnode_leaf) };

	for (size_t i = 0; i < ARRAY_LEN(vectors); i++) {
		auto_buf text = { 0 };

		assert_non_null(test_text(vectors[i], &text));
		for (size_t n = 0; n < text.n; n++) {
			auto_free uint8_t *exact = malloc(n + 1);
			auto_buf back = { 0 };
			int r;

			memcpy(exact, text.p, n);
			r = ocdbt_record_undump(span_of(exact, n), &back);
			assert_true(r == 0 || r == -EINVAL);
		}
	}
}

static void addresses_are_spelled_one_way(void **state)
{
	const struct ocdbt_ref ref = { S("p 1/"), S("d/a:b%\xff"), 4096, 812 };
	auto_buf a = { 0 }, f = { 0 };

	assert_int_equal(ocdbt_ref_text(&a, "btreenode", &ref), 0);
	assert_string_equal(buf_str(&a), "btreenode:p%201/d/a%3Ab%25%FF:4096:812");
	assert_int_equal(ocdbt_ref_text(&f, "file", &ref), 0);
	assert_string_equal(buf_str(&f), "file:p%201/d/a%3Ab%25%FF");
}

static void other_bytes_have_no_text(void **state)
{
	auto_buf b = { 0 };

	assert_int_equal(ocdbt_record_text(&b, S("no record at all, but long enough")), -EUCLEAN);
	assert_int_equal(ocdbt_record_text(&b, S("\x0c\xdb")), -EUCLEAN);
	assert_int_equal(ocdbt_record_text(&b, span_of(vec_leaf_inline, 25)), -EUCLEAN);
	assert_int_equal(b.n, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(text_goes_back_to_the_same_bytes),
		cmocka_unit_test(compressed_records_keep_their_meaning),
		cmocka_unit_test(the_text_has_every_field),
		cmocka_unit_test(odd_bytes_survive),
		cmocka_unit_test(refusals_name_the_line),
		cmocka_unit_test(truncated_texts_are_refused_cleanly),
		cmocka_unit_test(addresses_are_spelled_one_way),
		cmocka_unit_test(other_bytes_have_no_text),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
