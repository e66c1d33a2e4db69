/* SPDX-License-Identifier: Apache-2.0 */
/* t_leaf.c - which type a leaf has, by where its value is and by its type string. */
#include "tests/unit/lib/unit.h"

#include "handlers/leaf/leaf.h"

static const struct aggregate nil = { .kind = AGGREGATE_NIL }, number = { .kind = AGGREGATE_INT },
			      a_text = { .kind = AGGREGATE_STRING },
			      array = { .kind = AGGREGATE_ARRAY },
			      numpy_number = { .kind = AGGREGATE_ARRAY, .is_scalar = true };
static const struct tree_source source;

static const char *name_of(enum tree_value value, const char *typestr, const struct aggregate *a,
			   const struct tree_source *s)
{
	const struct tree_node leaf = { .kind = TREE_LEAF,
					.value = value,
					.value_type = span_str(typestr),
					.aggregate = a,
					.source = s };
	const struct leaf_type *t = leaf_type_of(&leaf);

	assert_int_equal(leaf_ext(NULL, &leaf), t ? t->ext : NAME_EXT_NONE);
	return t ? t->name : "";
}

static void the_value_counts_more_than_the_type_string(void **state)
{
	static const struct {
		const char *type;
		enum tree_value value;
		const char *typestr;
		const struct aggregate *aggregate;
		const struct tree_source *source;
	} cases[] = {
		{ "array", TREE_VALUE_STORED, "jax.Array" },
		{ "array", TREE_VALUE_STORED, "np.ndarray" },
		{ "array", TREE_VALUE_STORED, "" },
		{ "scalar", TREE_VALUE_STORED, "scalar" },
		{ "string", TREE_VALUE_STORED, "string" },
		{ "none", TREE_VALUE_STORED, "None" },
		{ "", TREE_VALUE_STORED, "MyState" },
		{ "none", TREE_VALUE_NONE, "NamedTuple" },
		{ "none", TREE_VALUE_PLACEHOLDER, "np.ndarray" },
		{ "none", TREE_VALUE_AGGREGATE, "scalar", &nil },
		{ "scalar", TREE_VALUE_AGGREGATE, "np.ndarray", &number },
		{ "scalar", TREE_VALUE_AGGREGATE, "np.ndarray", &numpy_number },
		{ "string", TREE_VALUE_AGGREGATE, "scalar", &a_text },
		{ "array", TREE_VALUE_AGGREGATE, "scalar", &array },
		/* The file does not have it. */
		{ "string", TREE_VALUE_AGGREGATE, "string" },
		{ "array", TREE_VALUE_STORED, "scalar", NULL, &source },
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++)
		assert_string_equal(name_of(cases[i].value, cases[i].typestr, cases[i].aggregate,
					    cases[i].source),
				    cases[i].type);
}

static const char *const mine[] = { "MyState", "scalar", NULL }, *const other[] = { NULL };
static const struct leaf_type my_type = { .name = "mine", .typestr = mine, .ext = NAME_EXT_BIN };

static bool takes_your(const struct leaf_type *t, struct span typestr)
{
	assert_string_equal(t->name, "yours");
	return span_starts(typestr, span_str("Your")) || span_starts(typestr, span_str("My"));
}

static const struct leaf_type your_type = {
	.name = "yours", .typestr = other, .ext = NAME_EXT_TXT, .takes = takes_your
};

