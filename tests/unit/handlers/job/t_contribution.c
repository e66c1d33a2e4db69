/* SPDX-License-Identifier: Apache-2.0 */
/*
 * t_contribution.c - the contribution of a rank, packed, truncated and damaged; boxes that tile an
 * array or do not.
 */
#include "tests/unit/lib/unit.h"

#include "handlers/job/contribution.h"

static void packed_text(struct buf *b, const char *text)
{
	int number = 0;

	while (strcmp(leaf_types[number]->name, "string"))
		number++;
	assert_int_equal(wire_put_u8(b, (uint8_t)number), 0);
	assert_int_equal(wire_put_u8(b, 1), 0);
	assert_int_equal(wire_put_u32le(b, DTYPE_UNKNOWN), 0);
	assert_int_equal(wire_put_u32le(b, 0), 0);
	for (int i = 0; i < 2; i++)
		assert_int_equal(pack_text(b, span_of(NULL, 0)), 0);
	assert_int_equal(pack_text(b, span_str(text)), 0);
	assert_int_equal(wire_put_u8(b, 0), 0);
}

static void packed_type(struct buf *b, uint32_t n_fields)
{
	assert_int_equal(pack_text(b, span_str("m.x")), 0);
	assert_int_equal(pack_text(b, span_str("Pair")), 0);
	assert_int_equal(wire_put_u32le(b, n_fields), 0);
	assert_int_equal(pack_text(b, span_str("w")), 0);
	assert_int_equal(pack_text(b, span_str("t")), 0);
}

/* Chunks of 4 by 4 elements in a format and an item of any number, and blosc of all its fields. */
static void packed_layout(struct buf *b)
{
	assert_int_equal(wire_put_u8(b, 1), 0);
	for (int i = 0; i < 2; i++)
		assert_int_equal(wire_put_u32le(b, 2), 0);
	assert_int_equal(wire_put_u8(b, COMPRESSION_BLOSC), 0);
	assert_int_equal(wire_put_u32le(b, 5), 0);
	assert_int_equal(wire_put_u8(b, 1), 0);
	assert_int_equal(wire_put_u8(b, (uint8_t)-1), 0);
	assert_int_equal(wire_put_u64le(b, 512 * KiB), 0);
	assert_int_equal(wire_put_u64le(b, 2), 0);
	assert_int_equal(wire_put_u64le(b, 1), 0);
	for (int i = 0; i < 2; i++)
		assert_int_equal(wire_put_u64le(b, 4), 0);
}

/* A share with a tree of two leaves, which is a namedtuple: an array in two boxes, and a text. */
static void packed(struct buf *b)
{
	static const uint64_t numbers[] = { 8, 4 };

	assert_int_equal(pack_text(b, span_str("101")), 0);
	assert_int_equal(pack_text(b, span_of(NULL, 0)), 0);
	assert_int_equal(wire_put_u32le(b, 1), 0);
	assert_int_equal(pack_text(b, span_str("default")), 0);
	assert_int_equal(pack_text(b, span_str("handler")), 0);
	assert_int_equal(wire_put_u8(b, PLAN_TREE), 0);
	assert_int_equal(wire_put_u8(b, 1 | 8 | 16), 0);
	assert_int_equal(wire_put_u32le(b, 2), 0);
	for (uint8_t is_dir = 0; is_dir < 2; is_dir++) {
		assert_int_equal(wire_put_u8(b, is_dir), 0);
		assert_int_equal(pack_text(b, span_str(is_dir ? "assets/void" : "notes.md")), 0);
	}
	assert_int_equal(pack_text(b, span_of(NULL, 0)), 0);
	assert_int_equal(wire_put_u32le(b, 2), 0);
	assert_int_equal(wire_put_u8(b, (uint8_t)leaf_type_number(&leaf_array)), 0);
	assert_int_equal(wire_put_u8(b, 1 | 2), 0);
	assert_int_equal(wire_put_u32le(b, DTYPE_INT8), 0);
	assert_int_equal(wire_put_u32le(b, 2), 0);
	for (int i = 0; i < 2; i++)
		assert_int_equal(wire_put_u64le(b, numbers[i]), 0);
	assert_int_equal(pack_text(b, span_of(NULL, 0)), 0);
	assert_int_equal(pack_text(b, span_str("impl")), 0);
	assert_int_equal(pack_text(b, span_of(NULL, 0)), 0);
	assert_int_equal(wire_put_u8(b, 1), 0);
	assert_int_equal(wire_put_u32le(b, 2), 0);
	for (int k = 0; k < 2; k++) {
		for (int i = 0; i < 4; i++)
			assert_int_equal(wire_put_u64le(b, (uint64_t)(4 * k + i)), 0);
		packed_layout(b);
	}
	packed_text(b, "a text");
	assert_int_equal(wire_put_u32le(b, 3), 0);
	for (uint32_t i = 0; i < 3; i++) {
		assert_int_equal(wire_put_u8(b, i ? 0 : 2), 0);
		assert_int_equal(wire_put_u8(b, i ? TREE_LEAF : TREE_DICT), 0);
		assert_int_equal(pack_text(b, span_str(i == 1 ? "w" : i ? "t" : "")), 0);
		if (i == 0)
			packed_type(b, 2);
		assert_int_equal(wire_put_u32le(b, i), 0);
		assert_int_equal(wire_put_u32le(b, i ? 0 : 2), 0);
	}
}

