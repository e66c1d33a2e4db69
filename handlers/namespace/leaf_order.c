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
	*o = (struct leaf_orders){ .tree = tree };
}

void leaf_orders_release(struct leaf_orders *o)
{
	for (int i = 0; i < ORDERS; i++)
		free(o->row[i].leaf);
}

/* Make an empty row, which has room for all nodes of the tree. Returns false without memory. */
static bool row_new(struct leaf_row *r, const struct tree *tree)
{
	r->leaf = malloc(2 * (size_t)tree->n_nodes * sizeof(*r->leaf));
	if (!r->leaf)
		return false;
	r->place = r->leaf + tree->n_nodes;
	for (uint32_t i = 0; i < tree->n_nodes; i++)
		r->place[i] = LEAF_NONE;
	return true;
}

static void row_add(struct leaf_row *r, uint32_t leaf)
{
	r->place[leaf] = r->n;
	r->leaf[r->n++] = leaf;
}

static bool is_stored_leaf(const struct tree_node *t)
{
	return t->kind == TREE_LEAF && t->value == TREE_VALUE_STORED;
}

uint32_t leaf_place(const struct leaf_orders *o, enum leaf_order order, uint32_t leaf)
{
	return o->row[order].leaf ? o->row[order].place[leaf] : LEAF_NONE;
}

uint32_t leaf_at(const struct leaf_orders *o, enum leaf_order order, uint32_t place)
{
	return place < o->row[order].n ? o->row[order].leaf[place] : LEAF_NONE;
}

static void add_by_name(const struct tree_node *t, struct leaf_row *r)
{
	if (is_stored_leaf(t))
		row_add(r, t->id);
	for (uint32_t i = 0; t->kind != TREE_LEAF && i < t->n_children; i++)
		add_by_name(t->by_name[i], r);
}

void leaf_orders_make(struct leaf_orders *o)
{
	struct leaf_row *r = o->row;

	if (!r[ORDER_TREE].leaf && row_new(&r[ORDER_TREE], o->tree))
		for (uint32_t i = 0; i < o->tree->n_nodes; i++)
			if (is_stored_leaf(o->tree->nodes[i]))
				row_add(&r[ORDER_TREE], i);
	if (!r[ORDER_NAMES].leaf && o->tree->n_nodes <= TABLE_MAX &&
	    row_new(&r[ORDER_NAMES], o->tree))
		add_by_name(o->tree->root, &r[ORDER_NAMES]);
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

struct leaf_row leaf_places(struct item *item)
{
	const struct tree *tree = item->tree;
	auto_free struct ordered_leaf *p = NULL;
	struct leaf_row row = { 0 };
	size_t n = 0;

	p = tree->n_leaves <= PLACES_MAX ? calloc(tree->n_leaves + 1, sizeof(*p)) : NULL;
	if (!p || !row_new(&row, tree))
		return row;
	for (uint32_t i = 0; i < tree->n_nodes && n < tree->n_leaves; i++) {
		auto_of(zarr) struct zarr *z = NULL;

		if (is_stored_leaf(tree->nodes[i]) && item_array(item, tree->nodes[i], &z) >= 0 &&
		    zarr_place(z, &p[n].at) > 0)
			p[n++].leaf = i;
	}
	err_clear();
	qsort(p, n, sizeof(*p), leaf_order_by_place);
	for (size_t i = 0; i < n; i++)
		row_add(&row, p[i].leaf);
	return row;
}
