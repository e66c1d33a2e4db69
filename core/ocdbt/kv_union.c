/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kv_union.c - several databases as one read-only kv: an item that was never merged.
 *
 * Each process of a job leaves a database of its own beneath the item; merge.c merges them
 * permanently. The order of the parts matters only for messages: a key that two parts have must
 * have the same value in both.
 */
#include <stdio.h>

#include "core/base/array.h"
#include "core/base/err.h"
#include "core/ocdbt/db.h"

/* ---- finding parts ---- */

static bool is_part_name(const char *name)
{
	static const char prefix[] = "ocdbt.process_";
	size_t n = strlen(name);

	if (n <= sizeof(prefix) - 1 || strncmp(name, prefix, sizeof(prefix) - 1))
		return false;
	for (size_t i = sizeof(prefix) - 1; i < n; i++) {
		char c = name[i];

		if (!(c >= '0' && c <= '9') && !((c | 0x20) >= 'a' && (c | 0x20) <= 'z') &&
		    c != '_')
			return false;
	}
	return true;
}

static int collect_name(void *arg, const char *name, unsigned char type)
{
	struct ocdbt_parts *parts = arg;

	if (!is_part_name(name))
		return 0;
	if (!array_reserve(parts->name, parts->cap, parts->n + 1))
		return fail(-ENOMEM, "cannot allocate the names of the parts");
	parts->name[parts->n] = strdup(name);
	if (!parts->name[parts->n])
		return fail(-ENOMEM, "cannot allocate the names of the parts");
	parts->n++;
	return 0;
}

/* ocdbt.process_2 before ocdbt.process_10 */
static int by_number(const void *a, const void *b)
{
	return strverscmp(*(char *const *)a, *(char *const *)b);
}

/*
 * Returns 1 when the directory has a manifest, whole or not (opening it checks that); 0 when it has
 * none.
 */
static int is_database(struct io_dir *dir, const char *name)
{
	auto_free char *path = NULL;
	struct stat st;
	int r;

	path = str_fmt("%s/manifest.ocdbt", name);
	if (!path)
		return fail(-ENOMEM, "cannot look for '%s'", name);
	r = io_stat(dir, path, &st);
	if (r == -ENOENT || r == -ENOTDIR)
		return 0;
	return r == -ENOMEM ? r : 1;
}

int ocdbt_parts_find(struct io_dir *dir, struct ocdbt_parts *ret)
{
	auto_ocdbt_parts all = { 0 };
	size_t n_retained = 0;
	int r = io_list(dir, ".", collect_name, &all);

	if (r < 0)
		return r;
	if (all.n)
		qsort(all.name, all.n, sizeof(*all.name), by_number);
	for (size_t i = 0; i < all.n && r >= 0; i++) {
		char *name = all.name[i];

		r = is_database(dir, name);
		/* Swap, so that the whole list can be freed after a failure. */
		if (r > 0) {
			all.name[i] = all.name[n_retained];
			all.name[n_retained++] = name;
		}
	}
	if (r < 0)
		return r;
	for (size_t i = n_retained; i < all.n; i++)
		free(all.name[i]);
	all.n_bare = all.n - n_retained;
	all.n = n_retained;
	*ret = all;
	all = (struct ocdbt_parts){ 0 };
	return 0;
}

size_t ocdbt_part_parent(const char *path)
{
	const char *slash = strrchr(path, '/');

	if (!is_part_name(slash ? slash + 1 : path))
		return strlen(path);
	return slash ? (size_t)(slash - path) : 0;
}

void ocdbt_parts_release(struct ocdbt_parts *parts)
{
	for (size_t i = 0; i < parts->n; i++)
		free(parts->name[i]);
	free(parts->name);
	*parts = (struct ocdbt_parts){ 0 };
}

/* ---- the kv ---- */

struct part {
	char *name;                   /* owned */
	struct ocdbt *db;             /* owned */
	struct ocdbt_version version; /* paths in the union's arena */
};

struct kv_union {
	struct kv base;
	struct io_dir *dir; /* owned */
	struct arena arena;
	size_t n;
	struct part part[];
};

/* Put the values of part i into ret; from[at] is the part that ret[at] came from. */
static int locate_in_part(struct kv_union *u, size_t i, const struct span *key, const size_t *order,
			  struct kv_loc *ret, size_t *from, size_t n)
{
	auto_of(ocdbt_cursor) struct ocdbt_cursor *cur = NULL;
	auto_recent recent = { 0 };
	int r = ocdbt_cursor_open(u->part[i].db, &u->part[i].version, &cur);

	for (size_t k = 0; k < n && r >= 0; k++) {
		size_t at = order[k];
		auto_kv_loc loc = { 0 };
		struct ocdbt_value v;

		r = ocdbt_cursor_find(cur, key[at], &v);
		if (r > 0)
			r = value_locate(u->part[i].db, &recent, &v, &loc);
		if (r < 0)
			return err_at(r, "'%.*s' in '%s'", SPAN_ARG(key[at]), u->part[i].name);
		if (loc.where == KV_ABSENT)
			continue;
		if (ret[at].where == KV_ABSENT) {
			ret[at] = loc;
			loc = (struct kv_loc){ 0 };
			from[at] = i;
			continue;
		}
		r = value_same(&ret[at], &loc);
		if (r == 0)
			return fail(-EUCLEAN, "'%.*s' is in '%s' and in '%s' with different values",
				    SPAN_ARG(key[at]), u->part[from[at]].name, u->part[i].name);
	}
	return r;
}

