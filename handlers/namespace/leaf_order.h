/* SPDX-License-Identifier: Apache-2.0 */
/*
 * leaf_order.h - the orders in which programs read the leaves of an item.
 *
 * Leaves are given by the ids of their nodes. Not thread-safe: callers lock.
 */
#ifndef PYTREEFS_LEAF_ORDER_H
#define PYTREEFS_LEAF_ORDER_H

#include "core/step/item.h"

#define LEAF_NONE UINT32_MAX

enum leaf_order {
	ORDER_TREE,   /* the order of listings, and of JAX */
	ORDER_NAMES,  /* the order of sorted paths: "10" comes before "2" */
	ORDER_PLACES, /* the order of bytes in the data files */
	ORDERS,
};

/* Leaves in a row, each at most once. */
struct leaf_row {
	uint32_t *leaf, *place; /* leaves by place, places by leaf; NULL: not made */
	uint32_t n;
};

struct leaf_orders {
	const struct tree *tree; /* borrowed */
	struct leaf_row row[ORDERS];
};

void leaf_orders_init(struct leaf_orders *o, const struct tree *tree);
void leaf_orders_release(struct leaf_orders *o);
/* The place of a leaf in an order, or LEAF_NONE. */
uint32_t leaf_place(const struct leaf_orders *o, enum leaf_order order, uint32_t leaf);
/* The leaf at a place, or LEAF_NONE. */
uint32_t leaf_at(const struct leaf_orders *o, enum leaf_order order, uint32_t place);
/* Make ORDER_TREE and ORDER_NAMES, once. When memory is short, they remain unknown. */
void leaf_orders_make(struct leaf_orders *o);
/*
 * Compute ORDER_PLACES from the place of each leaf of the item, which is slow. Nothing is made when
 * there are too many leaves or the places are unknown. The caller takes the row.
 */
struct leaf_row leaf_places(struct item *item);

#endif
