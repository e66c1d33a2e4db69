/* SPDX-License-Identifier: Apache-2.0 */
/*
 * t_tree_msgpack.c - the aggregate file: every kind of value, hostile counts and depths, damage at
 * every byte, and reading back what was written. tests/interop has real files.
 */
#include "tests/unit/lib/unit.h"

#include <string.h>

#include "core/tree/tree.h"

#define BYTES(s)                 \
	{                        \
		s, sizeof(s) - 1 \
	}

struct bytes {
	const char *p;
	size_t n;
};

static int parse(struct bytes b, struct tree **ret)
{
	return tree_parse_aggregate(span_of(b.p, b.n), "'checkpoint'", ret);
}

static const char *lines(const struct tree *tree, struct buf *out)
{
	tree_text(out, tree);
	return strchr(buf_str(out), '\n') + 1;
}

/* Files and their trees. */
/* clang-format off */
static const struct {
	struct bytes in;
	const char *want;
} examples[] = {
	{ BYTES("\xc0"), ". leaf none \"None\" param \"\"\n" },
	{ BYTES("\xc3"), ". leaf aggregate \"scalar\" param \"\": true\n" },
	{ BYTES("\x7f"), ". leaf aggregate \"scalar\" param \"\": int 127\n" },
	{ BYTES("\xe0"), ". leaf aggregate \"scalar\" param \"\": int -32\n" },
	{ BYTES("\xcc\xff"), ". leaf aggregate \"scalar\" param \"\": int 255\n" },
	{ BYTES("\xcd\x01\x00"), ". leaf aggregate \"scalar\" param \"\": int 256\n" },
	{ BYTES("\xce\xff\xff\xff\xff"), ". leaf aggregate \"scalar\" param \"\": int "
	  "4294967295\n" },
	{ BYTES("\xcf\x80\0\0\0\0\0\0\0"), ". leaf aggregate \"scalar\" param \"\": int "
	  "9223372036854775808\n" },
	{ BYTES("\xd0\x80"), ". leaf aggregate \"scalar\" param \"\": int -128\n" },
	{ BYTES("\xd1\x80\0"), ". leaf aggregate \"scalar\" param \"\": int -32768\n" },
	{ BYTES("\xd2\x80\0\0\0"), ". leaf aggregate \"scalar\" param \"\": int "
	  "-2147483648\n" },
	{ BYTES("\xd3\x80\0\0\0\0\0\0\0"), ". leaf aggregate \"scalar\" param \"\": int "
	  "-9223372036854775808\n" },
	{ BYTES("\xca\x3f\x80\0\0"), ". leaf aggregate \"scalar\" param \"\": float "
	  "1.0\n" },
	{ BYTES("\xcb\x3f\xf8\0\0\0\0\0\0"), ". leaf aggregate \"scalar\" param \"\": "
	  "float 1.5\n" },
	{ BYTES("\xb4//GDAPlaceholder:a/w"), ". leaf stored \"np.ndarray\" param \"a/w\"\n" },
	{ BYTES("\x83\xa6" "driver" "\xa4zarr" "\xa7kvstore" "\x82\xa6" "driver" "\xa4" "file" "\xa4path"
		"\xa4t.w/" "\xa8metadata" "\x81\xa5shape" "\x91\x02"),
	  ". leaf aggregate \"np.ndarray\" param \"t.w\": spec\n" },
	{ BYTES("\x83\xa6" "driver" "\xa4zarr" "\xa7kvstore" "\x81\xa6" "driver" "\xa4" "file" "\xa4path"
		"\xa2/w"),
	  ". leaf aggregate \"np.ndarray\" param \"/w\": spec its path does not begin in the "
	  "checkpoint\n" },
	{ BYTES("\x82\xa6" "driver" "\xa4zarr" "\xa7kvstore" "\x81\xa6" "driver" "\xa6memory"),
	  ". leaf aggregate \"np.ndarray\" param \"\": spec its kvstore is not of files\n" },
	/* Neither has a driver of a store. */
	{ BYTES("\x82\xa6" "driver" "\xa1x" "\xa7kvstore" "\xa1y"), ". dict\n"
	  "  \"driver\" leaf aggregate \"string\" param \"driver\": string \"x\"\n"
	  "  \"kvstore\" leaf aggregate \"string\" param \"kvstore\": string \"y\"\n" },
	{ BYTES("\xa0"), ". leaf aggregate \"string\" param \"\": string \"\"\n" },
	{ BYTES("\xd9\x02\xc3\xa9"), ". leaf aggregate \"string\" param \"\": string "
	  "\"\\u00e9\"\n" },
	{ BYTES("\xda\0\x01x"), ". leaf aggregate \"string\" param \"\": string \"x\"\n" },
	{ BYTES("\xdb\0\0\0\x01x"), ". leaf aggregate \"string\" param \"\": string "
	  "\"x\"\n" },
	{ BYTES("\xc4\x02\0\xff"), ". leaf aggregate \"bytes\" param \"\": bytes 00ff\n" },
	{ BYTES("\xc4\0"), ". leaf aggregate \"bytes\" param \"\": bytes \n" },
	{ BYTES("\xa9"
	  "AGGREGATE"), ". leaf aggregate \"string\" param \"\": string \"AGGREGATE\"\n" },
	{ BYTES("\xaePLACEHOLDER://"), ". leaf stored \"\" param \"\"\n" },
	{ BYTES("\xaf" "AGGREGATED://ab"), ". leaf stored \"\" param \"ab\"\n" },
	{ BYTES("\x80"), ". dict\n" },
	{ BYTES("\x90"), ". list\n" },
	{ BYTES("\xdc\0\0"), ". list\n" },
	{ BYTES("\xde\0\0"), ". dict\n" },
	{ BYTES("\x82\xa1" "b\x01\xa1" "a\x92\x02\x80"),
	  ". dict\n  \"b\" leaf aggregate \"scalar\" param \"b\": int 1\n  \"a\" list\n"
	  "    0 leaf aggregate \"scalar\" param \"a.0\": int 2\n    1 dict\n" },
	/* fixext and ext: complex, tuple, array, scalar. */
	{ BYTES("\xc7\x03\x02\x92\x01\xff"), ". leaf aggregate \"scalar\" param \"\": "
	  "complex 1.0 -1.0\n" },
	{ BYTES("\xd5\x04\x91\x05"), ". tuple\n  0 leaf aggregate \"scalar\" param \"0\": "
	  "int 5\n" },
	{ BYTES("\xd4\x04\x90"), ". tuple\n" },
	{ BYTES("\xc7\x10\x01\x93\x92\x02\x01\xa5int16\xc4\x04\x01\x02\x03\x04"),
	  ". leaf aggregate \"np.ndarray\" param \"\": array int16 [2,1] item 2 sha256 "
	  "9f64a747e1b97f131fabb6b447296c9b\n" },
	/* Old writers: dtype as bin, data as str. Types are not interpreted here. */
	{ BYTES("\xc7\x0c\x01\x93\x91\x02\xc4\x02" "i1\xa4" "\xff\xfe\xfd\xfc"),
	  ". leaf aggregate \"np.ndarray\" param \"\": array i1 [2] item 2 sha256 "
	  "8c2a2c574ac471ce87590c13f0efdb42\n" },
	{ BYTES("\xc7\x0b\x01\x93\x92\x00\x03\xa4int8\xc4\x00"),
	  ". leaf aggregate \"np.ndarray\" param \"\": array int8 [0,3] item 0 sha256 "
	  "e3b0c44298fc1c149afbf4c8996fb924\n" },
};
/* clang-format on */

