/* SPDX-License-Identifier: Apache-2.0 */
/*
 * t_collective_plan.c - the merged contributions of two ranks: the rank that writes each leaf, and
 * contributions that do not fit together.
 */
#include "tests/unit/lib/plan_make.h"

#include "handlers/commit/draft_drivers.h"
#include "handlers/job/job_driver.h"
#include "tests/unit/lib/peers_hub.h"

static struct collective *collective;

static int setup(void **state)
{
	struct collective_opts opts = { .primary = -1 };

	assert_int_equal(plan_setup("t_collective_plan"), 0);
	hub_open(2);
	opts.peers = &hub.rank[0];
	opts.source = ns->ckpt->source;
	return collective_new(&opts, NULL, NULL, &collective);
}

static int teardown(void **state)
{
	collective_free(take(collective));
	hub_close();
	return plan_teardown();
}

/* The leaves of each rank, and the merged tree. */
struct both {
	struct buf bytes[2];
	struct collective_plan *made;
};

/* Types that put_together() gives to the items of both ranks; NULL: none. */
static const char *type[2];
/* The item of the first rank records no types. */
static bool rich_off;

/* The rank that has a tuple `t`; -1: none. */
static int tuple_of = -1;

static void give_tuple(struct draft_node *item)
{
	static const struct given zero = { "0.json", "1" };
	const struct span kind = span_str("tuple");
	struct draft_node *n;

	assert_int_equal(draft_mkdir(item, span_str("t"), &n), 0);
	give_file(n, &zero);
	assert_int_equal(draft_set_xattr(n, "user.pytree.kind", &kind, 0), 0);
	draft_node_unref(n);
}

static void in_job(bool is)
{
	ns->drafts.driver = is ? &job_directory_driver : &directory_driver;
	ns->drafts.collective = is ? collective : NULL;
}

/* Drafts begin as one process's, so that no rank has to answer; they are planned as shared ones. */
static int put_together(const struct given *first, const struct given *second, struct both *ret)
{
	const struct given *files[2] = { first, second };
	int r;

	*ret = (struct both){ 0 };
	for (int i = 0; i < 2; i++) {
		struct sealing_item item = { 0 };
		struct draft_node *node = give(files[i]);
		struct span value = type[i] ? span_str(type[i]) : span_of(NULL, 0);

		if (i == 0 && rich_off)
			assert_int_equal(
				draft_set_xattr(node, "user.pytree.save.rich_types",
						&(struct span){ (const uint8_t *)"off", 3 }, 0),
				0);
		if (i == tuple_of)
			give_tuple(node);
		if (type[i])
			assert_int_equal(draft_set_xattr(node, "user.pytree.namedtuple", &value, 0),
					 0);
		in_job(true);
		assert_int_equal(plan_new(node, true, &item.plan), 0);
		assert_int_equal(contribution_pack("5", span_of(NULL, 0), &item, 1, &ret->bytes[i]),
				 0);
		in_job(false);
		sealing_item_release(&item);
		draft_node_unref(node);
	}
	in_job(true);
	r = collective_plan_new(drafts[n_drafts - 2], ret->bytes, &ret->made);
	in_job(false);
	return r;
}

static void both_release(struct both *b)
{
	collective_plan_free(b->made);
	for (int i = 0; i < 2; i++)
		buf_release(&b->bytes[i]);
}

/* Returns the assignment of a rank for the leaf of a key; -1: it does not have the leaf. */
static int takes(const struct both *b, const char *key, int rank, size_t box)
{
	const struct collective_item *it = &b->made->item[0];

	for (size_t i = 0; i < it->n_leaves; i++)
		for (const struct contributor *c = it->leaf[i].contributors; c; c = c->next)
			if (span_eq(it->leaf[i].node->key, span_str(key)) && c->rank == rank)
				return c->assignment[box].take;
	return -1;
}

