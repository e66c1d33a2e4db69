/* SPDX-License-Identifier: Apache-2.0 */
/*
 * item_array.c - open the arrays of an item.
 */
#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/step/aggregate.h"
#include "core/step/item_impl.h"

static int open_stored(struct item *item, const struct tree_node *leaf, struct zarr_env *env,
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
	} else if (leaf->is_shared) {
		return tree_fail_shared(leaf);
	} else {
		r = zarr_key_prefix(leaf->param, &prefix);
		if (r < 0)
			return r;
		r = zarr_open(env, item->kv, buf_span(&prefix), item->owner, leaf->id, &z);
		if (r == -ENOENT && item->dirs)
			r = zarr_open(env, item->dirs, buf_span(&prefix), item->owner, leaf->id,
				      &z);
		/* The leaf is in the tree, so a missing array is damage. */
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

/* ---- arrays that could not be opened ---- */

/* A mark of the files with the metadata of the leaf's array, which changes when they change. */
static int array_mark(struct item *item, const struct tree_node *leaf, uint64_t *ret)
{
	static const char *const names[] = { ".zarray", "zarr.json" };
	uint64_t bytes = 0, mark = io_mark(item->dir, "manifest.ocdbt", leaf->id + 1, &bytes);
	auto_buf path = { .metered = true };
	int r = 0;

	if (leaf->value != TREE_VALUE_AGGREGATE && !leaf->source)
		r = zarr_key_prefix(leaf->param, &path);
	for (size_t i = 0, n = path.n; i < ARRAY_LEN(names) && r >= 0; i++) {
		path.n = n;
		r = buf_add_str(&path, names[i]);
		if (r >= 0)
			mark = io_mark(item->dir, buf_str(&path), mark, &bytes);
	}
	*ret = mark;
	return r;
}

/*
 * The key of a remembered error. The checkpoint holds these, since items may be freed and opened
 * again when memory is short.
 */
static int refused_key(const struct item *item, const struct tree_node *leaf, struct buf *ret)
{
	int r = buf_add(ret, &leaf->id, sizeof(leaf->id));

	if (r >= 0)
		r = buf_add(ret, &item->id.ino, sizeof(item->id.ino));
	if (r >= 0)
		r = buf_add_str(ret, item->path);
	return r;
}

/*
 * Open the array, or return the remembered error of a recent attempt. An array that needs too much
 * memory is remembered even if that was found quickly, since each look-up, listing and view of the
 * leaf tries again, and each attempt reads the whole document.
 */
static int open_array(struct item *item, const struct tree_node *leaf, struct zarr_env *env,
		      struct zarr **ret)
{
	struct refusals *refused = &item->ckpt->refused_arrays;
	int64_t began = clock_ns();
	auto_buf key = { 0 };
	struct err_note note;
	uint64_t mark;
	int r = refused_key(item, leaf, &key);

	if (r >= 0 && refusals_have(refused, buf_span(&key))) {
		r = array_mark(item, leaf, &mark);
		if (r >= 0)
			r = refusals_ask(refused, buf_span(&key), mark);
	}
	if (r < 0)
		return r;
	r = open_stored(item, leaf, env, ret);
	if (r >= 0)
		return r;
	err_save(r, &note);
	if (array_mark(item, leaf, &mark) < 0)
		return err_restore(&note);
	err_restore(&note);
	return refusals_keep(refused, buf_span(&key), mark, r == -EFBIG ? 0 : began, r);
}

/* Returns 1 and a reference to the store that a leaf's source made before, or 0. */
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

/* Store *kv for the leaf. If another thread was faster, *kv is replaced by its store. */
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

/* Open the array that a leaf's source makes. */
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
	/* An aggregate file is already in the memory of each process. */
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
