/* SPDX-License-Identifier: Apache-2.0 */
/*
 * t_packer.c - building nodes: how much may be omitted, refusals, and random nodes packed and
 * parsed.
 */
#include "tests/unit/lib/ocdbt_test.h"

/* Pack, parse, and return the node with full keys again. */
static struct ocdbt_node *there_and_back(struct ocdbt_packer *p, unsigned strip,
					 struct ocdbt_stats *ret_stats)
{
	struct ocdbt_node *node;
	auto_buf b = { 0 };

	assert_int_equal(ocdbt_packer_pack(p, strip, NULL, &b, ret_stats), 0);
	assert_int_equal(ocdbt_node_parse(buf_span(&b), NONE, &node), 0);
	return node;
}

static void the_bytes_are_those_of_tensorstore(void **state)
{
	static const char path[] = "d/085055c458ad08b9e95374b324652525";
	const struct ocdbt_entry a[] = {
		test_entry(S("w/a/.zarray"), S("{}")),
		{ .key = S("w/a/0.0"),
		  .value = { .kind = OCDBT_FILE, .ref = { .rel = S(path), .len = 8 } } },
	};
	struct ocdbt_stats leaf_stats, root_stats;
	auto_packer leaf = { 0 }, root = { .height = 1 };
	auto_buf leaf_bytes = { 0 }, root_bytes = { 0 };

	for (size_t i = 0; i < ARRAY_LEN(a); i++)
		assert_int_equal(ocdbt_packer_add(&leaf, &a[i]), 0);
	assert_int_equal(ocdbt_packer_strip(&leaf), 4);
	assert_int_equal(ocdbt_packer_pack(&leaf, 4, NULL, &leaf_bytes, &leaf_stats), 0);
	assert_true(span_eq(buf_span(&leaf_bytes), VEC_TS_LEAF_A));
	assert_int_equal(leaf_stats.keys, 2);
	assert_int_equal(leaf_stats.value_bytes, 8);

	for (unsigned i = 0; i < 2; i++) {
		const struct ocdbt_ref ref = { .rel = S(path), .off = i ? 92 : 14, .len = 78 };
		const struct ocdbt_stats stats = { 2, 78, i ? 6 : 8 };

		assert_int_equal(ocdbt_packer_add_child(&root,
							i ? S("w/b/.zarray") : S("w/a/.zarray"), 4,
							&ref, &stats),
				 0);
	}
	assert_int_equal(ocdbt_packer_strip(&root), 2);
	assert_int_equal(ocdbt_packer_pack(&root, 0, NULL, &root_bytes, &root_stats), 0);
	assert_true(span_eq(buf_span(&root_bytes), VEC_TS_ROOT));
	assert_int_equal(root_stats.keys, 4);
	assert_int_equal(root_stats.tree_bytes, 156);
	assert_int_equal(root_stats.value_bytes, 14);
}

static void an_interior_node_strips_no_more_than_its_children(void **state)
{
	static const struct ocdbt_ref ref = { .len = 30 };
	static const struct ocdbt_stats stats = { 1, 30, 0 };
	auto_packer p = { .height = 3 };

	assert_int_equal(ocdbt_packer_add_child(&p, S("abcdef"), 5, &ref, &stats), 0);
	assert_int_equal(ocdbt_packer_strip(&p), 5);
	assert_int_equal(ocdbt_packer_add_child(&p, S("abcxyz"), 6, &ref, &stats), 0);
	assert_int_equal(ocdbt_packer_strip(&p), 3);
	assert_int_equal(ocdbt_packer_add_child(&p, S("abcxzz"), 1, &ref, &stats), 0);
	assert_int_equal(ocdbt_packer_strip(&p), 1);
}

static void entries_that_cannot_be_stored_are_refused(void **state)
{
	struct ocdbt_entry far = { .key = S("z"),
				   .value = { .kind = OCDBT_FILE,
					      .ref = { .off = INT64_MAX, .len = 1 } } };
	auto_buf big = { 0 };
	auto_packer p = { 0 };
	struct ocdbt_entry e;

	buf_add_zero(&big, LIMIT_INLINE_VALUE + 1);
	e = test_entry(S("b"), S("v"));
	assert_int_equal(ocdbt_packer_add(&p, &e), 0);
	assert_int_equal(ocdbt_packer_add(&p, &e), -EINVAL);
	e.key = S("a");
	assert_int_equal(ocdbt_packer_add(&p, &e), -EINVAL);
	assert_non_null(strstr(err_text(-EINVAL), "key 'a' follows 'b'"));
	e.key = span_of(big.p, LIMIT_KEY_BYTES + 1);
	assert_int_equal(ocdbt_packer_add(&p, &e), -EINVAL);
	e = test_entry(S("c"), buf_span(&big));
	assert_int_equal(ocdbt_packer_add(&p, &e), -EINVAL);
	assert_int_equal(ocdbt_packer_add(&p, &far), -EINVAL);
	far.value.ref.off--;
	assert_int_equal(ocdbt_packer_add(&p, &far), 0);
	/* The node has no part of the refused entries. */
	assert_int_equal(p.n, 2);
	e = test_entry(S("zz"), span_of(big.p, LIMIT_INLINE_VALUE));
	assert_int_equal(ocdbt_packer_add(&p, &e), 0);
	ocdbt_node_free(there_and_back(&p, 0, &(struct ocdbt_stats){ 0 }));
}

