/* SPDX-License-Identifier: Apache-2.0 */
/*
 * draft_verify.c - checks a finished draft before it becomes a step: everything that was planned
 * can be opened.
 */
#include "handlers/commit/draft_verify.h"

#include "core/base/err.h"
#include "core/step/item.h"
#include "handlers/draft/commit_driver.h"
#include "handlers/plan/copy_hints.h"

#define LOOKED_AT 1000 /* largest number of chunks per leaf whose place is checked */

/*
 * Check that a leaf is in the tree, its array as planned, and its chunks are where the database, or
 * their name, says: all chunks, or an evenly spread sample.
 */
static int verify_leaf(struct item *item, const struct plan_leaf *l, bool all_stored)
{
	auto_of(zarr) struct zarr *z = NULL;
	const struct tree_node *leaf = plan_same_path(item->tree, l->node);
	uint64_t bytes, objects, wanted;
	int r;

	if (!leaf)
		return fail(-EUCLEAN, "it is not in the tree that was written");
	r = item_array(item, leaf, &z);
	if (r < 0)
		return r;
	wanted = zarr_meta_objects(&z->meta);
	if (!array_type_has_shape(&l->desc.array, z->meta.rank, z->meta.shape))
		return fail(-EUCLEAN, "the shape that was written is not its own");
	r = zarr_stored(z, &bytes, &objects);
	if (r < 0)
		return r;
	if (all_stored && objects != wanted)
		return fail(-EUCLEAN, "%llu %s stored, it has %llu", (unsigned long long)objects,
			    noun(objects, "chunk is", "chunks are"), (unsigned long long)wanted);
	for (uint64_t i = 0; i < wanted && r >= 0; i += MAX(wanted / LOOKED_AT, (uint64_t)1)) {
		uint64_t index[LIMIT_RANK], rest = i;
		auto_kv_loc loc = { 0 };

		for (unsigned a = z->meta.rank; a > 0; a--) {
			index[a - 1] = rest % z->meta.grid[a - 1];
			rest /= z->meta.grid[a - 1];
		}
		r = zarr_object_locate(z, index, &loc);
	}
	return r;
}

int draft_verify(struct draft *d, struct sealing_item *it, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		const struct plan *p = it[i].plan;
		auto_of(item) struct item *item = NULL;
		int r;

		if (p->kind != PLAN_TREE)
			continue;
		r = d->env->driver->open_finished(d, p->name, &item);
		for (size_t k = 0; k < p->n_leaves && r >= 0; k++) {
			const struct plan_leaf *l = &p->leaf[k];

			if (!l->desc.type->in_store || l->aggregated)
				continue;
			r = verify_leaf(item, l, p->opts.store_fill_value);
			if (r < 0)
				err_at(r, "leaf '%.*s'", SPAN_ARG(l->node->param));
		}
		if (r < 0)
			return err_at(r, "verify_commit: item '%s'", p->name);
	}
	return 0;
}
