/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan_scope.c - the decisions of the plan of a whole item, and of the part that a rank of a job
 * has.
 */
#include "handlers/plan/copy_hints.h"

static bool has_children(const struct tree_node *node)
{
	return node->n_children;
}

static bool is_one_leaf(const struct plan *p)
{
	const struct tree_node *top = p->tree ? p->tree->root : NULL;

	return top && p->n_leaves == 1 && top->n_children == 1 &&
	       top->children[0]->kind == TREE_LEAF;
}

const struct plan_scope plan_of_whole = {
	.check_tiling = plan_check_tiling,
	.finish = plan_finish_tree,
	.may_have_type = has_children,
	.set_type = plan_set_type,
	.take_write_shape = plan_take_write_shape,
	.take_format = copy_hint_format,
	.is_array = is_one_leaf,
};

/* Other ranks may have the missing names. */
static bool any_type(const struct tree_node *node)
{
	return true;
}

/* The primary compares the names of all ranks. */
static const char *note_type(struct plan *p, struct tree_node *node, const struct tree_type *t)
{
	node->type = t;
	return NULL;
}

const struct plan_scope plan_of_rank = { .may_have_type = any_type, .set_type = note_type };