static void values_are_read(void **state)
{
	for (size_t i = 0; i < ARRAY_LEN(examples); i++) {
		auto_of(tree) struct tree *tree = NULL;
		auto_buf text = { 0 };
		int r = parse(examples[i].in, &tree);

		if (r < 0)
			fail_msg("case %zu: %s", i, err_text(r));
		assert_string_equal(lines(tree, &text), examples[i].want);
	}
}

static void broken_files_are_refused(void **state)
{
	/* clang-format off */
	static const struct {
		struct bytes in;
		int want;
		const char *text;
	} cases[] = {
		{ BYTES(""), -EUCLEAN, "truncated" },
		{ BYTES("\xc1"), -EUCLEAN, "not msgpack" },
		{ BYTES("\xc0\xc0"), -EUCLEAN, "something follows" },
		{ BYTES("\x81\xc0\x01"), -EUCLEAN, "a key is neither a text nor an integer" },
		{ BYTES("\x82\x00\x01\xa1\x30\x01"), -EUCLEAN,
		  "two children have the key '0'" },
		{ BYTES("\x81\xc4\x01" "a\x01"), -EUCLEAN, "a key is neither a text nor an integer" },
		{ BYTES("\x81\x80\x01"), -EUCLEAN, "a key is neither a text nor an integer" },
		{ BYTES("\x82\xa1" "a\x01\xa1" "a\x02"), -EUCLEAN,
		  "two children have the key 'a'" },
		{ BYTES("\xa1\xff"), -EUCLEAN, "not UTF-8" },
		{ BYTES("\x81\xa1\xff\x01"), -EUCLEAN, "not UTF-8" },
		{ BYTES("\xdd\xff\xff\xff\xff\x01"), -EUCLEAN, "truncated" },
		{ BYTES("\xdf\xff\xff\xff\xff\xa1" "a\x01"), -EUCLEAN, "truncated" },
		{ BYTES("\xdb\xff\xff\xff\xff" "a"), -EUCLEAN, "truncated" },
		{ BYTES("\xc6\xff\xff\xff\xff" "a"), -EUCLEAN, "truncated" },
		{ BYTES("\xc9\xff\xff\xff\xff\x01"), -EUCLEAN, "malformed extension" },
		{ BYTES("\xc9\xff\xff\xff\xfe\x01"), -EUCLEAN, "truncated" },
		{ BYTES("\xd4\x09x"), -EOPNOTSUPP, "extension type 9" },
		{ BYTES("\xd6\xff\0\0\0\0"), -EOPNOTSUPP, "extension type -1" },
		{ BYTES("\xd4\x04\x80"), -EUCLEAN, "payload of a tuple is not an array" },
		{ BYTES("\xd4\x04\x01"), -EUCLEAN, "payload of a tuple is not an array" },
		{ BYTES("\xd4\x01\xc0"), -EUCLEAN, "not an array" },
		{ BYTES("\xd4\x02\xc0"), -EUCLEAN, "not an array" },
		{ BYTES("\xd4\x02\x80"), -EUCLEAN, "a map inside an array" },
		{ BYTES("\xd5\x02\x91\x01"), -EUCLEAN, "not a pair" },
		{ BYTES("\xc7\x03\x02\x92\x01\xc0"), -EUCLEAN, "not a pair of numbers" },
		{ BYTES("\xc7\x03\x02\x92\x01\x90"), -EUCLEAN, "not a pair" },
		{ BYTES("\xd5\x01\x91\x90"), -EUCLEAN, "malformed array" },
		/* [shape, dtype, data] with a fault in each. */
		{ BYTES("\xd6\x01\x93\x01\x01\x01"), -EUCLEAN, "without a shape" },
		{ BYTES("\xd6\x01\x93\x90\x01\x01"), -EUCLEAN, "malformed dtype" },
		{ BYTES("\xd6\x01\x93\x90\xa0\xc0"), -EUCLEAN, "malformed dtype" },
		{ BYTES("\xc7\x05\x01\x93\x90\xa1" "a\x01"), -EUCLEAN, "without data" },
		{ BYTES("\xc7\x05\x01\x93\x90\xa1\0\xa0"), -EUCLEAN, "malformed dtype" },
		{ BYTES("\xc7\x06\x01\x93\x91\xff\xa1" "a\xa0"), -EUCLEAN, "malformed shape" },
		{ BYTES("\xc7\x06\x01\x93\x91\xc3\xa1" "a\xa0"), -EUCLEAN, "malformed shape" },
		{ BYTES("\xc7\x06\x01\x93\x91\x90\xa1" "a\xa0"), -EUCLEAN, "malformed array" },
		{ BYTES("\xc7\x06\x01\x93\x91\x01\xa1" "a\xa0"), -EUCLEAN,
		  "1 elements has 0 bytes" },
		{ BYTES("\xc7\x07\x01\x93\x91\x02\xa1" "a\xa1" "x"), -EUCLEAN,
		  "2 elements has 1 bytes" },
		{ BYTES("\xc7\x07\x01\x93\x91\x00\xa1" "a\xa1" "x"), -EUCLEAN,
		  "0 elements has 1 bytes" },
		{ BYTES("\xc7\x17\x01\x93\x92\xcf\x40\0\0\0\0\0\0\0\xcf\x40\0\0\0\0\0\0\0\xa1"
		  "a\xa0"), -EUCLEAN,
		  "shape of an array is too large" },
		{ BYTES("\xc7\x0e\x01\x93\x99\x01\x01\x01\x01\x01\x01\x01\x01\x01\xa1" "a\xa0"),
		  -EOPNOTSUPP,
		  "9 axes" },
		{ BYTES("\xc7\x07\x01\x93\x90\xa1" "a\xd4\x01\x90"), -EUCLEAN, NULL },
	};
	/* clang-format on */

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct tree *tree = (struct tree *)1;
		int r = parse(cases[i].in, &tree);

		if (r != cases[i].want || (cases[i].text && !strstr(err_text(r), cases[i].text)))
			fail_msg("case %zu ('%s'): %d %s", i, cases[i].text, r, err_text(r));
		assert_ptr_equal(tree, 1);
	}
}

