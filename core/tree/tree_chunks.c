/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tree_chunks.c - arrays of the legacy aggregate file: a single piece, or divided into chunks.
 *
 * Invariants: an array's size is its number of elements times one element size; the concatenation
 * of its chunks is its bytes.
 */
#include <stdio.h>

#include "core/base/err.h"
#include "core/tree/tree_build.h"
#include "core/tree/tree_msgpack.h"

static int tree_chunks_no_memory(void)
{
	return fail(-ENOMEM, "cannot read an aggregate file: not enough memory");
}

static int tree_chunks_broken(const char *what, const char *why)
{
	return fail(-EUCLEAN, "%s: %s", what, why);
}

int aggregate_array(struct tree *tree, const char *what, const uint64_t *shape, unsigned rank,
		    uint64_t bytes, struct aggregate *ret)
{
	struct aggregate a = { .kind = AGGREGATE_ARRAY, .rank = (uint8_t)rank };
	uint64_t *copy = arena_calloc(&tree->arena, rank + 1, sizeof(*copy)), n = 1;

	if (!copy)
		return tree_chunks_no_memory();
	for (unsigned i = 0; i < rank; i++) {
		copy[i] = shape[i];
		if (!mul_fits(n, shape[i], &n))
			return tree_chunks_broken(what, "the shape of an array is too large");
	}
	if (n ? bytes == 0 || bytes % n : bytes != 0)
		return fail(-EUCLEAN, "%s: an array of %llu elements has %llu bytes", what,
			    (unsigned long long)n, (unsigned long long)bytes);
	a.item_size = n ? bytes / n : 0;
	a.shape = copy;
	*ret = a;
	return 0;
}

static int tree_chunks_by_index(const void *a, const void *b)
{
	return tree_cmp_index((*(struct tree_node *const *)a)->key,
			      (*(struct tree_node *const *)b)->key);
}

/* Get the values of {"0": ..., "1": ...} in this order; all must be leaves of that kind. */
static int take_sequence(struct tree *tree, const char *what, const struct tree_node *dir,
			 enum aggregate_kind kind, struct tree_node ***ret)
{
	struct tree_node **order =
		arena_calloc(&tree->arena, (size_t)dir->n_children + 1, sizeof(*order));
	char want[16];
	uint32_t n = 0;

	if (!order)
		return tree_chunks_no_memory();
	for (struct tree_node *c = dir->first; c; c = c->next)
		order[n++] = c;
	qsort(order, n, sizeof(*order), tree_chunks_by_index);
	for (uint32_t i = 0; i < n; i++) {
		snprintf(want, sizeof(want), "%u", i);
		if (!span_eq(order[i]->key, span_str(want)) || order[i]->kind != TREE_LEAF ||
		    !order[i]->aggregate || order[i]->aggregate->kind != kind)
			return tree_chunks_broken(what, "malformed shape or chunks of an array");
	}
	*ret = order;
	return 0;
}

/* List the chunks, in order; n > 0. */
static int join_chunks(struct tree *tree, const char *what, struct tree_node *const *chunks,
		       uint32_t n, const struct span **ret, uint64_t *ret_bytes)
{
	const struct aggregate *first = chunks[0]->aggregate;
	struct span *all = arena_calloc(&tree->arena, n, sizeof(*all));

	if (!all)
		return tree_chunks_no_memory();
	*ret_bytes = 0;
	for (uint32_t i = 0; i < n; i++) {
		const struct aggregate *c = chunks[i]->aggregate;

		if (strcmp(c->dtype, first->dtype) || c->item_size != first->item_size ||
		    c->n_chunks != 1)
			return tree_chunks_broken(what,
						  "the chunks of an array have different types");
		/* They are disjoint ranges of one file, so their sum does not overflow. */
		all[i] = c->chunks[0];
		*ret_bytes += all[i].n;
	}
	*ret = all;
	return 0;
}

int aggregate_join(struct tree *tree, const char *what, const struct tree_node *map,
		   struct aggregate *ret)
{
	const struct tree_node *shape = NULL, *chunks = NULL;
	struct tree_node **dims, **pieces = NULL;
	uint64_t axes[AGGREGATE_RANK_MAX], bytes = 0;
	const struct span *all = NULL;
	int r;

	for (const struct tree_node *c = map->first; c; c = c->next) {
		if (span_eq(c->key, span_str("shape")) && c->kind != TREE_LEAF)
			shape = c;
		if (span_eq(c->key, span_str("chunks")) && c->kind != TREE_LEAF)
			chunks = c;
	}
	if (!shape || !chunks)
		return tree_chunks_broken(what, "an array in chunks has no shape or no chunks");
	if (shape->n_children > AGGREGATE_RANK_MAX)
		return fail(-EOPNOTSUPP, "%s: an array of %u axes is not supported (at most %d)",
			    what, shape->n_children, AGGREGATE_RANK_MAX);
	if (!chunks->n_children)
		return tree_chunks_broken(what, "an array has no chunks");
	r = take_sequence(tree, what, shape, AGGREGATE_INT, &dims);
	if (r < 0)
		return r;
	r = take_sequence(tree, what, chunks, AGGREGATE_ARRAY, &pieces);
	for (uint32_t i = 0; r >= 0 && i < shape->n_children; i++) {
		if (dims[i]->aggregate->i < 0)
			return tree_chunks_broken(what, "malformed shape of an array");
		axes[i] = (uint64_t)dims[i]->aggregate->i;
	}
	if (r < 0)
		return r;
	r = join_chunks(tree, what, pieces, chunks->n_children, &all, &bytes);
	if (r < 0)
		return r;
	r = aggregate_array(tree, what, axes, shape->n_children, bytes, ret);
	if (r < 0)
		return r;
	if (ret->item_size != pieces[0]->aggregate->item_size)
		return tree_chunks_broken(what, "the chunks of an array do not make up its shape");
	ret->dtype = pieces[0]->aggregate->dtype;
	ret->chunks = all;
	ret->n_chunks = chunks->n_children;
	return 0;
}
