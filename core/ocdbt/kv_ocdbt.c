/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kv_ocdbt.c - one version of one database as a read-only kv.
 *
 * lookup.c finds keys; kv_union.c combines several databases.
 */
#include <inttypes.h>

#include "core/base/err.h"
#include "core/base/log.h"
#include "core/ocdbt/db.h"

struct kv_ocdbt {
	struct kv base;
	struct ocdbt *db;             /* owned */
	struct ocdbt_version version; /* paths in arena */
	struct arena arena;
};

/* ---- order of a batch ---- */

static int kv_ocdbt_by_key(const void *a, const void *b, void *arg)
{
	const struct span *key = arg;

	return span_cmp(key[*(const size_t *)a], key[*(const size_t *)b]);
}

int kv_batch_order(const struct span *key, size_t n, size_t **ret)
{
	size_t *order = calloc(n + 1, sizeof(*order)), sorted = 1;

	if (!order)
		return fail(-ENOMEM, "cannot allocate a batch of %zu keys", n);
	for (size_t i = 0; i < n; i++)
		order[i] = i;
	while (sorted < n && span_cmp(key[sorted - 1], key[sorted]) <= 0)
		sorted++;
	if (sorted < n)
		qsort_r(order, n, sizeof(*order), kv_ocdbt_by_key, (void *)(uintptr_t)key);
	*ret = order;
	return 0;
}

/* ---- the kv ---- */

static int ocdbt_locate(struct kv *kv, const struct span *key, struct kv_loc *ret, size_t n)
{
	struct kv_ocdbt *k = container_of(kv, struct kv_ocdbt, base);
	auto_of(ocdbt_cursor) struct ocdbt_cursor *cur = NULL;
	auto_free size_t *order = NULL;
	auto_recent recent = { 0 };
	int r;

	trace(TRACE_OCDBT, "find %zu keys", n);
	r = kv_batch_order(key, n, &order);
	if (r < 0)
		return r;
	r = ocdbt_cursor_open(k->db, &k->version, &cur);
	if (r < 0)
		return r;
	for (size_t i = 0; i < n; i++) {
		size_t at = order[i];
		struct ocdbt_value v;

		r = ocdbt_cursor_find(cur, key[at], &v);
		if (r > 0)
			r = value_locate(k->db, &recent, &v, &ret[at]);
		if (r < 0)
			return err_at(r, "'%.*s'", SPAN_ARG(key[at]));
	}
	return 0;
}

static int ocdbt_list(struct kv *kv, struct span prefix, kv_each_fn *each, void *arg)
{
	struct kv_ocdbt *k = container_of(kv, struct kv_ocdbt, base);
	auto_of(ocdbt_cursor) struct ocdbt_cursor *cur = NULL;
	auto_buf end = { 0 };
	struct ocdbt_entry e;
	int r = ocdbt_prefix_end(prefix, &end);

	if (r < 0)
		return r;
	r = ocdbt_cursor_open(k->db, &k->version, &cur);
	if (r < 0)
		return r;
	r = ocdbt_cursor_range(cur, prefix, buf_span(&end));
	while (r >= 0) {
		r = ocdbt_cursor_next(cur, &e);
		if (r <= 0)
			break;
		r = each(arg, e.key, ocdbt_value_len(&e.value));
		if (r)
			break;
	}
	return r;
}

static int ocdbt_where_text(struct kv *kv, struct span key, struct buf *ret)
{
	struct kv_ocdbt *k = container_of(kv, struct kv_ocdbt, base);
	auto_of(ocdbt_cursor) struct ocdbt_cursor *cur = NULL;
	struct ocdbt_value v;
	int r = ocdbt_cursor_open(k->db, &k->version, &cur);

	if (r < 0)
		return r;
	r = ocdbt_cursor_find(cur, key, &v);
	if (r < 0)
		return r;
	return r ? value_where_text(ret, NULL, &v) : buf_add_str(ret, "absent");
}

static void ocdbt_free(struct kv *kv)
{
	struct kv_ocdbt *k = container_of(kv, struct kv_ocdbt, base);

	ocdbt_db_close(k->db);
	arena_release(&k->arena);
	free(k);
}

static void close_files(struct kv *kv)
{
	ocdbt_db_close_files(container_of(kv, struct kv_ocdbt, base)->db);
}

static const struct kv_ops ocdbt_ops = {
	.name = "ocdbt",
	.locate = ocdbt_locate,
	.list = ocdbt_list,
	.where_text = ocdbt_where_text,
	.close_files = close_files,
	.free = ocdbt_free,
};

/* ---- opening ---- */

static int find_wanted(struct kv_ocdbt *k, const struct ocdbt_when *when, const char *path)
{
	int r = ocdbt_find_version(k->db, when, &k->arena, &k->version);

	if (r != 0)
		return r < 0 ? err_at(r, "'%s'", path) : 0;
	if (when->generation)
		return fail(-ENOENT, "'%s' has no version of generation %" PRIu64, path,
			    when->generation);
	if (when->time)
		return fail(-ENOENT, "'%s' has no version of time %" PRIu64 " or before", path,
			    when->time);
	/*
	 * The numbered kind without a numbered manifest: the database was created, but nothing
	 * committed yet.
	 */
	k->version = (struct ocdbt_version){ .root.off = OCDBT_NO_ROOT, .root.len = OCDBT_NO_ROOT };
	return 0;
}

int ocdbt_open(struct io_dir *dir, struct cache *cache, const struct ocdbt_open_opts *opts,
	       struct kv **ret)
{
	static const struct ocdbt_open_opts defaults;
	struct kv_ocdbt *k = calloc(1, sizeof(*k));
	int r;

	opts = opts ? opts : &defaults;
	if (k)
		k->base.name = strdup(opts->name ? opts->name : dir->path);
	if (!k || !k->base.name) {
		free(k);
		return fail(-ENOMEM, "cannot open the database in '%s'", dir->path);
	}
	k->base.ops = &ocdbt_ops;
	k->base.io = dir->io;
	r = ocdbt_db_open(dir, cache, &k->db);
	if (r >= 0)
		r = find_wanted(k, &opts->when, dir->path);
	if (r < 0) {
		if (k->db)
			k->db->dir = NULL; /* not taken */
		free(k->base.name);
		ocdbt_free(&k->base);
		return r;
	}
	*ret = &k->base;
	return 0;
}
