/* SPDX-License-Identifier: Apache-2.0 */
/*
 * visited.c - a hash table with open addressing; the ids are hashes themselves.
 */
#include "core/ocdbt/visited.h"

#include "core/base/err.h"

/* The slot of the id, or where it would be. There is always an unused slot. */
static struct visited_item *place(const struct visited *s, const uint64_t id[2])
{
	size_t at = (size_t)id[0] & (s->cap - 1);

	while (s->item[at].is_used && (s->item[at].id[0] != id[0] || s->item[at].id[1] != id[1]))
		at = (at + 1) & (s->cap - 1);
	return &s->item[at];
}

static int visited_grow(struct visited *s)
{
	struct visited bigger = { .n = s->n, .cap = s->cap ? s->cap * 2 : 256 };

	bigger.item = calloc(bigger.cap, sizeof(*bigger.item));
	if (!bigger.item)
		return fail(-ENOMEM, "cannot remember %zu records", bigger.cap);
	for (size_t i = 0; i < s->cap; i++)
		if (s->item[i].is_used)
			*place(&bigger, s->item[i].id) = s->item[i];
	free(s->item);
	*s = bigger;
	return 0;
}

int visited_get(struct visited *s, const uint64_t id[2], struct visited_item **ret)
{
	int r = s->n * 2 >= s->cap && !visited_is_full(s) ? visited_grow(s) : 0;

	if (r < 0)
		return r;
	*ret = place(s, id);
	if ((*ret)->is_used)
		return 1;
	if (visited_is_full(s)) {
		*ret = NULL;
		return 0;
	}
	**ret = (struct visited_item){ .id = { id[0], id[1] }, .is_used = true };
	s->n++;
	return 0;
}

bool visited_has(const struct visited *s, const uint64_t id[2])
{
	return s->cap && place(s, id)->is_used;
}

bool visited_is_full(const struct visited *s)
{
	return s->n >= LIMIT_CHECK_VISITED;
}

void visited_release(struct visited *s)
{
	free(s->item);
	*s = (struct visited){ 0 };
}
