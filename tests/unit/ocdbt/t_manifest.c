/* SPDX-License-Identifier: Apache-2.0 */
/*
 * t_manifest.c - manifests: the test vectors field by field, each rule broken once, and packing.
 */
#include "tests/unit/lib/ocdbt_test.h"

#define TIME 1700000000000000000u

static int parse(struct span stored)
{
	auto_manifest m = { 0 };
	auto_buf again = { 0 };
	int r = ocdbt_manifest_parse(stored, &m);

	if (r < 0) {
		/* Outputs are untouched. */
		assert_null(m.arena.top);
		assert_int_equal(m.n_versions, 0);
		return r;
	}
	/* A manifest that was read can be packed. */
	assert_int_equal(ocdbt_manifest_pack(&m, NULL, &again), 0);
	return 0;
}

static void check_uuid(const struct ocdbt_config *c)
{
	for (int i = 0; i < 16; i++)
		assert_int_equal(c->uuid[i], i);
}

static void the_smallest_one_is_read(void **state)
{
	auto_manifest m = { 0 };

	assert_int_equal(ocdbt_manifest_parse(VEC(manifest_inline), &m), 0);
	check_uuid(&m.config);
	assert_int_equal(m.config.kind, OCDBT_SINGLE);
	assert_int_equal(m.config.max_inline_value_bytes, 100);
	assert_int_equal(m.config.max_decoded_node_bytes, 8388608);
	assert_int_equal(m.config.arity_log2, 4);
	assert_int_equal(m.config.compression, OCDBT_PLAIN);
	assert_int_equal(m.n_versions, 1);
	assert_int_equal(m.n_nodes, 0);
	assert_int_equal(m.versions[0].generation, 1);
	assert_int_equal(m.versions[0].root_height, 0);
	assert_true(span_eq(m.versions[0].root.base, NONE));
	assert_true(span_eq(m.versions[0].root.rel, S("d/00112233445566778899aabbccddeeff")));
	assert_int_equal(m.versions[0].root.off, 0);
	assert_int_equal(m.versions[0].root.len, 26);
	assert_int_equal(m.versions[0].stats.keys, 1);
	assert_int_equal(m.versions[0].stats.tree_bytes, 26);
	assert_int_equal(m.versions[0].stats.value_bytes, 0);
	assert_int_equal(m.versions[0].commit_time, TIME);
	assert_false(ocdbt_version_is_empty(&m.versions[0]));
}

static void empty_versions_are_read(void **state)
{
	auto_manifest m = { 0 }, two = { 0 };

	assert_int_equal(ocdbt_manifest_parse(VEC(manifest_empty), &m), 0);
	assert_int_equal(m.n_versions, 1);
	assert_true(ocdbt_version_is_empty(&m.versions[0]));
	assert_int_equal(ocdbt_manifest_parse(VEC(manifest_two), &two), 0);
	assert_int_equal(two.n_versions, 2);
	assert_true(ocdbt_version_is_empty(&two.versions[0]));
	assert_int_equal(two.versions[1].generation, 2);
	assert_int_equal(two.versions[1].commit_time, TIME + 1);
	assert_true(span_eq(two.versions[1].root.rel, S("d/00112233445566778899aabbccddeeff")));
}

static void tensorstores_manifest_is_read(void **state)
{
	auto_manifest m = { 0 };

	assert_int_equal(ocdbt_manifest_parse(VEC(manifest_ts), &m), 0);
	assert_int_equal(m.config.max_inline_value_bytes, 4);
	assert_int_equal(m.config.max_decoded_node_bytes, 120);
	assert_int_equal(m.versions[0].root_height, 1);
	assert_int_equal(m.versions[0].root.off, 170);
	assert_int_equal(m.versions[0].root.len, 94);
	assert_int_equal(m.versions[0].stats.keys, 4);
	assert_int_equal(m.versions[0].stats.tree_bytes, 250);
	assert_int_equal(m.versions[0].stats.value_bytes, 14);
	assert_int_equal(m.versions[0].commit_time, 1795271261585784125);
}

static void packing_gives_the_same_bytes(void **state)
{
	/* clang-format off */
	static const struct {
		const uint8_t *p;
		size_t n;
	} vectors[] = {
		{ vec_manifest_inline, sizeof(vec_manifest_inline) },
		{ vec_manifest_empty, sizeof(vec_manifest_empty) },
		{ vec_manifest_two, sizeof(vec_manifest_two) },
		{ vec_manifest_ts, sizeof(vec_manifest_ts) },
	};
	/* clang-format on */

	for (size_t i = 0; i < ARRAY_LEN(vectors); i++) {
		auto_manifest m = { 0 };
		auto_buf b = { 0 };

		assert_int_equal(ocdbt_manifest_parse(span_of(vectors[i].p, vectors[i].n), &m), 0);
		assert_int_equal(ocdbt_manifest_pack(&m, &m.config, &b), 0);
		assert_true(span_eq(buf_span(&b), span_of(vectors[i].p, vectors[i].n)));
	}
}