static int union_locate(struct kv *kv, const struct span *key, struct kv_loc *ret, size_t n)
{
	struct kv_union *u = container_of(kv, struct kv_union, base);
	auto_free size_t *order = NULL;
	auto_free size_t *from = calloc(n + 1, sizeof(*from));
	int r = from ? kv_batch_order(key, n, &order) : fail(-ENOMEM, "cannot allocate a batch");

	for (size_t i = 0; i < u->n && r >= 0; i++)
		r = locate_in_part(u, i, key, order, ret, from, n);
	return r < 0 ? r : 0;
}

static int union_list(struct kv *kv, struct span prefix, kv_each_fn *each, void *arg)
{
	struct kv_union *u = container_of(kv, struct kv_union, base);
	auto_free struct mergelist_part *part = calloc(u->n + 1, sizeof(*part));
	auto_of(mergelist) struct mergelist *m = NULL;
	auto_buf end = { 0 };
	int r = part ? ocdbt_prefix_end(prefix, &end) : fail(-ENOMEM, "cannot list '%s'", kv->name);

	if (r < 0)
		return r;
	for (size_t i = 0; i < u->n; i++)
		part[i] = (struct mergelist_part){ u->part[i].db, &u->part[i].version };
	r = mergelist_open(part, u->n, prefix, buf_span(&end), &m);
	while (r >= 0) {
		const struct mergelist_hit *hit;

		r = mergelist_next(m, &hit);
		if (r <= 0)
			break;
		r = each(arg, hit->entry->key, ocdbt_value_len(&hit->entry->value));
		if (r)
			break;
	}
	return r;
}

#define NAMES_MAX 16 /* parts that a message names */

/* Append the name of part i of n to a list of them. */
static int add_part_name(struct buf *ret, const char *name, size_t i, size_t n)
{
	if (i == NAMES_MAX)
		return buf_addf(ret, " and %zu more", n - i);
	return i > NAMES_MAX ? 0 : buf_addf(ret, "%s%s", i ? ", " : "", name);
}

int ocdbt_parts_text(const struct ocdbt_parts *parts, struct buf *ret)
{
	int r = 0;

	for (size_t i = 0; i < parts->n && r >= 0; i++)
		r = add_part_name(ret, parts->name[i], i, parts->n);
	return r;
}

static int union_where_text(struct kv *kv, struct span key, struct buf *ret)
{
	struct kv_union *u = container_of(kv, struct kv_union, base);
	int r;

	for (size_t i = 0; i < u->n; i++) {
		auto_of(ocdbt_cursor) struct ocdbt_cursor *cur = NULL;
		struct ocdbt_value v;

		r = ocdbt_cursor_open(u->part[i].db, &u->part[i].version, &cur);
		if (r < 0)
			return r;
		r = ocdbt_cursor_find(cur, key, &v);
		if (r != 0)
			return r < 0 ? r : value_where_text(ret, u->part[i].name, &v);
	}
	r = buf_add_str(ret, "absent from ");
	for (size_t i = 0; i < u->n && r >= 0; i++)
		r = add_part_name(ret, u->part[i].name, i, u->n);
	return r;
}

static void union_free(struct kv *kv)
{
	struct kv_union *u = container_of(kv, struct kv_union, base);

	for (size_t i = 0; i < u->n; i++) {
		ocdbt_db_close(u->part[i].db);
		free(u->part[i].name);
	}
	io_dir_close(u->dir);
	arena_release(&u->arena);
	free(u);
}

static void union_close_files(struct kv *kv)
{
	struct kv_union *u = container_of(kv, struct kv_union, base);

	for (size_t i = 0; i < u->n; i++)
		ocdbt_db_close_files(u->part[i].db);
}

static const struct kv_ops union_ops = {
	.name = "ocdbt-union",
	.locate = union_locate,
	.list = union_list,
	.where_text = union_where_text,
	.close_files = union_close_files,
	.free = union_free,
};

static int open_part(struct kv_union *u, struct io_dir *dir, const char *name, struct cache *cache)
{
	struct part *p = &u->part[u->n];

	p->name = strdup(name);
	if (!p->name)
		return fail(-ENOMEM, "cannot open '%s'", name);
	u->n++; /* from here on union_free() frees it */
	return db_open_latest(dir, name, cache, &u->arena, &p->db, &p->version);
}

int ocdbt_open_union(struct io_dir *dir, const struct ocdbt_parts *parts, struct cache *cache,
		     const struct ocdbt_open_opts *opts, struct kv **ret)
{
	struct kv_union *u;
	int r = 0;

	if (opts && (opts->when.generation || opts->when.time))
		return fail(-EINVAL, "'%s': a union of databases has no generations", dir->path);
	u = calloc(1, sizeof(*u) + parts->n * sizeof(u->part[0]));
	if (u)
		u->base.name = strdup(opts && opts->name ? opts->name : dir->path);
	if (!u || !u->base.name) {
		free(u);
		return fail(-ENOMEM, "cannot open the databases in '%s'", dir->path);
	}
	u->base.ops = &union_ops;
	u->base.io = dir->io;
	for (size_t i = 0; i < parts->n && r >= 0; i++)
		r = open_part(u, dir, parts->name[i], cache);
	if (r < 0) {
		free(u->base.name);
		union_free(&u->base);
		return err_at(r, "'%s'", dir->path);
	}
	u->dir = dir;
	*ret = &u->base;
	return 0;
}