static void put_text(struct buf *b, const char *s)
{
	buf_add_byte(b, 0xd9);
	buf_add_byte(b, (uint8_t)strlen(s));
	buf_add_str(b, s);
}

/* Append an int8 array of n bytes that count up from `first`. */
static void put_chunk(struct buf *b, unsigned n, unsigned first, const char *dtype)
{
	buf_add_byte(b, 0xc7);
	buf_add_byte(b, (uint8_t)(1 + 2 + 2 + strlen(dtype) + 2 + n));
	buf_add(b, "\x01\x93\x91", 3);
	buf_add_byte(b, (uint8_t)n);
	put_text(b, dtype);
	buf_add_byte(b, 0xc4);
	buf_add_byte(b, (uint8_t)n);
	for (unsigned i = 0; i < n; i++)
		buf_add_byte(b, (uint8_t)(first + i));
}

/* {"__msgpack_chunked_array__": true, "shape": {"0": 2, "1": 3}, "chunks": {...}} */
static void put_chunked(struct buf *b, const char *k0, const char *k1, unsigned n1,
			const char *dtype)
{
	buf_add_byte(b, 0x83);
	put_text(b, "__msgpack_chunked_array__");
	buf_add_byte(b, 0xc3);
	put_text(b, "shape");
	buf_add_byte(b, 0x82);
	put_text(b, "0");
	buf_add_byte(b, 2);
	put_text(b, "1");
	buf_add_byte(b, 3);
	put_text(b, "chunks");
	buf_add_byte(b, 0x82);
	put_text(b, k0);
	put_chunk(b, 4, 10, "int8");
	put_text(b, k1);
	put_chunk(b, n1, 14, dtype);
}

