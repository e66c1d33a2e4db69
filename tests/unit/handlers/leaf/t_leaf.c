/* SPDX-License-Identifier: Apache-2.0 */
/* t_leaf.c - which type a leaf has, by where its value is and by its type string. */
#include "tests/unit/lib/unit.h"

#include "handlers/leaf/leaf.h"

static const struct aggregate nil = { .kind = AGGREGATE_NIL }, number = { .kind = AGGREGATE_INT },
			      text = { .kind = AGGREGATE_STRING },
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
		{ "string", TREE_VALUE_AGGREGATE, "scalar", &text },
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
	/* None and values of the legacy file are no question of type strings. */
	assert_string_equal(name_of(TREE_VALUE_NONE, "None", NULL, NULL), "none");
	assert_string_equal(name_of(TREE_VALUE_AGGREGATE, "x", &text, NULL), "string");
	leaf_types_allow(false, true);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_value_counts_more_than_the_type_string),
		cmocka_unit_test(added_types_leave_the_built_in_ones_alone),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
