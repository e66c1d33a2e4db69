/* SPDX-License-Identifier: Apache-2.0 */
/*
 * leaf_order.h - the orders in which programs read the leaves of an item one after the other.
 *
 * Leaves are the ids of their nodes. Not locked: the caller does.
 */
#ifndef PYTREEFS_LEAF_ORDER_H
#define PYTREEFS_LEAF_ORDER_H

#include "core/step/item.h"

#define LEAF_NONE UINT32_MAX

enum leaf_order {
	ORDER_TREE,   /* of listings, and of JAX */
	ORDER_PASS,   /* of the last pass, whatever it was */
	ORDER_NAMES,  /* of sorted paths: "10" comes before "2" */
	ORDER_PLACES, /* of the bytes in the data files */
	ORDERS,
};

struct leaf_orders {
	const struct tree *tree; /* borrowed */
	uint32_t *next[ORDERS];  /* by leaf: the one after it; NULL: not known, or not made yet */
	uint32_t *passed;        /* by leaf: the pass in which it was read last */
	uint32_t pass, last;
};

void leaf_orders_init(struct leaf_orders *o, const struct tree *tree);
void leaf_orders_release(struct leaf_orders *o);
/* The leaf after one, or LEAF_NONE. */
uint32_t leaf_after(const struct leaf_orders *o, enum leaf_order order, uint32_t leaf);
/* The leaf is being read after the one of the last call: remembered as ORDER_PASS. */
void leaf_orders_pass(struct leaf_orders *o, uint32_t leaf);
/* Make ORDER_NAMES, once. Memory that is short leaves it unknown. */
void leaf_orders_names(struct leaf_orders *o);
/*
 * What ORDER_PLACES is to be: looks at where each leaf of the item is stored, which takes its time.
 * NULL when the leaves are too many, or it cannot be told. Taken by the caller.
 */
uint32_t *leaf_places(struct item *item);

#endif
