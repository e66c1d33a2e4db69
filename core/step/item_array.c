/* SPDX-License-Identifier: Apache-2.0 */
/*
 * item_array.c - open the arrays of an item.
 */
#include "core/base/clock.h"
#include "core/base/digest.h"
#include "core/base/err.h"
#include "core/base/refusal.h"
#include "core/step/aggregate.h"
#include "core/step/detect.h"
#include "core/step/item_impl.h"

static int open_in(struct item *item, struct kv *kv, struct span name, struct zarr_env *env,
		   uint32_t tag, struct zarr **ret)
{
	auto_buf prefix = { .metered = true };
	int r = zarr_key_prefix(name, &prefix);

	return r < 0 ? r : zarr_open(env, kv, buf_span(&prefix), item->owner, tag, ret);
}

/* Whether the arrays were in a database that has lost its manifests: 1 or 0. */
static int has_lost_manifest(const struct item *item)
{
	int r;

	if (item->is_ocdbt || item->is_file)
		return 0;
	if (item->has_bare_parts || (item->tree->has_use_ocdbt && item->tree->use_ocdbt))
		return 1;
	r = detect_has_data_files(item->dir, ".");
	return r == -EOPNOTSUPP ? 0 : r; /* a server that cannot list */
}

/* The leaf is in the tree, so a missing array is damage. */
static int fail_missing(const struct item *item, struct span param)
{
	auto_buf where = { 0 };
	int r = has_lost_manifest(item);

	if (r < 0)
		return r;
	if (r > 0)
		return fail(-EUCLEAN, ITEM_LOST_MANIFEST);
	if (item->is_hierarchy)
		return fail(-EUCLEAN, "array '%.*s' is named, and is not there", SPAN_ARG(param));
	if (item->is_unmerged && kv_where_text(item->kv, param, &where) >= 0 && buf_str(&where))
		return fail(-EUCLEAN,
			    "'%.*s' is in the tree, and its array is not stored: it is %s, and the "
			    "item was never merged",
			    SPAN_ARG(param), buf_str(&where));
	return fail(-EUCLEAN, "'%.*s' is in the tree, and its array is not stored",
		    SPAN_ARG(param));
}

/* Open the array of a leaf in the store that has it. */
static int open_in_stores(struct item *item, const struct tree_node *leaf, struct zarr_env *env,
			  struct zarr **ret)
{
	struct span param = leaf->param;
	size_t n = param.n;
	struct kv *below;
	int r = open_in(item, item->kv, param, env, leaf->id, ret);

	if (r == -ENOENT && item->dirs)
		r = open_in(item, item->dirs, param, env, leaf->id, ret);
	if (r != -ENOENT)
		return r;
	while ((r = item_below_find(item, param, &n, &below)) > 0) {
		r = open_in(item, below, span_from(param, n + 1), env, leaf->id, ret);
		if (r != -ENOENT)
			return r;
	}
	return r < 0 ? r : fail_missing(item, param);
}

/* Open the array of a spec, which must be as the spec says. */
static int open_spec(struct item *item, const struct tree_node *leaf, struct zarr_env *env,
		     struct zarr **ret)
{
	const struct aggregate *spec = leaf->aggregate;
	auto_of(zarr) struct zarr *z = NULL;
	auto_buf said = { 0 }, found = { 0 };
	const char *dtype;
	int r;

	if (spec->unreadable)
		return fail(-EOPNOTSUPP, "the spec of its array cannot be followed: %s",
			    spec->unreadable);
	r = open_in_stores(item, leaf, env, &z);
	if (r < 0)
		return r;
	dtype = dtype_info(z->meta.dtype)->name;
	if (spec->dtype && strcmp(spec->dtype, dtype))
		return fail(-EUCLEAN, "'%.*s' is of type %s, and its spec says %s",
			    SPAN_ARG(leaf->param), dtype, spec->dtype);
	if (spec->shape &&
	    (spec->rank != z->meta.rank ||
	     memcmp(spec->shape, z->meta.shape, spec->rank * sizeof(*spec->shape)))) {
		json_put_uints(&said, spec->shape, spec->rank, JSON_PYTHON);
		json_put_uints(&found, z->meta.shape, z->meta.rank, JSON_PYTHON);
		return fail(-EUCLEAN, "'%.*s' has the shape %s, and its spec says %s",
			    SPAN_ARG(leaf->param), buf_str(&found), buf_str(&said));
	}
	*ret = take(z);
	return 0;
}

static int open_stored(struct item *item, const struct tree_node *leaf, struct zarr_env *env,
		       struct zarr **ret)
{
	struct zarr *z;
	struct kv *kv;
	int r;

