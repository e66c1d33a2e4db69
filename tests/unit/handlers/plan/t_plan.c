/* SPDX-License-Identifier: Apache-2.0 */
/*
 * t_plan.c - names and contents of an item -> its plan: what each file is, what is refused and how,
 * and what is left out while the draft is still being written.
 */
#include "tests/unit/lib/plan_make.h"

static int setup(void **state)
{
	return plan_setup("t_plan");
}

static int teardown(void **state)
{
	return plan_teardown();
}

static int planned(const struct given *files, bool strict, struct plan **ret)
{
	struct draft_node *item = give(files);
	int r = plan_new(item, strict, ret);

	draft_node_unref(item);
	return r;
}

/* The leaf of that key of a plan, or NULL. */
static const struct plan_leaf *leaf_of(const struct plan *p, const char *key)
{
	for (size_t i = 0; i < p->n_leaves; i++)
		if (span_eq(p->leaf[i].node->key, span_str(key)))
			return &p->leaf[i];
	return NULL;
}

static void each_file_is_a_leaf_of_its_type(void **state)
{
	static const struct given files[] = {
		{ "w.npy", NULL, DTYPE_INT8, 2, { 2, 3 } },
		{ "n.json", "3" },
		{ "t.txt", "text" },
		{ "o.null", "" },
		{ "b.bin", "bytes" },
		{ "p[0:1]@4.npy", NULL, DTYPE_UINT16, 1, { 1 } },
		{ "p[1:4]@4.npy", NULL, DTYPE_UINT16, 1, { 3 } },
		{ NULL },
	};
	static const struct {
		const char *key, *type, *typestr;
		enum dtype dtype;
		unsigned rank;
		uint64_t shape;
		size_t n_parts;
	} wanted[] = {
		{ "w", "array", "np.ndarray", DTYPE_INT8, 2, 2 },
		{ "n", "scalar", "scalar", DTYPE_INT64 },
		{ "t", "string", "string" },
		{ "o", "none", "None" },
		{ "b", "bytes", "bytes" },
		{ "p", "array", "np.ndarray", DTYPE_UINT16, 1, 4, 2 },
	};
	auto_of(plan) struct plan *p = NULL;

	assert_int_equal(planned(files, true, &p), 0);
	assert_int_equal(p->n_leaves, ARRAY_LEN(wanted));
	/* None is not a leaf for those who count values. */
	assert_int_equal(p->tree->n_leaves, ARRAY_LEN(wanted) - 1);
	for (size_t i = 0; i < ARRAY_LEN(wanted); i++) {
		const struct plan_leaf *l = leaf_of(p, wanted[i].key);

		assert_non_null(l);
		assert_string_equal(l->desc.type->name, wanted[i].type);
		assert_true(span_eq(l->node->value_type, span_str(wanted[i].typestr)));
		assert_int_equal(l->desc.array.dtype, wanted[i].dtype);
		assert_int_equal(l->desc.array.rank, wanted[i].rank);
		assert_int_equal(l->desc.array.rank ? l->desc.array.shape[0] : 0, wanted[i].shape);
		assert_int_equal(l->n_parts, wanted[i].n_parts);
		assert_int_equal(l->desc.has_shape, l->desc.type->in_store);
	}
	assert_int_equal(leaf_of(p, "o")->node->value, TREE_VALUE_NONE);
}

static const struct refused {
	const char *says;  /* of a commit */
	const char *shown; /* the type meanwhile; NULL: the file is left out */
	struct given files[4];
} refused[] = {
	{ "it is not a leaf: leaves are .npy, .json,", NULL, { { "x.dat", "data" } } },
	{ "'x.npy'", "array", { { "x.npy", "no array" } } },
	{ "'x.json'", "string", { { "x.json", "{" } } },
	{ "a file of None must be empty, it has 1 bytes", "string", { { "x.null", "." } } },
	{ "the text is not UTF-8", "string", { { "x.txt", "\xff" } } },
	{ "is the second leaf of key 'x'", "scalar", { { "x.json", "1" }, { "x.txt", "1" } } },
	{ "nobody has [2]", "array", { { "x[0:2]@4.npy", NULL, DTYPE_INT8, 1, { 2 } } } },
	{ "has not the shape of the box",
	  "array",
	  { { "x[0:2]@4.npy", NULL, DTYPE_INT8, 1, { 2 } },
	    { "x[2:4]@4.npy", NULL, DTYPE_INT8, 1, { 1 } } } },
	{ "is of dtype int16, and",
	  "array",
	  { { "x[0:2]@4.npy", NULL, DTYPE_INT8, 1, { 2 } },
	    { "x[2:4]@4.npy", NULL, DTYPE_INT16, 1, { 2 } } } },
};

static void a_file_that_is_not_a_leaf_is_refused_by_name(void **state)
{
	for (size_t i = 0; i < ARRAY_LEN(refused); i++) {
		struct plan *p = NULL;

		assert_int_equal(planned(refused[i].files, true, &p), -EINVAL);
		assert_null(p);
		if (!strstr(err_text(-EINVAL), refused[i].says))
			fail_msg("case %zu says '%s'", i, err_text(-EINVAL));
	}
}

static void an_item_that_is_being_written_has_a_plan(void **state)
{
	for (size_t i = 0; i < ARRAY_LEN(refused); i++) {
		auto_of(plan) struct plan *p = NULL;
		const struct plan_leaf *l;

		assert_int_equal(planned(refused[i].files, false, &p), 0);
		l = leaf_of(p, "x");
		assert_int_equal(l != NULL, refused[i].shown != NULL);
		if (l)
			assert_string_equal(l->desc.type->name, refused[i].shown);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_file_is_a_leaf_of_its_type),
		cmocka_unit_test(a_file_that_is_not_a_leaf_is_refused_by_name),
		cmocka_unit_test(an_item_that_is_being_written_has_a_plan),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