static void the_lowest_rank_writes_shared_leaves(void **state)
{
	static const struct given first[] = { { "w.npy", NULL, DTYPE_INT8, 1, { 6 } },
					      { "n.json", "1" },
					      { "t.txt", "same" },
					      { "o.null", "" },
					      { NULL } },
				  second[] = { { "w.npy", NULL, DTYPE_INT8, 1, { 6 } },
					       { "n.json", "2" },
					       { "t.txt", "other" },
					       { "only.npy", NULL, DTYPE_INT16, 1, { 2 } },
					       { NULL } };
	const struct plan *p;
	struct both b;

	assert_int_equal(put_together(first, second, &b), 0);
	p = b.made->item[0].plan;
	assert_int_equal(p->n_leaves, 5);
	assert_int_equal(takes(&b, "w", 0, 0), TAKE_WHOLE);
	assert_int_equal(takes(&b, "w", 1, 0), TAKE_NOTHING);
	assert_int_equal(takes(&b, "n", 0, 0), TAKE_WHOLE);
	assert_int_equal(takes(&b, "n", 1, 0), TAKE_NOTHING);
	assert_int_equal(takes(&b, "only", 0, 0), -1);
	assert_int_equal(takes(&b, "only", 1, 0), TAKE_WHOLE);
	assert_int_equal(b.made->item[0].stores[0], BRINGS_OWN);
	assert_int_equal(b.made->item[0].stores[1], BRINGS_OWN);
	for (size_t i = 0; i < p->n_leaves; i++) {
		const struct plan_leaf *l = &p->leaf[i];

		if (span_eq(l->node->key, span_str("t")))
			assert_true(span_eq(leaf_describe(&l->desc).text, span_str("same")));
		if (span_eq(l->node->key, span_str("o")))
			assert_int_equal(l->node->value, TREE_VALUE_NONE);
		if (span_eq(l->node->key, span_str("only")))
			assert_true(l->desc.array.dtype == DTYPE_INT16 &&
				    l->desc.array.shape[0] == 2 &&
				    span_eq(l->node->value_type, span_str("np.ndarray")));
	}
	both_release(&b);
}

static void a_rank_without_arrays_brings_no_store(void **state)
{
	static const struct given first[] = { { "w.npy", NULL, DTYPE_INT8, 1, { 6 } }, { NULL } },
				  second[] = { { "t.txt", "text" }, { "o.null", "" }, { NULL } };
	struct both b;

	assert_int_equal(put_together(first, second, &b), 0);
	assert_int_equal(b.made->item[0].stores[0], BRINGS_OWN);
	assert_int_equal(b.made->item[0].stores[1], 0);
	both_release(&b);
}

/* `_METADATA` has the write shape of what `array_metadatas` describes, and only of that. */
static void a_write_shape_is_recorded_with_the_arrays_metadata(void **state)
{
	static const struct given file[] = { { "w.npy", NULL, DTYPE_INT8, 1, { 6 } }, { NULL } };

	options.save.leaf_type = LEAF_TYPE_JAX;
	for (int on = 0; on < 2; on++) {
		const struct tree_node *node;
		struct both b;

		options.save.array_metadata = on;
		assert_int_equal(put_together(file, file, &b), 0);
		node = b.made->item[0].plan->leaf[0].node;
		assert_true(span_eq(node->value_type, span_str("jax.Array")));
		assert_int_equal(node->has_write_shape, on);
		if (on)
			assert_int_equal(node->write_shape[0], 6);
		both_release(&b);
	}
	options.save.leaf_type = LEAF_TYPE_NUMPY;
}

static void boxes_are_used_as_they_are_or_put_together(void **state)
{
	static const struct {
		struct given part[2][2];
		int take;
	} cases[] = {
		{ { { { "w[0:2]@4.npy", NULL, DTYPE_INT8, 1, { 2 } }, { NULL } },
		    { { "w[2:4]@4.npy", NULL, DTYPE_INT8, 1, { 2 } }, { NULL } } },
		  TAKE_CHUNKS },
		{ { { { "w[0:2]@5.npy", NULL, DTYPE_INT8, 1, { 2 } }, { NULL } },
		    { { "w[2:5]@5.npy", NULL, DTYPE_INT8, 1, { 3 } }, { NULL } } },
		  TAKE_EXPORT },
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct both b;

		assert_int_equal(put_together(cases[i].part[0], cases[i].part[1], &b), 0);
		assert_int_equal(takes(&b, "w", 0, 0), cases[i].take);
		assert_int_equal(takes(&b, "w", 1, 0), cases[i].take);
		assert_int_equal(b.made->item[0].any_exported, cases[i].take == TAKE_EXPORT);
		both_release(&b);
	}
}

