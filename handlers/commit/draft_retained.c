/* SPDX-License-Identifier: Apache-2.0 */
/*
 * draft_retained.c - retains arrays that are not leaves of the step, but that the draft needs if
 * its commit fails.
 *
 * These are parts that were joined, values in the legacy file, and arrays in files that are stored
 * as a text or by a plugin: the draft reads their bytes back from the item's store.
 *
 * Invariants: when an item is sealed, its store contains only arrays of files of that item.
 */
#include "core/base/array.h"
#include "core/base/err.h"
#include "handlers/commit/draft_items.h"
#include "handlers/plan/copy_hints.h"

static int by_address(const void *a, const void *b)
{
	uintptr_t x = (uintptr_t) * (struct kv *const *)a, y = (uintptr_t) * (struct kv *const *)b;

	return x < y ? -1 : x > y;
}

/* leaf: the arrays that are leaves, sorted by address. */
static int retain_file(struct sealing_item *it, struct draft_file *f, struct kv **leaf)
{
	const struct item_store *store = plan_owner(it->plan)->item.store;
	bool moved = false, has_leaf = false;
	int r = 0;

	pthread_mutex_lock(&f->lock);
	if (!array_reserve(it->retained, it->cap_retained, it->n_retained + f->n_arrays))
		r = fail(-ENOMEM, "cannot look at %zu arrays", f->n_arrays);
	for (size_t i = 0; i < f->n_arrays && r >= 0; i++) {
		struct kv *kv = f->array[i].kv;

		if (kv && bsearch(&kv, leaf, it->n_leaves, sizeof(struct kv *), by_address))
			has_leaf = true;
		else if (kv && f->array[i].store == store)
			it->retained[it->n_retained++] = kv;
		else if (kv)
			moved = true;
	}
	pthread_mutex_unlock(&f->lock);
	/*
	 * The file came from another item and is not an array in this one, so its chunks leave the
	 * other item's store.
	 */
	return r < 0 || !moved || has_leaf ? r : draft_file_unstore(f);
}

int sealing_item_retain(struct sealing_item *it)
{
	struct plan *p = it->plan;
	auto_free struct kv **leaf = calloc(it->n_leaves + 1, sizeof(struct kv *));
	int r = 0;

	if (!leaf)
		return fail(-ENOMEM, "cannot look at %zu leaves", it->n_leaves);
	it->n_retained = 0;
	for (size_t i = 0; i < it->n_leaves; i++)
		leaf[i] = it->leaf[i].kv;
	if (it->n_leaves)
		qsort(leaf, it->n_leaves, sizeof(struct kv *), by_address);
	for (size_t i = 0; i < p->n_held && r >= 0; i++)
		if (!p->held[i]->is_dir)
			r = retain_file(it, p->held[i]->file, leaf);
	if (r < 0)
		return r;
	r = p->item->is_dir ? 0 : retain_file(it, p->item->file, leaf);
	if (r < 0)
		return r;
	if (!it->n_leaves && !it->n_retained)
		draft_drop_store(plan_owner(p));
	return 0;
}