static void damage_is_refused(void **state)
{
	test_falsify(VEC(manifest_inline), parse);
	test_falsify(VEC(manifest_empty), parse);
	test_falsify(VEC(manifest_two), parse);
	test_falsify(VEC(manifest_ts), parse);
}

/* A manifest of arity 4 at generation 30 with version nodes where they are allowed. */
static struct ocdbt_version versions[2];
static struct ocdbt_version_ref nodes[3];

static void fresh(struct ocdbt_manifest *m)
{
	*m = (struct ocdbt_manifest){
		.versions = versions, .n_versions = 2, .nodes = nodes, .n_nodes = 2
	};
	m->config.arity_log2 = 2;
	m->config.max_decoded_node_bytes = 7;
	for (int i = 0; i < 2; i++)
		versions[i] = (struct ocdbt_version){ .generation = 29u + (unsigned)i,
						      .commit_time = 500u + (unsigned)i,
						      .root.rel = S("d/a"),
						      .root.len = 30,
						      .stats = { 1, 30, 0 } };
	nodes[0] = (struct ocdbt_version_ref){ .generation = 16,
					       .height = 2,
					       .num_generations = 16,
					       .commit_time = 100,
					       .node = { .rel = S("d/b"), .len = 50 } };
	nodes[1] = (struct ocdbt_version_ref){ .generation = 28,
					       .height = 1,
					       .num_generations = 12,
					       .commit_time = 300,
					       .node = { .rel = S("d/c"), .len = 50 } };
}

static int pack_and_parse(const struct ocdbt_manifest *m)
{
	auto_buf b = { 0 };

	assert_int_equal(ocdbt_manifest_pack(m, NULL, &b), 0);
	return parse(buf_span(&b));
}

/* One change each; the parser must find what the packer does not assert. */
static void broken(int i, struct ocdbt_manifest *m)
{
	/* clang-format off */
	switch (i) {
	case 0: versions[1].generation = 29; break;
	case 1: versions[0].generation = 0; break;
	case 2: versions[1].generation = 33; break;		/* another block of four */
	case 3: versions[1].commit_time = 500; break;
	case 4: versions[0].root.off = INT64_MAX; break;
	case 5: versions[0].root.off = OCDBT_NO_ROOT; break;	/* only half of the mark */
	case 6: versions[0].root.off = versions[0].root.len = OCDBT_NO_ROOT; break;	/* with statistics */
	case 7: nodes[0].height = 1; break;
	case 8: nodes[1].height = 0; break;
	case 9: nodes[1].height = 3, nodes[0].height = 4; break;	/* not reached at generation 30 */
	case 10: nodes[1].generation = 16, nodes[0].generation = 12; break;	/* below height 1's range */
	case 11: nodes[1].generation = 32; break;
	case 12: nodes[1].generation = 26; break;		/* not a multiple of 4 */
	case 13: nodes[0].generation = 12; break;		/* not a multiple of 16 */
	case 14: nodes[1].num_generations = 17; break;
	case 15: nodes[1].num_generations = 0; break;
	case 16: nodes[0].num_generations = 65; break;
	case 17: nodes[1].commit_time = 100; break;
	case 18: nodes[1].commit_time = 500; break;		/* not before the inline versions */
	case 19: nodes[0].node.off = INT64_MAX; break;
	case 20: nodes[0].height = 31; break;
	case 21: m->config.zstd_level = 23, m->config.compression = OCDBT_ZSTD; break;
	case 22: m->config.zstd_level = -131073, m->config.compression = OCDBT_ZSTD; break;
	default: fail_msg("no such case");
	}
	/* clang-format on */
}

static void every_rule_is_checked(void **state)
{
	struct ocdbt_manifest m;

	fresh(&m);
	assert_int_equal(pack_and_parse(&m), 0);
	for (int i = 0; i <= 22; i++) {
		fresh(&m);
		broken(i, &m);
		if (pack_and_parse(&m) != -EUCLEAN)
			fail_msg("rule %d is not checked", i);
	}
}

static void gaps_are_allowed(void **state)
{
	struct ocdbt_manifest m;

	fresh(&m);
	m.n_nodes = 1; /* height 1 is missing */
	assert_int_equal(pack_and_parse(&m), 0);
	m.nodes = &nodes[1]; /* height 2 is missing */
	assert_int_equal(pack_and_parse(&m), 0);
	m.n_nodes = 0;
	m.n_versions = 1;
	versions[0].generation = 1000003;
	assert_int_equal(pack_and_parse(&m), 0);
	versions[0].generation = UINT64_MAX;
	assert_int_equal(pack_and_parse(&m), 0);
}