static void a_cleared_packer_begins_anew(void **state)
{
	auto_packer p = { 0 };

	for (int round = 0; round < 3; round++) {
		auto_of(ocdbt_node) struct ocdbt_node *node = NULL;
		struct ocdbt_entry e = { .key = S("aa"),
					 .value = { .kind = OCDBT_FILE,
						    .ref = { .rel = S("d/x"), .len = 5 } } };
		struct ocdbt_stats stats;

		assert_int_equal(ocdbt_packer_add(&p, &e), 0);
		e.key = S("ab");
		assert_int_equal(ocdbt_packer_add(&p, &e), 0);
		assert_int_equal(ocdbt_packer_strip(&p), 1);
		node = there_and_back(&p, 1, &stats);
		assert_int_equal(node->n, 2);
		assert_int_equal(node->files.n, 1);
		assert_int_equal(stats.value_bytes, 10);
		ocdbt_packer_clear(&p);
	}
}

struct made {
	char key[24], base[8], rel[8];
	uint8_t value[40];
	struct ocdbt_entry entry;
};

static void make_entry(uint64_t *seed, uint32_t i, struct made *m)
{
	struct ocdbt_value *v = &m->entry.value;

	snprintf(m->key, sizeof(m->key), "%s%05u%.*s", "pre/", i * 3 + test_random(seed, 3),
		 (int)test_random(seed, 5), "tail");
	snprintf(m->base, sizeof(m->base), "%.*s", (int)test_random(seed, 2) * 3, "p1/");
	snprintf(m->rel, sizeof(m->rel), "d/%u", test_random(seed, 5));
	memset(m->value, (int)i, sizeof(m->value));
	m->entry = (struct ocdbt_entry){ .key = span_str(m->key) };
	v->kind = test_random(seed, 2) ? OCDBT_FILE : OCDBT_INLINE;
	if (v->kind == OCDBT_INLINE)
		v->bytes = span_of(m->value, test_random(seed, sizeof(m->value) + 1));
	else
		v->ref = (struct ocdbt_ref){ span_str(m->base), span_str(m->rel),
					     test_random(seed, 1u << 30),
					     test_random(seed, 1u << 20) };
}

static void random_leaves_are_read_back(void **state)
{
	uint64_t seed = 11;

	for (int round = 0; round < 200; round++) {
		uint32_t n = 1 + test_random(&seed, 60);
		auto_free struct made *made = calloc(n, sizeof(*made));
		auto_of(ocdbt_node) struct ocdbt_node *node = NULL;
		struct ocdbt_stats stats, again;
		auto_packer p = { 0 };
		unsigned strip;

		for (uint32_t i = 0; i < n; i++) {
			make_entry(&seed, i, &made[i]);
			assert_int_equal(ocdbt_packer_add(&p, &made[i].entry), 0);
		}
		strip = test_random(&seed, ocdbt_packer_strip(&p) + 1);
		node = there_and_back(&p, strip, &stats);
		ocdbt_node_stats(node, &again);
		assert_memory_equal(&stats, &again, sizeof(stats));
		for (uint32_t i = 0; i < n; i++) {
			const struct ocdbt_value *want = &made[i].entry.value;
			struct ocdbt_value v;

			ocdbt_node_value(node, i, &v);
			assert_true(span_eq(ocdbt_node_key(node, i),
					    span_from(made[i].entry.key, strip)));
			assert_int_equal(v.kind, want->kind);
			assert_true(span_eq(v.bytes, want->bytes));
			assert_true(span_eq(v.ref.base, want->ref.base) &&
				    span_eq(v.ref.rel, want->ref.rel));
			assert_true(v.ref.off == want->ref.off && v.ref.len == want->ref.len);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_bytes_are_those_of_tensorstore),
		cmocka_unit_test(an_interior_node_strips_no_more_than_its_children),
		cmocka_unit_test(entries_that_cannot_be_stored_are_refused),
		cmocka_unit_test(a_cleared_packer_begins_anew),
		cmocka_unit_test(random_leaves_are_read_back),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
