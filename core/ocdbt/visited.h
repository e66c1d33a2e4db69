/* SPDX-License-Identifier: Apache-2.0 */
/*
 * visited.h - the set of records and files that a check has visited, with a number for each. Not
 * thread-safe.
 */
#ifndef PYTREEFS_OCDBT_VISITED_H
#define PYTREEFS_OCDBT_VISITED_H

#include "core/ocdbt/db.h"

struct visited_item {
	uint64_t id[2]; /* db_ref_id() */
	uint64_t value; /* for the caller */
	bool is_used;
};

/* Zeroed it is empty. */
struct visited {
	struct visited_item *item;
	size_t n, cap; /* cap is a power of two */
};

/*
 * Look up an id. Returns 1 and the item when it is in the set; otherwise adds it with value 0 and
 * returns 0. *ret is valid until the next call. A full set (LIMIT_CHECK_VISITED) adds nothing: 0
 * and NULL.
 */
int visited_get(struct visited *s, const uint64_t id[2], struct visited_item **ret);
bool visited_has(const struct visited *s, const uint64_t id[2]);
bool visited_is_full(const struct visited *s);
void visited_release(struct visited *s);

#endif