static void contributions_that_do_not_fit_together_are_refused(void **state)
{
	static const struct {
		const char *says;
		struct given file[2][2];
	} cases[] = {
		{ "it is an array on rank 0 and a number on rank 1",
		  { { { "w.npy", NULL, DTYPE_INT8, 1, { 2 } }, { NULL } },
		    { { "w.json", "1" }, { NULL } } } },
		{ "it is a text on rank 0 and None on rank 1",
		  { { { "w.txt", "1" }, { NULL } }, { { "w.null", "" }, { NULL } } } },
		{ "it is an array on rank 0 and a part of an array on rank 1",
		  { { { "w.npy", NULL, DTYPE_INT8, 1, { 2 } }, { NULL } },
		    { { "w[0:1]@2.npy", NULL, DTYPE_INT8, 1, { 1 } }, { NULL } } } },
		{ "its dtype is int8 on rank 0 and int16 on rank 1",
		  { { { "w.npy", NULL, DTYPE_INT8, 1, { 2 } }, { NULL } },
		    { { "w.npy", NULL, DTYPE_INT16, 1, { 2 } }, { NULL } } } },
		{ "its shape on rank 0 is not that on rank 1",
		  { { { "w.npy", NULL, DTYPE_INT8, 1, { 2 } }, { NULL } },
		    { { "w.npy", NULL, DTYPE_INT8, 1, { 3 } }, { NULL } } } },
		{ "nobody has [3]",
		  { { { "w[0:2]@4.npy", NULL, DTYPE_INT8, 1, { 2 } }, { NULL } },
		    { { "w[2:3]@4.npy", NULL, DTYPE_INT8, 1, { 1 } }, { NULL } } } },
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct both b;
		int r = put_together(cases[i].file[0], cases[i].file[1], &b);

		assert_int_equal(r, -EINVAL);
		if (!strstr(err_text(r), cases[i].says) || !strstr(err_text(r), "leaf 'w'"))
			fail_msg("case %zu says '%s'", i, err_text(r));
		both_release(&b);
	}
}

#define TYPE(clazz, fields) \
	"{\"module\": \"m\", \"clazz\": \"" clazz "\", \"fields\": [" fields "]}"

/* Each rank has one of the two fields. */
static int put_types_together(const char *first, const char *second, struct both *ret)
{
	static const struct given files[2][2] = { { { "nu.json", "1" }, { NULL } },
						  { { "mu.json", "2" }, { NULL } } };
	int r;

	type[0] = first;
	type[1] = second;
	r = put_together(files[0], files[1], ret);
	type[0] = type[1] = NULL;
	return r;
}

static void a_namedtuple_has_its_fields_from_all_ranks(void **state)
{
	static const char pair[] = TYPE("Pair", "\"nu\", \"mu\""),
			  other[] = TYPE("Pair", "\"nu\", \"xi\"");
	static const struct {
		const char *type[2];
		bool is_type;
	} cases[] = {
		{ { pair, pair }, true },  { { pair, NULL }, true },
		{ { NULL, pair }, true },  { { other, other }, false }, /* nobody has xi */
		{ { NULL, NULL }, false },
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		const struct tree_node *root_node;
		const struct plan *p;
		struct both b;

		assert_int_equal(put_types_together(cases[i].type[0], cases[i].type[1], &b), 0);
		p = b.made->item[0].plan;
		root_node = p->tree->root;
		if ((root_node->kind == TREE_NAMEDTUPLE) != cases[i].is_type)
			fail_msg("case %zu: kind %s", i, tree_kind_text(root_node->kind));
		assert_int_equal(!!root_node->type, cases[i].is_type);
		assert_int_equal(p->opts.rich_types, cases[i].is_type);
		if (cases[i].is_type) {
			assert_true(span_eq(root_node->type->clazz, span_str("Pair")));
			assert_true(span_eq(root_node->children[0]->key, span_str("nu")));
		}
		both_release(&b);
	}
}