static void chunks_are_joined_in_order(void **state)
{
	/* clang-format off */
	static const struct {
		const char *k0, *k1;
		unsigned n1;
		const char *dtype, *want;
	} cases[] = {
		{ "0", "1", 2, "int8", "" },
		{ "1", "0", 2, "int8", "" },
		{ "0", "1", 3, "int8", "6 elements has 7 bytes" },
		{ "0", "1", 0, "int8", "different types" },
		{ "0", "1", 2, "int16", "different types" },
		{ "0", "2", 2, "int8", "malformed shape or chunks" },
		{ "0", "01", 2, "int8", "malformed shape or chunks" },
		{ "0", "x", 2, "int8", "malformed shape or chunks" },
	};
	/* clang-format on */

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		auto_of(tree) struct tree *tree = NULL;
		auto_buf b = { 0 };
		const struct aggregate *a;
		int r;

		/* Inside a list, and as the whole document. */
		if (i % 2)
			buf_add_byte(&b, 0x91);
		put_chunked(&b, cases[i].k0, cases[i].k1, cases[i].n1, cases[i].dtype);
		r = tree_parse_aggregate(buf_span(&b), "x", &tree);
		if (cases[i].want[0]) {
			assert_int_equal(r, -EUCLEAN);
			assert_non_null(strstr(err_text(r), cases[i].want));
			continue;
		}
		assert_int_equal(r, 0);
		assert_int_equal(tree->n_nodes, i % 2 ? 2 : 1);
		a = tree->nodes[i % 2]->aggregate;
		assert_int_equal(a->rank, 2);
		assert_int_equal(a->shape[0], 2);
		assert_int_equal(a->shape[1], 3);
		assert_int_equal(a->n_chunks, 2);
		assert_int_equal(a->item_size, 1);
		/*
		 * Key "0" comes first: its chunk begins with 10 when it was written first, else
		 * with 14.
		 */
		assert_int_equal(a->chunks[0].p[0], i ? 14 : 10);
	}
}

