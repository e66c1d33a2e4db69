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
	ORDER_PASS,   /* the order of the previous pass over the leaves */
	ORDER_NAMES,  /* the order of sorted paths: "10" comes before "2" */
	ORDER_PLACES, /* the order of bytes in the data files */
	ORDERS,
};

struct leaf_orders {
	const struct tree *tree; /* borrowed */
	uint32_t *next[ORDERS]; /* indexed by leaf: the next leaf; NULL: unknown, or not made yet */
	uint32_t *passed;       /* indexed by leaf: the last pass in which it was read */
	uint32_t pass, last;
};

void leaf_orders_init(struct leaf_orders *o, const struct tree *tree);
void leaf_orders_release(struct leaf_orders *o);
/* Returns the leaf after another one, or LEAF_NONE. */
uint32_t leaf_after(const struct leaf_orders *o, enum leaf_order order, uint32_t leaf);
/* Record in ORDER_PASS that the leaf is read after the one of the previous call. */
void leaf_orders_pass(struct leaf_orders *o, uint32_t leaf);
/* Make ORDER_NAMES, once. When memory is short, the order remains unknown. */
void leaf_orders_names(struct leaf_orders *o);
/*
 * Compute ORDER_PLACES from the place of each leaf of the item, which is slow. Returns NULL when
 * there are too many leaves or the places are unknown. The caller takes the table.
 */
uint32_t *leaf_places(struct item *item);

#endif
