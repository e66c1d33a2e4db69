/* SPDX-License-Identifier: Apache-2.0 */
/*
 * interner.c - a hash table of texts: open addressing, at most half full.
 */
#include "core/tree/interner.h"

#include "core/base/digest.h"
#include "core/base/err.h"

struct text_slot {
	struct span s; /* p NULL: unused */
	uint32_t hash;
};

void interner_release(struct interner *set)
{
	arena_release(&set->table);
	*set = (struct interner){ 0 };
}

static int interner_grow(struct interner *set, bool metered)
{
	size_t n = set->n_slots ? set->n_slots * 2 : 256;
	struct arena table = { .metered = metered };
	struct text_slot *t = arena_calloc(&table, n, sizeof(*t));

	if (!t)
		return fail(-ENOMEM, "cannot keep texts: not enough memory");
	for (size_t i = 0; i < set->n_slots; i++) {
		size_t at = set->slots[i].hash & (n - 1);

		if (!set->slots[i].s.p)
			continue;
		while (t[at].s.p)
			at = (at + 1) & (n - 1);
		t[at] = set->slots[i];
	}
	arena_release(&set->table);
	set->table = table;
	set->slots = t;
	set->n_slots = n;
	return 0;
}

int interner_add(struct interner *set, struct arena *arena, struct span text, struct span *ret)
{
	/* The address is hardly a secret, but the author of a document does not know it. */
	uint32_t hash = (uint32_t)hash64(text, (uintptr_t)arena);
	size_t at;
	int r;

	if (set->used * 2 >= set->n_slots) {
		r = interner_grow(set, arena->metered);
		if (r < 0)
			return r;
	}
	for (at = hash & (set->n_slots - 1); set->slots[at].s.p; at = (at + 1) & (set->n_slots - 1))
		if (set->slots[at].hash == hash && span_eq(set->slots[at].s, text)) {
			*ret = set->slots[at].s;
			return 0;
		}
	r = arena_keep(arena, text, ret);
	if (r < 0)
		return r;
	set->slots[at] = (struct text_slot){ *ret, hash };
	set->used++;
	return 0;
}