static void malformed_chunks_are_refused(void **state)
{
	/* clang-format off */
	static const struct bytes cases[] = {
		BYTES("\x81\xb9__msgpack_chunked_array__\xc3"),
		BYTES("\x83\xb9__msgpack_chunked_array__\xc3\xa5shape\x80\xa6" "chunks\x80"),
		BYTES("\x83\xb9__msgpack_chunked_array__\xc3\xa5shape\x01\xa6" "chunks\x80"),
		BYTES("\x83\xb9__msgpack_chunked_array__\xc3\xa5shape\x90\xa6" "chunks\x91\x01"),
		BYTES("\x83\xb9__msgpack_chunked_array__\xc3\xa5shape\x91\xff\xa6"
				"chunks\x91\xc7\x07\x01\x93\x91\x01\xa1"
		      "a\xa1x"),
		/* A chunk that is itself divided into chunks. */
		BYTES("\x83\xb9__msgpack_chunked_array__\xc3\xa5shape\x91\x02\xa6" "chunks\x91"
		      "\x83\xb9__msgpack_chunked_array__\xc3\xa5shape\x91\x02\xa6" "chunks\x92"
		      "\xc7\x07\x01\x93\x91\x01\xa1" "a\xa1x" "\xc7\x07\x01\x93\x91\x01\xa1"
		      "a\xa1y"),
	};
	/* clang-format on */

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct tree *tree = NULL;

		if (parse(cases[i], &tree) != -EUCLEAN)
			fail_msg("case %zu was taken", i);
	}
}

static void depth_is_bounded(void **state)
{
	for (int depth = LIMIT_TREE_DEPTH - 1; depth <= LIMIT_TREE_DEPTH + 2; depth++) {
		auto_of(tree) struct tree *tree = NULL;
		auto_buf b = { 0 };

		for (int i = 0; i < depth; i++)
			buf_add_byte(&b, 0x91);
		buf_add_byte(&b, 0xc0);
		assert_int_equal(tree_parse_aggregate(buf_span(&b), "x", &tree),
				 depth > LIMIT_TREE_DEPTH ? -EFBIG : 0);
	}
	/* Tuples in lists in tuples: each is within its own limit, but all together are not. */
	for (int depth = 10; depth <= 20; depth += 10) {
		struct tree *tree = NULL;
		auto_buf inner = { 0 };

		buf_add_byte(&inner, 0xc0);
		for (int i = 0; i < depth; i++) {
			auto_buf outer = { 0 };
			uint32_t n;

			for (int k = 0; k < 14; k++)
				buf_add_byte(&outer, 0x91);
			n = (uint32_t)(inner.n + 1);
			buf_add(&outer,
				(uint8_t[]){ 0xc9, (uint8_t)(n >> 24), (uint8_t)(n >> 16),
					     (uint8_t)(n >> 8), (uint8_t)n, 4, 0x91 },
				7);
			buf_add_span(&outer, buf_span(&inner));
			buf_release(&inner);
			inner = outer;
			outer = (struct buf){ 0 };
		}
		assert_int_equal(tree_parse_aggregate(buf_span(&inner), "x", &tree),
				 depth > 10 ? -EFBIG : 0);
		tree_free(tree);
	}
}