static void a_contribution_is_understood(void **state)
{
	const struct compression *c;
	struct contribution s;
	auto_buf b = { 0 };

	packed(&b);
	assert_int_equal(contribution_parse(buf_span(&b), &s), 0);
	assert_int_equal(s.n_items, 1);
	assert_int_equal(s.item[0].n_leaves, 2);
	assert_int_equal(s.item[0].leaf[0].n_boxes, 2);
	assert_int_equal(s.item[0].leaf[0].box[1].box.extent[0], 6);
	assert_ptr_equal(s.item[0].leaf[0].desc.type, &leaf_array);
	assert_true(s.item[0].leaf[0].desc.is_jax && s.item[0].leaf[0].in_parts);
	assert_int_equal(s.item[0].leaf[0].desc.array.shape[1], 4);
	c = &s.item[0].leaf[0].box[1].layout.compression;
	assert_int_equal(c->kind, COMPRESSION_BLOSC);
	assert_true(c->level == 5 && c->cname == 1 && c->shuffle == -1);
	assert_true(c->block == 512 * KiB && c->typesize == 2);
	assert_null(s.item[0].leaf[0].desc.sharding.p);
	assert_true(span_eq(s.item[0].leaf[0].desc.key_impl, span_str("impl")));
	assert_string_equal(s.item[0].leaf[1].desc.type->name, "string");
	assert_true(span_eq(s.item[0].leaf[1].desc.value, span_str("a text")));
	assert_true(s.item[0].ocdbt && s.item[0].array_metadata && s.item[0].store_fill_value &&
		    !s.item[0].rich_types);
	assert_null(s.custom.p);
	assert_int_equal(s.item[0].n_files, 2);
	assert_true(!s.item[0].file[0].is_dir && s.item[0].file[1].is_dir);
	assert_true(span_eq(s.item[0].file[1].name, span_str("assets/void")));
	assert_int_equal(s.item[0].node[0].n_children, 2);
	assert_true(span_eq(s.item[0].node[0].type->module, span_str("m.x")));
	assert_true(span_eq(s.item[0].node[0].type->clazz, span_str("Pair")));
	assert_int_equal(s.item[0].node[0].type->n_fields, 2);
	assert_true(span_eq(s.item[0].node[0].type->fields[1], span_str("t")));
	assert_null(s.item[0].node[1].type);
	contribution_release(&s);
}

/* A share of one node, of that kind. */
static void packed_node(struct buf *b, enum tree_kind kind, uint32_t n_fields)
{
	assert_int_equal(pack_text(b, span_str("101")), 0);
	assert_int_equal(pack_text(b, span_of(NULL, 0)), 0);
	assert_int_equal(wire_put_u32le(b, 1), 0);
	assert_int_equal(pack_text(b, span_str("default")), 0);
	assert_int_equal(pack_text(b, span_of(NULL, 0)), 0);
	assert_int_equal(wire_put_u8(b, PLAN_TREE), 0);
	assert_int_equal(wire_put_u8(b, 64), 0);
	assert_int_equal(wire_put_u32le(b, 0), 0);
	assert_int_equal(pack_text(b, span_of(NULL, 0)), 0);
	assert_int_equal(wire_put_u32le(b, 0), 0);
	assert_int_equal(wire_put_u32le(b, 1), 0);
	assert_int_equal(wire_put_u8(b, 2), 0);
	assert_int_equal(wire_put_u8(b, (uint8_t)kind), 0);
	assert_int_equal(pack_text(b, span_str("")), 0);
	packed_type(b, n_fields);
	assert_int_equal(wire_put_u32le(b, 0), 0);
	assert_int_equal(wire_put_u32le(b, 0), 0);
}

static void a_type_is_of_a_dict_and_has_its_fields(void **state)
{
	static const struct {
		enum tree_kind kind;
		uint32_t n_fields;
		int r;
	} cases[] = {
		{ TREE_DICT, 2, 0 },
		{ TREE_LIST, 2, -EIO },
		{ TREE_LEAF, 2, -EIO },
		{ TREE_DICT, 0, -EIO },
		{ TREE_DICT, 3, -EIO }, /* the third is the number of a leaf, which is not a text */
		{ TREE_DICT, UINT32_MAX, -EIO },
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct contribution s = { 0 };
		auto_buf b = { 0 };

		packed_node(&b, cases[i].kind, cases[i].n_fields);
		if (contribution_parse(buf_span(&b), &s) != cases[i].r)
			fail_msg("case %zu", i);
		if (cases[i].r == 0)
			assert_true(s.item[0].rich_off);
		contribution_release(&s);
	}
}