static void added_types_leave_the_built_in_ones_alone(void **state)
{
	assert_int_equal(leaf_type_add(&my_type), 0);
	assert_string_equal(name_of(TREE_VALUE_STORED, "MyState", NULL, NULL), "mine");
	assert_string_equal(name_of(TREE_VALUE_STORED, "YourState", NULL, NULL), "");
	assert_string_equal(name_of(TREE_VALUE_STORED, "scalar", NULL, NULL), "scalar");
	/* The last one is asked first. */
	assert_int_equal(leaf_type_add(&your_type), 0);
	assert_string_equal(name_of(TREE_VALUE_STORED, "MyState", NULL, NULL), "yours");
	assert_string_equal(name_of(TREE_VALUE_STORED, "YourState", NULL, NULL), "yours");

	leaf_types_allow(true, true);
	assert_string_equal(name_of(TREE_VALUE_STORED, "scalar", NULL, NULL), "mine");
	assert_string_equal(name_of(TREE_VALUE_STORED, "string", NULL, NULL), "string");
	leaf_types_allow(false, false);
	assert_string_equal(name_of(TREE_VALUE_STORED, "scalar", NULL, NULL), "mine");
	assert_string_equal(name_of(TREE_VALUE_STORED, "string", NULL, NULL), "");
	/* None and values of the legacy file do not depend on type strings. */
	assert_string_equal(name_of(TREE_VALUE_NONE, "None", NULL, NULL), "none");
	assert_string_equal(name_of(TREE_VALUE_AGGREGATE, "x", &a_text, NULL), "string");
	leaf_types_allow(false, true);
}

/* ---- files of drafts ---- */

struct fake {
	struct leaf_input input;
	const char *text;
	enum dtype named, copied; /* DTYPE_UNKNOWN: none */
};

static int fake_contents(struct leaf_input *f, struct buf *ret)
{
	return buf_add_str(ret, container_of(f, struct fake, input)->text);
}

static int fake_array(struct leaf_input *f, struct leaf_desc *ret)
{
	ret->has_shape = true;
	ret->is_jax = *container_of(f, struct fake, input)->text == 'j';
	return 0;
}

static int fake_dtype(struct leaf_input *f, enum dtype natural, enum dtype *ret_named,
		      enum dtype *ret_copied)
{
	const struct fake *x = container_of(f, struct fake, input);

	*ret_named = x->named ? x->named : natural;
	*ret_copied = x->copied;
	return 0;
}

/* As dtype=float32 for what is float64. */
static enum dtype fake_stored_dtype(struct leaf_input *f, enum dtype from)
{
	return from == DTYPE_FLOAT64 ? DTYPE_FLOAT32 : from;
}

static const struct leaf_input_ops fake_ops = { .contents = fake_contents,
						.array = fake_array,
						.dtype = fake_dtype,
						.stored_dtype = fake_stored_dtype };

static int classified(const char *name, const char *text, bool strict, struct arena *a,
		      struct leaf_desc *ret)
{
	struct fake f = { .input = { .ops = &fake_ops,
				     .name = name,
				     .ext = name_ext_of(span_str(name)),
				     .strict = strict,
				     .arena = a },
			  .text = text };
	int r = leaf_classify(&f.input, ret);

	leaf_input_release(&f.input);
	return r;
}