/* The order of the lowest rank that has one counts; a class of another rank counts more. */
static void a_dict_has_the_order_of_a_rank(void **state)
{
	static const char nu[] = "{\"fields\": [\"nu\", \"mu\"]}", mu[] = "{\"fields\": [\"mu\"]}",
			  pair[] = TYPE("Pair", "\"nu\", \"mu\"");
	static const struct {
		const char *type[2], *first;
		enum tree_kind kind;
	} cases[] = {
		{ { NULL, NULL }, "mu", TREE_DICT },     { { nu, NULL }, "nu", TREE_DICT },
		{ { NULL, nu }, "nu", TREE_DICT },       { { nu, mu }, "nu", TREE_DICT },
		{ { mu, nu }, "mu", TREE_DICT },         { { mu, pair }, "nu", TREE_NAMEDTUPLE },
		{ { pair, mu }, "nu", TREE_NAMEDTUPLE },
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		const struct tree_node *root_node;
		struct both b;

		assert_int_equal(put_types_together(cases[i].type[0], cases[i].type[1], &b), 0);
		root_node = b.made->item[0].plan->tree->root;
		if (root_node->kind != cases[i].kind ||
		    !span_eq(root_node->children[0]->key, span_str(cases[i].first)))
			fail_msg("case %zu: %s, first '%.*s'", i, tree_kind_text(root_node->kind),
				 SPAN_ARG(root_node->children[0]->key));
		assert_int_equal(!!root_node->type, cases[i].kind == TREE_NAMEDTUPLE);
		both_release(&b);
	}
}

static void rich_types_of_the_lowest_rank_count(void **state)
{
	static const char pair[] = TYPE("Pair", "\"nu\", \"mu\"");
	struct both b;

	rich_off = true;
	assert_int_equal(put_types_together(pair, pair, &b), 0);
	rich_off = false;
	assert_int_equal(b.made->item[0].plan->tree->root->kind, TREE_DICT);
	assert_null(b.made->item[0].plan->tree->root->type);
	assert_false(b.made->item[0].plan->opts.rich_types);
	both_release(&b);
}

static void a_tuple_of_any_rank_is_recorded(void **state)
{
	for (int off = 0; off < 2; off++)
		for (tuple_of = -1; tuple_of < 2; tuple_of++) {
			struct both b;

			rich_off = off;
			assert_int_equal(put_types_together(NULL, NULL, &b), 0);
			assert_int_equal(b.made->item[0].plan->opts.rich_types,
					 tuple_of >= 0 && !off);
			both_release(&b);
		}
	tuple_of = -1;
	rich_off = false;
}

static void namedtuples_of_two_types_are_refused(void **state)
{
	static const char pair[] = TYPE("Pair", "\"nu\", \"mu\"");
	static const struct {
		const char *says, *type;
	} cases[] = {
		{ "namedtuple m.Pair on rank 0 and m.Other on rank 1",
		  TYPE("Other", "\"nu\", \"mu\"") },
		{ "namedtuple Pair has 2 fields on rank 0 and 1 on rank 1",
		  TYPE("Pair", "\"nu\"") },
		{ "field 0 of namedtuple Pair is 'nu' on rank 0 and 'mu' on rank 1",
		  TYPE("Pair", "\"mu\", \"nu\"") },
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct both b;
		int r = put_types_together(pair, cases[i].type, &b);

		assert_int_equal(r, -EINVAL);
		if (!strstr(err_text(r), cases[i].says) || !strstr(err_text(r), "item 'default'"))
			fail_msg("case %zu says '%s'", i, err_text(r));
		both_release(&b);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_lowest_rank_writes_shared_leaves),
		cmocka_unit_test(a_rank_without_arrays_brings_no_store),
		cmocka_unit_test(a_write_shape_is_recorded_with_the_arrays_metadata),
		cmocka_unit_test(boxes_are_used_as_they_are_or_put_together),
		cmocka_unit_test(contributions_that_do_not_fit_together_are_refused),
		cmocka_unit_test(a_namedtuple_has_its_fields_from_all_ranks),
		cmocka_unit_test(a_dict_has_the_order_of_a_rank),
		cmocka_unit_test(rich_types_of_the_lowest_rank_count),
		cmocka_unit_test(a_tuple_of_any_rank_is_recorded),
		cmocka_unit_test(namedtuples_of_two_types_are_refused),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
