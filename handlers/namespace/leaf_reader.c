/* SPDX-License-Identifier: Apache-2.0 */
/*
 * leaf_reader.c - moves the cursors of readers.
 */
#include "handlers/namespace/leaf_reader.h"

#include "handlers/namespace/ahead.h"

#define LOST 4       /* a reader is gone after this many times its usual interval */
#define LOST_LEAST 4 /* smallest value of that interval */

static void reader_init(struct leaf_reader *rd, uint32_t id)
{
	*rd = (struct leaf_reader){ .id = id };
	for (int o = 0; o < ORDERS; o++)
		rd->cursor[o].at = LEAF_NONE;
}

void leaf_readers_init(struct leaf_readers *rs)
{
	for (int i = 0; i < READERS; i++)
		reader_init(&rs->reader[i], 0);
	rs->now = 0;
}

struct leaf_reader *reader_known(struct leaf_readers *rs, uint32_t id)
{
	for (int i = 1; i < READERS; i++)
		if (rs->reader[i].id == id)
			return &rs->reader[i];
	return NULL;
}

struct leaf_reader *reader_find(struct leaf_readers *rs, uint32_t id)
{
	struct leaf_reader *found = reader_known(rs, id), *old = &rs->reader[1];

	if (found)
		return found;
	for (int i = 2; i < READERS; i++)
		if (rs->reader[i].when < old->when)
			old = &rs->reader[i];
	reader_init(old, id);
	return old;
}

bool cursor_is_trusted(const struct leaf_cursor *c)
{
	return c->at != LEAF_NONE && c->hits >= AHEAD_HITS;
}

/* Whether the cursor expects the leaf. The cursor then moves there, or starts there anew. */
static bool cursor_move(const struct leaf_orders *orders, enum leaf_order order,
			struct leaf_cursor *c, uint32_t leaf)
{
	uint32_t place = leaf_place(orders, order, leaf), reach = cursor_is_trusted(c) ? REACH : 1;
	bool is_near = place != LEAF_NONE && c->at != LEAF_NONE;

	/* Another thread reads the same leaf, or is later than its neighbours. */
	if (is_near && (place == c->at || (cursor_is_trusted(c) && c->at - place <= REACH)))
		return true;
	if (!is_near || place - c->at > reach) {
		*c = (struct leaf_cursor){ .at = place };
		return false;
	}
	*c = (struct leaf_cursor){ place, c->hits + 1 };
	return true;
}

const struct leaf_cursor *reader_move(const struct leaf_readers *rs, struct leaf_reader *rd,
				      const struct leaf_orders *orders, uint32_t leaf,
				      enum leaf_order *ret, bool *ret_expected)
{
	const struct leaf_cursor *best = NULL;

	for (int o = 0; o < ORDERS; o++) {
		struct leaf_cursor *c = &rd->cursor[o];
		bool hit = cursor_move(orders, (enum leaf_order)o, c, leaf);

		*ret_expected |= hit && c->hits;
		if (c->at != LEAF_NONE && (!best || c->hits > best->hits)) {
			best = c;
			*ret = (enum leaf_order)o;
		}
	}
	rd->gap = rd->when ? MAX(rs->now - rd->when, 3 * rd->gap / 4) : 1;
	rd->when = rs->now;
	return best;
}

void leaf_readers_lose(struct leaf_readers *rs)
{
	for (int i = 0; i < READERS; i++) {
		struct leaf_reader *rd = &rs->reader[i];

		if (rd->when && rs->now - rd->when >= LOST * MAX(rd->gap, (uint64_t)LOST_LEAST))
			reader_init(rd, 0);
	}
}

bool reader_is_next(const struct leaf_reader *rd, const struct leaf_orders *orders, uint32_t leaf)
{
	for (int o = 0; o < ORDERS; o++) {
		const struct leaf_cursor *c = &rd->cursor[o];
		uint32_t place = leaf_place(orders, (enum leaf_order)o, leaf);

		if (cursor_is_trusted(c) && place != LEAF_NONE && place - c->at - 1 < REACH)
			return true;
	}
	return false;
}
