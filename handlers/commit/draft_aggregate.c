/* SPDX-License-Identifier: Apache-2.0 */
/*
 * draft_aggregate.c - leaves of a draft that go into the legacy msgpack file of their item.
 *
 * All of them are in memory while the commit goes on: the file is made for small values, and what
 * does not fit the write budget is refused. Invariants: such a leaf is not a leaf of the item's
 * store; its array goes with what the draft alone needs (draft_keep.c).
 */
#include "core/base/err.h"
#include "handlers/commit/draft_items.h"

int plan_leaf_aggregates(const struct plan_leaf *l)
{
	struct save_opts o;
	struct span tensor = { 0 };
	int r;

	if (l->kind != PLAN_ARRAY && l->kind != PLAN_SCALAR && l->kind != PLAN_STRING)
		return 0;
	/* A tensor's path is after the file's; every other leaf is its file. */
	if (l->kind == PLAN_ARRAY && l->source->file->st.n)
		tensor = l->source->file->array[l->index].name;
	pthread_mutex_lock(&l->source->draft->lock);
	r = draft_save_opts(l->source, tensor, &o);
	pthread_mutex_unlock(&l->source->draft->lock);
	return r < 0 ? r : o.aggregate;
}

/* The elements as they are stored: cast, in C order. */
static int read_elements(const struct plan_leaf *l, struct zarr_env *env, struct tree *tree,
			 struct aggregate *a, uint64_t *left)
{
	auto_of(zarr) struct zarr *z = NULL;
	struct kv *kv = l->kv ? l->kv : l->source->file->array[l->index].kv;
	struct span *chunk = arena_calloc(&tree->arena, 1, sizeof(*chunk));
	uint64_t *shape = arena_calloc(&tree->arena, LIMIT_RANK, sizeof(*shape));
	struct zarr_view v;
	uint8_t *p;
	int r = zarr_open(env, kv, span_of(NULL, 0), cache_owner(), 0, &z);

	if (r < 0)
		return r;
	if (z->meta.bytes > *left)
		return fail(-EFBIG, "aggregate: %llu bytes do not fit half of write_budget",
			    (unsigned long long)z->meta.bytes);
	*left -= z->meta.bytes;
	zarr_view_whole(&z->meta, &v);
	p = arena_alloc(&tree->arena, z->meta.bytes + 1);
	if (!p || !chunk || !shape)
		return fail(-ENOMEM, "cannot aggregate an array");
	r = zarr_read_into(z, &v, 0, z->meta.bytes, p);
	memcpy(shape, z->meta.shape, z->meta.rank * sizeof(*shape));
	*chunk = span_of(p, z->meta.bytes);
	*a = (struct aggregate){ .kind = AGGREGATE_ARRAY,
				 .rank = (uint8_t)z->meta.rank,
				 .n_chunks = 1,
				 .shape = shape,
				 .dtype = dtype_info(z->meta.dtype)->name,
				 .chunks = chunk,
				 .item_size = dtype_info(z->meta.dtype)->size };
	return r;
}

/* A Python number as msgpack has it; others as numpy scalars. */
static int read_number(const struct plan_leaf *l, struct tree *tree, struct aggregate *a)
{
	struct span *chunk;

	switch (l->dtype) {
	case DTYPE_BOOL:
		a->kind = AGGREGATE_BOOL;
		a->b = l->element[0];
		return 0;
	case DTYPE_INT64:
		a->kind = AGGREGATE_INT;
		memcpy(&a->i, l->element, 8);
		return 0;
	case DTYPE_FLOAT64:
		a->kind = AGGREGATE_FLOAT;
		memcpy(&a->f, l->element, 8);
		return 0;
	case DTYPE_COMPLEX128:
		a->kind = AGGREGATE_COMPLEX;
		memcpy(&a->re, l->element, 8);
		memcpy(&a->im, l->element + 8, 8);
		return 0;
	default:
		break;
	}
	chunk = arena_calloc(&tree->arena, 1, sizeof(*chunk));
	if (!chunk)
		return fail(-ENOMEM, "cannot aggregate a number");
	*chunk = span_of(l->element, dtype_info(l->dtype)->size);
	*a = (struct aggregate){ .kind = AGGREGATE_ARRAY,
				 .is_scalar = true,
				 .n_chunks = 1,
				 .chunks = chunk,
				 .dtype = dtype_info(l->dtype)->name,
				 .item_size = chunk->n };
	return 0;
}

static int take_leaf(struct sealing_item *it, struct plan_leaf *l, uint64_t *left)
{
	struct tree *tree = it->plan->tree;
	struct aggregate *a = arena_calloc(&tree->arena, 1, sizeof(*a));
	bool shifted = false;
	int r = a ? 0 : fail(-ENOMEM, "cannot aggregate a leaf");

	if (r >= 0 && l->kind == PLAN_STRING)
		*a = (struct aggregate){ .kind = AGGREGATE_STRING, .s = buf_span(&l->text) };
	else if (r >= 0 && l->kind == PLAN_SCALAR)
		r = read_number(l, tree, a);
	if (r >= 0 && l->kind == PLAN_ARRAY) {
		if (l->n_parts)
			r = plan_join_parts(it->plan, l, &shifted);
		/* Parts on one grid are never put together: there is no one array to read. */
		if (r >= 0 && shifted)
			r = fail(-EINVAL,
				 "an array that was written in parts cannot be aggregated");
		if (r >= 0)
			r = read_elements(l, &it->plan->item->draft->env->ckpt->env, tree, a, left);
	}
	if (r < 0)
		return r;
	l->node->value = TREE_VALUE_AGGREGATE;
	l->node->aggregate = a;
	l->aggregated = true;
	return 0;
}

int sealing_item_aggregate(struct sealing_item *it)
{
	const struct draft_env *env = it->plan->item->draft->env;
	uint64_t left = env->ckpt->opts.write_budget / 2;
	bool any = false;
	int r = 0;

	for (size_t i = 0; i < it->plan->n_leaves && r >= 0; i++) {
		struct plan_leaf *l = &it->plan->leaf[i];

		r = plan_leaf_aggregates(l);
		if (r > 0) {
			r = take_leaf(it, l, &left);
			any = true;
		}
		if (r < 0)
			err_at(r, "leaf '%.*s'", SPAN_ARG(l->node->param));
	}
	return r < 0 || !any ? r : tree_print_aggregate(it->plan->tree, &it->aggregate);
}
