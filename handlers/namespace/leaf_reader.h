/* SPDX-License-Identifier: Apache-2.0 */
/*
 * leaf_reader.h - readers of an item's leaves, and their places in the orders of leaves, for
 * ahead.c, whose lock protects all of this.
 */
#ifndef PYTREEFS_LEAF_READER_H
#define PYTREEFS_LEAF_READER_H

#include "handlers/namespace/leaf_order.h"

#define READERS 17 /* number of readers to follow; the first one stands for all together */
#define REACH 4    /* leaves that a trusted reader may skip, or several threads may read at once */

/* The place of a reader in one order, or LEAF_NONE. */
struct leaf_cursor {
	uint32_t at;
	unsigned hits;
};

struct leaf_reader {
	uint32_t id;        /* value of file.reader */
	uint64_t when, gap; /* in numbers of begun leaves: its last leaf, and its usual interval */
	/* It reads leaves to their ends; how many it has begun since it came to the last end. */
	bool reads_all;
	unsigned unended;
	struct leaf_cursor cursor[ORDERS];
};

struct leaf_readers {
	struct leaf_reader reader[READERS];
	uint64_t now; /* number of leaves begun */
};

void leaf_readers_init(struct leaf_readers *rs);
/* Get a reader. It takes the place of the one that was not seen for longest, if it is a new one. */
struct leaf_reader *reader_find(struct leaf_readers *rs, uint32_t id);
/* Get a reader; NULL: it is a new one. */
struct leaf_reader *reader_known(struct leaf_readers *rs, uint32_t id);
/*
 * Returns the cursor of the order that the reader has followed longest, NULL when none has the
 * leaf; *ret_expected: whether any cursor expected the leaf.
 */
const struct leaf_cursor *reader_move(const struct leaf_readers *rs, struct leaf_reader *rd,
				      const struct leaf_orders *orders, uint32_t leaf,
				      enum leaf_order *ret, bool *ret_expected);
/* Drop readers that are gone: nothing more is decoded for them. */
void leaf_readers_lose(struct leaf_readers *rs);

/* Whether it moved to the next leaf AHEAD_HITS times in a row. */
bool cursor_is_trusted(const struct leaf_cursor *c);
/* Whether a trusted cursor of the reader comes to the leaf now. */
bool reader_is_next(const struct leaf_reader *rd, const struct leaf_orders *orders, uint32_t leaf);

#endif