/* One of everything. */
static void sample(struct buf *b)
{
	static const char head[] =
		"\x8c\xa1"
		"a\x82\xa1"
		"b\xc0\xa1"
		"c\x93\x01\xff\xcb\x3f\xf8\0\0\0\0\0\0"
		"\xa1"
		"d\xc3\xa1"
		"e\xc2\xa1"
		"f\xa3\xe2\x82\xac\xa1g\xc4\x02\0\xff"
		"\xa1h\xc7\x03\x02\x92\x01\xff\xa1i\xc7\x04\x04\x93\x01\x90\x80"
		"\xa1j\xc7\x10\x01\x93\x92\x02\x01\xa5int16\xc4\x04\x01\x02\x03\x04"
		"\xa1k\xc7\x0a\x03\x93\x90\xa4int8\xc4\x01\x05\xa1l\xa9"
		"AGGREGATE"
		"\xa1m\xaf"
		"AGGREGATED://ab\xa1n";

	buf_add(b, head, sizeof(head) - 1);
	put_chunked(b, "0", "1", 2, "int8");
}

/* A tree that was parsed is written so that it reads back the same. */
static void check_again(const struct tree *tree)
{
	auto_of(tree) struct tree *again = NULL;
	auto_buf a = { 0 }, b = { 0 }, packed = { 0 };
	int r = tree_print_aggregate(tree, &packed);

	assert_int_equal(r, 0);
	r = tree_parse_aggregate(buf_span(&packed), "again", &again);
	if (r < 0)
		fail_msg("packed: %s", err_text(r));
	tree_text(&a, tree);
	tree_text(&b, again);
	assert_string_equal(buf_str(&a), buf_str(&b));
}

static void damage_is_refused_or_read(void **state)
{
	auto_buf b = { 0 };
	unsigned taken = 0;

	sample(&b);
	for (size_t n = 0; n < b.n; n++) {
		struct tree *tree = NULL;

		assert_int_equal(tree_parse_aggregate(span_of(b.p, n), "x", &tree), -EUCLEAN);
		assert_null(tree);
	}
	for (size_t at = 0; at < b.n; at++) {
		uint8_t was = b.p[at];

		for (unsigned v = 0; v < 256; v++) {
			auto_of(tree) struct tree *tree = NULL;

			b.p[at] = (uint8_t)v;
			if (tree_parse_aggregate(buf_span(&b), "x", &tree) < 0)
				continue;
			taken++;
			check_again(tree);
		}
		b.p[at] = was;
	}
	assert_true(taken > b.n);
}

static void writing_needs_every_value(void **state)
{
	auto_of(tree) struct tree *tree = NULL;
	auto_buf out = { 0 };

	assert_int_equal(
		tree_parse_metadata(
			span_str(
				"{\"tree_metadata\": {\"a\": {\"key_metadata\": [{\"key\": \"a\", \"key_type\": "
				"2}], \"value_metadata\": "
				"{\"value_type\": \"np.ndarray\", \"skip_deserialize\": true}}}}"),
			"x", &tree),
		0);
	assert_int_equal(tree_print_aggregate(tree, &out), -EINVAL);
	assert_int_equal(out.n, 0);
}

static void an_array_too_large_to_write_is_refused(void **state)
{
	static const uint64_t shape[] = { (uint64_t)1 << 31 };
	const struct span chunk = span_of("", (size_t)1 << 31); /* never read */
	struct aggregate a = { .kind = AGGREGATE_ARRAY,
			       .rank = 1,
			       .n_chunks = 1,
			       .dtype = "int8",
			       .shape = shape,
			       .chunks = &chunk,
			       .item_size = 1 };
	auto_of(tree) struct tree *tree = NULL;
	struct tree_node *root;
	auto_buf out = { 0 };

	assert_int_equal(tree_new(&tree), 0);
	assert_int_equal(tree_add(tree, NULL, span_str(""), false, TREE_LEAF, &root), 0);
	root->value = TREE_VALUE_AGGREGATE;
	root->aggregate = &a;
	assert_int_equal(tree_finish(tree), 0);
	assert_int_equal(tree_print_aggregate(tree, &out), -EFBIG);
	assert_int_equal(out.n, 0);
}

int main(void)
{
	/* clang-format off */
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(values_are_read),
		cmocka_unit_test(broken_files_are_refused),
		cmocka_unit_test(chunks_are_joined_in_order),
		cmocka_unit_test(malformed_chunks_are_refused),
		cmocka_unit_test(depth_is_bounded),
		cmocka_unit_test(damage_is_refused_or_read),
		cmocka_unit_test(writing_needs_every_value),
		cmocka_unit_test(an_array_too_large_to_write_is_refused),
	};
	/* clang-format on */

	return cmocka_run_group_tests(tests, NULL, NULL);
}
