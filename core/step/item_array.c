/* SPDX-License-Identifier: Apache-2.0 */
/*
 * item_array.c - opening the arrays of an item.
 */
#include "core/base/err.h"
#include "core/step/aggregate.h"
#include "core/step/item_impl.h"

static int open_array(struct item *item, const struct tree_node *leaf, struct zarr_env *env,
		      struct zarr **ret)
{
	auto_buf prefix = { .metered = true };
	struct zarr *z;
	int r;

	if (leaf->value == TREE_VALUE_AGGREGATE) {
		struct kv *kv;

		if (!leaf->aggregate)
			return fail(-EUCLEAN, "the aggregate file does not have it");
		r = aggregate_store(item, leaf->aggregate, &kv);
		if (r < 0)
			return r;
		r = zarr_open(env, kv, span_of(NULL, 0), item->owner, leaf->id, &z);
		kv_free(kv);
	} else {
		r = zarr_key_prefix(leaf->param, &prefix);
		if (r < 0)
			return r;
		r = zarr_open(env, item->kv, buf_span(&prefix), item->owner, leaf->id, &z);
		if (r == -ENOENT && item->dirs)
			r = zarr_open(env, item->dirs, buf_span(&prefix), item->owner, leaf->id,
				      &z);
		/* The tree has it, so its absence is damage. */
		if (r == -ENOENT)
			r = fail(-EUCLEAN, "'%.*s' is in the tree, and its array is not stored",
				 SPAN_ARG(leaf->param));
	}
	if (r < 0)
		return r;
	z->missing_is_error = item->missing_is_error && leaf->value != TREE_VALUE_AGGREGATE;
	*ret = z;
	return 0;
}

/* The store that was retained for a leaf: 1 and a reference, or 0 when it has not got one yet. */
static int find_made(struct item *item, uint32_t id, struct kv **ret)
{
	int r = 0;

	pthread_mutex_lock(&item->lock);
	if (item->made && item->made[id]) {
		*ret = kv_ref(item->made[id]);
		r = 1;
	}
	pthread_mutex_unlock(&item->lock);
	return r;
}

/* Keep one. When another thread was faster, *kv becomes that one's. */
static int keep_made(struct item *item, uint32_t id, struct kv **kv)
{
	int r = 0;

	pthread_mutex_lock(&item->lock);
	if (!item->made)
		item->made = calloc(item->tree->n_nodes, sizeof(*item->made));
	if (!item->made) {
		r = fail(-ENOMEM, "cannot keep a computed array");
		kv_free(*kv);
	} else if (item->made[id]) {
		kv_free(*kv);
		*kv = kv_ref(item->made[id]);
	} else {
		item->made[id] = kv_ref(*kv);
	}
	pthread_mutex_unlock(&item->lock);
	return r;
}

/* A leaf that is not stored: what its source makes. */
static int open_made(struct item *item, const struct tree_node *leaf, struct zarr **ret)
{
	struct kv *kv;
	int r = find_made(item, leaf->id, &kv);

	if (r == 0) {
		r = leaf->source->open(leaf->source, item, &kv);
		if (r >= 0)
			r = keep_made(item, leaf->id, &kv);
	}
	if (r < 0)
		return r;
	r = zarr_open(&item->ckpt->env, kv, span_of(NULL, 0), item->owner, leaf->id, ret);
	kv_free(kv);
	return r;
}

int item_array(struct item *item, const struct tree_node *leaf, struct zarr **ret)
{
	const struct item_address a = { .dev = item->id.dev,
					.ino = item->id.ino,
					.ctime_s = item->id.ctime.tv_sec,
					.ctime_ns = item->id.ctime.tv_nsec,
					.leaf = leaf->id };
	auto_of(zarr) struct zarr *z = NULL;
	auto_buf address = { 0 };
	int r;

	if (leaf->source)
		return open_made(item, leaf, ret);
	r = open_array(item, leaf, &item->ckpt->env, &z);
	/* What an aggregate file holds is in every process's memory already. */
	if (r >= 0 && item->ckpt->env.remote && leaf->value != TREE_VALUE_AGGREGATE) {
		r = buf_add(&address, &a, sizeof(a));
		if (r >= 0)
			r = buf_add_str(&address, item->path);
		if (r >= 0)
			r = zarr_set_address(z, buf_span(&address));
	}
	if (r < 0)
		return r;
	*ret = take(z);
	return 0;
}

int item_array_inner(struct item *item, const struct tree_node *leaf, struct zarr **ret)
{
	return open_array(item, leaf, &item->ckpt->inner_env, ret);
}