static void a_file_is_what_its_name_and_contents_say(void **state)
{
	static const struct {
		const char *name, *text;
		const char *type; /* "": no type takes it; NULL: refused */
		const char *typestr, *value;
		enum dtype dtype;
		enum tree_value stored;
	} cases[] = {
		{ "w.npy", "n", "array", "np.ndarray" },
		{ "w.npy", "j", "array", "jax.Array" },
		{ "t.txt", "7", "string", "string", "7" },
		{ "t.txt", "", "string", "string", "" },
		{ "t.txt", "\xff", NULL },
		{ "t.json", "\"7\"", "string", "string", "7" },
		{ "t.json", "\"\"", "string", "string", "" },
		{ "n.json", "7", "scalar", "scalar", "\7\0\0\0\0\0\0\0", DTYPE_INT64 },
		{ "n.json", "true", "scalar", "scalar", "\1", DTYPE_BOOL },
		{ "n.json", "1.0", "scalar", "scalar", "\0\0\x80\x3f", DTYPE_FLOAT32 },
		{ "n.json", "\"Infinity\"", "scalar", "scalar", "\0\0\x80\x7f", DTYPE_FLOAT32 },
		{ "n.json", "[1, 0]", "scalar", "scalar", NULL, DTYPE_COMPLEX128 },
		{ "n.json", "[1, 0, 2]", NULL },
		{ "n.json", "{}", NULL },
		{ "n.json", "1e999", NULL },
		{ "n.json", "18446744073709551616", NULL },
		{ "n.json", "", NULL },
		{ "n.json", "null", "none", "None", .stored = TREE_VALUE_NONE },
		{ "n.null", "", "none", "None", .stored = TREE_VALUE_NONE },
		{ "n.null", " ", NULL },
		{ "w.safetensors", "", "" },
		{ "w.html", "", "" },
		{ "w", "", "" },
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct arena a = { 0 };
		struct leaf_record record;
		struct leaf_desc d;
		int r = classified(cases[i].name, cases[i].text, true, &a, &d);

		assert_int_equal(r, !cases[i].type ? -EINVAL : *cases[i].type != '\0');
		if (r == 1) {
			record = leaf_describe(&d);
			assert_string_equal(d.type->name, cases[i].type);
			assert_true(span_eq(record.typestr, span_str(cases[i].typestr)));
			assert_int_equal(record.stored, cases[i].stored);
			assert_int_equal(record.is_sharded, *cases[i].text == 'j');
			assert_int_equal(record.text.p != NULL, !strcmp(d.type->name, "string"));
			assert_int_equal(d.array.dtype, cases[i].dtype);
			if (cases[i].value)
				assert_memory_equal(d.value.p, cases[i].value, d.value.n);
			if (record.text.p)
				assert_int_equal(d.value.n, strlen(cases[i].value));
		}
		/* While it is written every small file is at least a text. */
		r = classified(cases[i].name, cases[i].text, false, &a, &d);
		assert_int_equal(r, !cases[i].type || *cases[i].type);
		if (!cases[i].type)
			assert_string_equal(d.type->name, "string");
		arena_release(&a);
	}
}

static void a_copied_number_keeps_its_dtype_while_that_can_hold_it(void **state)
{
	static const struct {
		const char *text;
		enum dtype named, copied, stored;
		int r;
	} cases[] = {
		{ "7", DTYPE_UNKNOWN, DTYPE_INT8, DTYPE_INT8, 1 },
		{ "700", DTYPE_UNKNOWN, DTYPE_INT8, DTYPE_INT64, 1 },
		{ "7", DTYPE_UINT16, DTYPE_UNKNOWN, DTYPE_UINT16, 1 },
		{ "-7", DTYPE_UINT16, DTYPE_UNKNOWN, DTYPE_UINT16, -EINVAL },
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct arena a = { 0 };
		struct leaf_desc d;
		struct fake f = { .input = { .ops = &fake_ops,
					     .name = "n.json",
					     .ext = NAME_EXT_JSON,
					     .strict = true,
					     .arena = &a },
				  .text = cases[i].text,
				  .named = cases[i].named,
				  .copied = cases[i].copied };

		assert_int_equal(leaf_classify(&f.input, &d), cases[i].r);
		if (cases[i].r == 1)
			assert_int_equal(d.array.dtype, cases[i].stored);
		leaf_input_release(&f.input);
		arena_release(&a);
	}
}

static void messages_list_what_becomes_a_leaf(void **state)
{
	auto_buf text = { 0 };

	assert_int_equal(leaf_extensions(&text), 0);
	assert_non_null(strstr(buf_str(&text), ".npy, .json, .txt, .null"));
}

static void every_built_in_type_has_a_number(void **state)
{
	for (int i = 0; leaf_types[i]; i++) {
		assert_int_equal(leaf_type_number(leaf_types[i]), i);
		assert_true(leaf_types[i]->name && leaf_types[i]->noun && leaf_types[i]->summary);
		assert_true(leaf_types[i]->in_store || !leaf_types[i]->in_boxes);
	}
	assert_int_equal(leaf_type_number(&my_type), -1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_file_is_what_its_name_and_contents_say),
		cmocka_unit_test(a_copied_number_keeps_its_dtype_while_that_can_hold_it),
		cmocka_unit_test(messages_list_what_becomes_a_leaf),
		cmocka_unit_test(every_built_in_type_has_a_number),
		cmocka_unit_test(the_value_counts_more_than_the_type_string),
		cmocka_unit_test(added_types_leave_the_built_in_ones_alone),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