static void a_contribution_that_is_truncated_is_refused(void **state)
{
	auto_buf b = { 0 };

	packed(&b);
	for (size_t n = 0; n < b.n; n++) {
		struct contribution s = { .n_items = 77 };
		uint8_t *copy = malloc(n + 1);

		memcpy(copy, b.p, n);
		assert_int_equal(contribution_parse(span_of(copy, n), &s), -EIO);
		assert_int_equal(s.n_items, 77);
		free(copy);
	}
}

static void a_damaged_contribution_is_refused_or_read(void **state)
{
	auto_buf b = { 0 };

	packed(&b);
	for (size_t at = 0; at < b.n; at++)
		for (unsigned v = 1; v < 256; v += 50) {
			struct contribution s = { .n_items = 77 };
			int r;

			b.p[at] ^= (uint8_t)v;
			r = contribution_parse(buf_span(&b), &s);
			b.p[at] ^= (uint8_t)v;
			if (r < 0)
				assert_int_equal(s.n_items, 77);
			else
				contribution_release(&s);
		}
}

static void an_assignment_is_the_same_afterwards(void **state)
{
	const struct assignment e = { TAKE_WHOLE, true, 3, 5, UINT64_MAX };
	struct assignment back;
	auto_buf b = { 0 };
	struct wire w;

	assert_int_equal(assignment_pack(&e, &b), 0);
	w = wire_of(buf_span(&b));
	assignment_parse(&w, &back);
	assert_true(wire_ok(&w) && wire_left(&w) == 0);
	assert_int_equal(back.take, e.take);
	assert_int_equal(back.document, e.document);
	assert_int_equal(back.axis, e.axis);
	assert_true(back.from == e.from && back.to == e.to);
}

static void boxes_tile_or_are_refused(void **state)
{
	static const uint64_t shape[2] = { 8, 6 };
	static const struct {
		struct box box[4];
		size_t n;
		const char *says; /* NULL: they tile */
	} cases[] = {
		{ { { { 0, 0 }, { 8, 6 }, 0 } }, 1, NULL },
		{ { { { 0, 0 }, { 4, 6 }, 0 }, { { 4, 0 }, { 4, 6 }, 1 } }, 2, NULL },
		{ { { { 4, 0 }, { 4, 3 }, 2 },
		    { { 0, 0 }, { 4, 6 }, 0 },
		    { { 4, 3 }, { 4, 3 }, 1 } },
		  3,
		  NULL },
		{ { { { 0, 0 }, { 5, 6 }, 0 }, { { 4, 0 }, { 4, 6 }, 1 } },
		  2,
		  "[0:5,0:6] of rank 0 and [4:8,0:6] of rank 1" },
		{ { { { 0, 0 }, { 4, 6 }, 0 } }, 1, "24 of 48 elements, nobody has [4,0]" },
		{ { { { 0, 0 }, { 8, 3 }, 0 }, { { 0, 3 }, { 4, 3 }, 1 } },
		  2,
		  "36 of 48 elements, nobody has [4,3]" },
		{ { { { 0, 0 }, { 0, 6 }, 0 }, { { 0, 0 }, { 8, 6 }, 1 } }, 2, NULL },
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		int r = boxes_check(cases[i].box, cases[i].n, 2, shape, "w");

		assert_int_equal(r, cases[i].says ? -EINVAL : 0);
		if (cases[i].says && !strstr(err_text(r), cases[i].says))
			fail_msg("case %zu says '%s'", i, err_text(r));
	}
	assert_int_equal(boxes_check(cases[0].box, 1, 0, shape, "scalar"), 0);
}

/* Element e of the whole is e; box 0 has the left columns, box 1 the right ones. */
static const struct box halves[] = { { { 0, 0 }, { 4, 3 }, 0 }, { { 0, 3 }, { 4, 2 }, 1 } };

static int read_half(void *arg, size_t i, uint64_t first, uint64_t n, uint8_t *p)
{
	for (uint64_t k = first; k < first + n; k++)
		*p++ = (uint8_t)(k / halves[i].extent[1] * 5 + halves[i].start[1] +
				 k % halves[i].extent[1]);
	return 0;
}

static void a_whole_is_read_through_its_boxes(void **state)
{
	const uint64_t shape[2] = { 4, 5 };
	struct box_reader rd = {
		.box = halves, .n = 2, .array = { DTYPE_UINT8, 2, shape }, .read = read_half
	};
	uint8_t out[20];

	for (size_t off = 0; off < 20; off++)
		for (size_t n = 0; off + n <= 20; n++) {
			assert_int_equal(boxes_read(&rd, off, n, out), 0);
			for (size_t k = 0; k < n; k++)
				assert_int_equal(out[k], off + k);
		}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_contribution_is_understood),
		cmocka_unit_test(a_type_is_of_a_dict_and_has_its_fields),
		cmocka_unit_test(a_contribution_that_is_truncated_is_refused),
		cmocka_unit_test(a_damaged_contribution_is_refused_or_read),
		cmocka_unit_test(an_assignment_is_the_same_afterwards),
		cmocka_unit_test(boxes_tile_or_are_refused),
		cmocka_unit_test(a_whole_is_read_through_its_boxes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
