/* SPDX-License-Identifier: Apache-2.0 */
/*
 * leaf_order.c - computes the orders of leaves.
 */
#include "handlers/namespace/leaf_order.h"

#include "core/base/err.h"
#include "core/zarr/zarr.h"

/* nodes of the largest tree for which other orders than that of the tree are made */
#define TABLE_MAX ((uint32_t)1 << 17)
#define PLACES_MAX 4096 /* largest number of leaves whose places are looked up */

void leaf_orders_init(struct leaf_orders *o, const struct tree *tree)
{
	*o = (struct leaf_orders){ .tree = tree, .last = LEAF_NONE };
}

void leaf_orders_release(struct leaf_orders *o)
{
	for (int i = 0; i < ORDERS; i++)
		free(o->next[i]);
	free(o->passed);
}

/*
 * Allocate a table with an element for each node of the tree. NULL: the tree is too large, or
 * memory is short.
 */
static uint32_t *table_new(const struct tree *tree, uint32_t value)
{
	uint32_t *t = tree->n_nodes <= TABLE_MAX ? malloc(tree->n_nodes * sizeof(*t)) : NULL;

	for (uint32_t i = 0; t && i < tree->n_nodes; i++)
		t[i] = value;
	return t;
}

static bool is_stored_leaf(const struct tree_node *t)
{
	return t->kind == TREE_LEAF && t->value == TREE_VALUE_STORED;
}

uint32_t leaf_after(const struct leaf_orders *o, enum leaf_order order, uint32_t leaf)
{
	if (order != ORDER_TREE)
		return o->next[order] ? o->next[order][leaf] : LEAF_NONE;
	for (uint32_t i = leaf + 1; i < o->tree->n_nodes; i++)
		if (is_stored_leaf(o->tree->nodes[i]))
			return i;
	return LEAF_NONE;
}

void leaf_orders_pass(struct leaf_orders *o, uint32_t leaf)
{
	if (!o->next[ORDER_PASS]) {
		o->next[ORDER_PASS] = table_new(o->tree, LEAF_NONE);
		o->passed = table_new(o->tree, 0);
		o->pass = 1;
	}
	if (!o->next[ORDER_PASS] || !o->passed || leaf == o->last)
		return;
	/* The first leaf of a pass does not follow the last leaf of the previous pass. */
	if (o->passed[leaf] == o->pass)
		o->pass++;
	else if (o->last != LEAF_NONE)
		o->next[ORDER_PASS][o->last] = leaf;
	o->passed[leaf] = o->pass;
	o->last = leaf;
}

/* Append the leaves below a node after the leaf `last`. Returns the last one. */
static uint32_t add_by_name(const struct tree_node *t, uint32_t last, uint32_t *next)
{
	if (t->kind != TREE_LEAF) {
		for (uint32_t i = 0; i < t->n_children; i++)
			last = add_by_name(t->by_name[i], last, next);
		return last;
	}
	if (!is_stored_leaf(t))
		return last;
	if (last != LEAF_NONE)
		next[last] = t->id;
	return t->id;
}

void leaf_orders_names(struct leaf_orders *o)
{
	if (o->next[ORDER_NAMES])
		return;
	o->next[ORDER_NAMES] = table_new(o->tree, LEAF_NONE);
	if (o->next[ORDER_NAMES])
		add_by_name(o->tree->root, LEAF_NONE, o->next[ORDER_NAMES]);
}

struct ordered_leaf {
	struct zarr_place at;
	uint32_t leaf;
};

static int leaf_order_by_place(const void *a, const void *b)
{
	const struct ordered_leaf *x = a, *y = b;

	if (x->at.ino != y->at.ino)
		return x->at.ino < y->at.ino ? -1 : 1;
	return x->at.off < y->at.off ? -1 : x->at.off > y->at.off;
}

uint32_t *leaf_places(struct item *item)
{
	const struct tree *tree = item->tree;
	auto_free struct ordered_leaf *p = NULL;
	uint32_t *next = tree->n_leaves <= PLACES_MAX ? table_new(tree, LEAF_NONE) : NULL;
	size_t n = 0;

	p = next ? calloc(tree->n_leaves + 1, sizeof(*p)) : NULL;
	for (uint32_t i = 0; p && i < tree->n_nodes && n < tree->n_leaves; i++) {
		auto_of(zarr) struct zarr *z = NULL;

		if (!is_stored_leaf(tree->nodes[i]) || item_array(item, tree->nodes[i], &z) < 0 ||
		    zarr_place(z, &p[n].at) <= 0)
			continue;
		p[n++].leaf = i;
	}
	err_clear();
	if (p)
		qsort(p, n, sizeof(*p), leaf_order_by_place);
	for (size_t i = 1; i < n; i++)
		next[p[i - 1].leaf] = p[i].leaf;
	return next;
}