static void ranges_are_those_of_the_readme(void **state)
{
	/* clang-format off */
	static const struct {
		unsigned a;
		uint64_t g;
		unsigned height;
		bool ok;
		uint64_t low, high;
	} cases[] = {
		{ 2, 30, 1, true, 16, 28 }, { 2, 30, 2, true, 0, 16 }, { 2, 30, 3, false, 0, 0 },
		{ 4, 16, 1, false, 0, 0 },  { 4, 17, 1, true, 0, 16 }, { 4, 17, 2, false, 0, 0 },
		{ 4, 300, 1, true, 256, 288 }, { 4, 300, 2, true, 0, 256 },
		{ 1, 1, 1, false, 0, 0 },   { 1, 0, 1, false, 0, 0 },
		{ 1, UINT64_MAX, 62, true, 0x8000000000000000, 0xc000000000000000 }, { 1, UINT64_MAX, 63, false, 0, 0 },
		{ 16, UINT64_MAX, 2, true, 0xffff000000000000, 0xffffffff00000000 },
		{ 16, UINT64_MAX, 3, false, 0, 0 },
	};
	/* clang-format on */

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		uint64_t low = 0, high = 0;
		bool ok =
			ocdbt_manifest_range(cases[i].a, cases[i].g, cases[i].height, &low, &high);

		if (ok != cases[i].ok || (ok && (low != cases[i].low || high != cases[i].high)))
			fail_msg("case %zu: %d, %llx to %llx", i, ok, (unsigned long long)low,
				 (unsigned long long)high);
	}
}

static void configurations_have_their_ranges(void **state)
{
	/* Offsets in vec_manifest_inline: kind 1e, limits 1f and 20, arity 24, compression 25. */
	/* clang-format off */
	static const struct {
		size_t at;
		uint8_t byte;
		int code;
	} cases[] = {
		{ 0x1e, 2, -EOPNOTSUPP }, { 0x24, 0, -EUCLEAN }, { 0x24, 17, -EUCLEAN }, { 0x24, 16, 0 },
		{ 0x24, 1, 0 },		  { 0x25, 2, -EOPNOTSUPP },
		{ 0x1e, 1, -EUCLEAN },	  /* a numbered one has no versions: bytes are left over */
	};
	/* clang-format on */

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		auto_buf b = { 0 };

		buf_add_span(&b, VEC(manifest_inline));
		b.p[cases[i].at] = cases[i].byte;
		test_fix_crc(&b);
		if (parse(buf_span(&b)) != cases[i].code)
			fail_msg("case %zu: %s", i, err_text(cases[i].code));
	}
}

static void the_numbered_kind_has_no_versions(void **state)
{
	struct ocdbt_manifest m = { .config = { .kind = OCDBT_NUMBERED,
						.arity_log2 = 4,
						.compression = OCDBT_ZSTD,
						.zstd_level = -7 } };
	auto_manifest back = { 0 };
	auto_buf b = { 0 };

	assert_int_equal(ocdbt_manifest_pack(&m, &m.config, &b), 0);
	assert_int_equal(ocdbt_manifest_parse(buf_span(&b), &back), 0);
	assert_int_equal(back.config.kind, OCDBT_NUMBERED);
	assert_int_equal(back.config.zstd_level, -7);
	assert_int_equal(back.n_versions, 0);
}

/* Empty, two hundred times nothing, and an array that claims more elements than there are bytes. */
static void counts_are_compared_with_the_bytes_left(void **state)
{
	static const uint8_t big[] = { 0xff, 0xff, 0x03 };
	auto_buf b = { 0 }, body = { 0 };

	/* Arity 2^16, one file, 65535 versions, and no bytes for them. */
	buf_add(&body, vec_manifest_inline + 14, 0x26 - 14);
	body.p[0x24 - 14] = 16;
	buf_add(&body, "\x01\x00\x00", 3);
	buf_add(&body, big, sizeof(big));
	assert_int_equal(ocdbt_frame_pack(OCDBT_MANIFEST, NULL, buf_span(&body), &b), 0);
	assert_int_equal(parse(buf_span(&b)), -EUCLEAN);
	assert_non_null(strstr(err_text(-EUCLEAN), "array of 65535 versions is truncated"));
}

int main(void)
{
	/* clang-format off */
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_smallest_one_is_read),
		cmocka_unit_test(empty_versions_are_read),
		cmocka_unit_test(tensorstores_manifest_is_read),
		cmocka_unit_test(packing_gives_the_same_bytes),
		cmocka_unit_test(damage_is_refused),
		cmocka_unit_test(every_rule_is_checked),
		cmocka_unit_test(gaps_are_allowed),
		cmocka_unit_test(ranges_are_those_of_the_readme),
		cmocka_unit_test(configurations_have_their_ranges),
		cmocka_unit_test(the_numbered_kind_has_no_versions),
		cmocka_unit_test(counts_are_compared_with_the_bytes_left),
	};
	/* clang-format on */

	return cmocka_run_group_tests(tests, NULL, NULL);
}
