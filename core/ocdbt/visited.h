/* SPDX-License-Identifier: Apache-2.0 */
/*
 * visited.h - which records and files a check has met, with a few numbers for each. Not thread-safe.
 */
#ifndef PYTREEFS_OCDBT_VISITED_H
#define PYTREEFS_OCDBT_VISITED_H

#include "core/ocdbt/db.h"

struct visited_item {
	uint64_t id[2]; /* db_ref_id() */
	uint64_t value; /* the caller's */
	bool is_used;
};

/* Zeroed it is empty. */
struct visited {
	struct visited_item *item;
	size_t n, cap; /* cap is a power of two */
};

/*
 * 1 and the item when it is known; 0 and a new one, with value 0, when not; *ret is valid until the
 * next call. Once LIMIT_CHECK_SEEN are known, new ones are forgotten at once: 0 and NULL.
 */
int visited_get(struct visited *s, const uint64_t id[2], struct visited_item **ret);
bool visited_has(const struct visited *s, const uint64_t id[2]);
bool visited_is_full(const struct visited *s);
void visited_release(struct visited *s);

#endif
