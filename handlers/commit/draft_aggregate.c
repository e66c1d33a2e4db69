/* SPDX-License-Identifier: Apache-2.0 */
/*
 * draft_aggregate.c - leaves of a draft that go into the legacy msgpack file of their item.
 *
 * All of them are in memory during the commit: the file is meant for small values, and leaves that
 * do not fit the write budget are refused.
 *
 * Invariants: such a leaf is not a leaf of the item's store; its array is retained with others that
 * only the draft needs (draft_retained.c).
 */
#include "core/base/err.h"
#include "handlers/commit/draft_items.h"

int plan_leaf_aggregates(const struct plan_leaf *l)
{
	struct save_opts o;
	struct span tensor = { 0 };
	int r;

	if (!l->desc.type->aggregate)
		return 0;
	/*
	 * The path of a tensor follows the path of its file; every other leaf is a file of its own.
	 */
	if (l->desc.type->in_boxes && l->source->file->st.n)
		tensor = l->source->file->array[l->index].name;
	r = draft_options(l->source, tensor, &o);
	return r < 0 ? r : o.aggregate;
}

static int take_leaf(struct sealing_item *it, struct plan_leaf *l, uint64_t *left)
{
	struct tree *tree = it->plan->tree;
	struct aggregate *a = arena_calloc(&tree->arena, 1, sizeof(*a));
	bool shifted = false;
	struct plan_input f;
	int r;

	if (!a)
		return fail(-ENOMEM, "cannot aggregate a leaf");
	r = l->n_parts ? plan_join_parts(it->plan, l, &shifted) : 0;
	if (r < 0)
		return r;
	/* Parts on one grid are never joined, so there is no array to read. */
	if (shifted)
		return fail(-EINVAL, "an array that was written in parts cannot be aggregated");
	plan_leaf_input(it->plan, l, &f);
	f.input.memory_left = *left;
	r = l->desc.type->aggregate(&l->desc, &f.input, a);
	*left = f.input.memory_left;
	leaf_input_release(&f.input);
	if (r < 0)
		return r;
	l->node->value = TREE_VALUE_AGGREGATE;
	l->node->aggregate = a;
	l->aggregated = true;
	return 0;
}

int sealing_item_aggregate(struct sealing_item *it)
{
	const struct draft_env *env = it->plan->item->draft->env;
	uint64_t left = env->ckpt->opts.write_budget / 2;
	bool any = false;
	int r = 0;

	for (size_t i = 0; i < it->plan->n_leaves && r >= 0; i++) {
		struct plan_leaf *l = &it->plan->leaf[i];

		r = plan_leaf_aggregates(l);
		if (r > 0) {
			r = take_leaf(it, l, &left);
			any = true;
		}
		if (r < 0)
			err_at(r, "leaf '%.*s'", SPAN_ARG(l->node->param));
	}
	return r < 0 || !any ? r : tree_print_aggregate(it->plan->tree, &it->aggregate);
}