	if (leaf->shared)
		return tree_fail_shared(leaf);
	if (leaf->value != TREE_VALUE_AGGREGATE) {
		r = open_in_stores(item, leaf, env, &z);
	} else if (!leaf->aggregate) {
		return fail(-EUCLEAN, "the aggregate file does not have it");
	} else if (tree_leaf_has_spec(leaf)) {
		r = open_spec(item, leaf, env, &z);
	} else {
		r = aggregate_store(item, leaf->aggregate, &kv);
		if (r < 0)
			return r;
		r = zarr_open(env, kv, span_of(NULL, 0), item->owner, leaf->id, &z);
		kv_free(kv);
	}
	if (r < 0)
		return r;
	z->missing_is_error = item->missing_is_error && leaf->value != TREE_VALUE_AGGREGATE;
	z->any_bools = (leaf->value == TREE_VALUE_AGGREGATE && !tree_leaf_has_spec(leaf)) ||
		       (item->ckpt->only_item && !item->ckpt->is_flax);
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
	const uint8_t *slash;
	int r = 0;

	if (tree_leaf_is_stored(leaf) && item->gda)
		r = buf_addf(&path, "%s/", item->gda);
	if (r < 0)
		return r;
	if (tree_leaf_is_stored(leaf))
		r = zarr_key_prefix(leaf->param, &path);
	if (r < 0)
		return r;
	for (size_t i = 0, n = path.n; i < ARRAY_LEN(names); i++) {
		path.n = n;
		r = buf_add_str(&path, names[i]);
		if (r < 0)
			return r;
		mark = io_mark(item->dir, buf_str(&path), mark, &bytes);
	}
	/* The array may be in a database in the directory around it. */
	slash = leaf->param.n ? memrchr(leaf->param.p, '/', leaf->param.n) : NULL;
	if (slash) {
		buf_clear(&path);
		r = buf_addf(&path, "%.*s/manifest.ocdbt", (int)(slash - leaf->param.p),
			     (const char *)leaf->param.p);
		if (r < 0)
			return r;
		mark = io_mark(item->dir, buf_str(&path), mark, &bytes);
	}
	*ret = mark;
	return 0;
}

/*
 * Open the array, or return the remembered error of a recent attempt. An array that needs too much
 * memory is remembered even if that was found quickly, since each look-up, listing and view of the
 * leaf tries again, and each attempt reads the whole document. It is remembered of the item in the
 * checkpoint, since items may be freed and opened again when memory is short.
 */
static int open_array(struct item *item, const struct tree_node *leaf, struct zarr_env *env,
		      struct zarr **ret)
{
	const struct refusal_key key = refusal_key(item->ckpt->owner, span_str(item->path),
						   mix64((uint64_t)item->id.ino) + leaf->id);
	int64_t began = clock_ns();
	struct err_note note;
	uint64_t mark;
	int r = 0;

	if (refusal_is_likely(key)) {
		r = array_mark(item, leaf, &mark);
		if (r < 0)
			return r;
		r = refusal_ask(key, mark);
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
	return refusal_keep(key, mark, r == -EFBIG ? 0 : began, r);
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
		if (r < 0)
			return r;
		r = keep_made(item, leaf->id, &kv);
	}
	if (r < 0)
		return r;
	r = zarr_open(&item->ckpt->env, kv, span_of(NULL, 0), item->owner, leaf->id, ret);
	kv_free(kv);
	return r;
}

/* Set the address by which the processes of a job tell each other of the array. */
static int set_address(const struct item *item, const struct tree_node *leaf, struct zarr *z)
{
	const struct item_address a = { .dev = item->id.dev,
					.ino = item->id.ino,
					.ctime_s = item->id.ctime.tv_sec,
					.ctime_ns = item->id.ctime.tv_nsec,
					.leaf = leaf->id };
	auto_buf address = { 0 };
	int r = buf_add(&address, &a, sizeof(a));

	if (r < 0)
		return r;
	r = buf_add_str(&address, item->path);
	return r < 0 ? r : zarr_set_address(z, buf_span(&address));
}

int item_array(struct item *item, const struct tree_node *leaf, struct zarr **ret)
{
	auto_of(zarr) struct zarr *z = NULL;
	int r;

	if (leaf->source)
		return open_made(item, leaf, ret);
	r = open_array(item, leaf, &item->ckpt->env, &z);
	if (r < 0)
		return r;
	/* An aggregate file is already in the memory of each process. */
	if (item->ckpt->env.remote && leaf->value != TREE_VALUE_AGGREGATE)
		r = set_address(item, leaf, z);
	if (r < 0)
		return r;
	*ret = take(z);
	return 0;
}

int item_array_inner(struct item *item, const struct tree_node *leaf, struct zarr **ret)
{
	return open_array(item, leaf, &item->ckpt->inner_env, ret);
}
