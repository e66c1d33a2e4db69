/* SPDX-License-Identifier: Apache-2.0 */
/*
 * merge.c - merge many databases into one by reference: no value is copied.
 *
 * The entries of the result refer to the data files of the parts, which must
 * stay where they are. mergelist.c reads the parts in the order of keys,
 * build.c builds the tree.
 *
 * Invariants: if several parts have a key, its value is the same in all of
 * them.
 */
#include <stdio.h>

#include "core/base/err.h"
#include "core/base/log.h"
#include "core/ocdbt/db.h"

struct merge_source {
	struct ocdbt_source base;
	const struct ocdbt_merge_part *part;
	size_t n;
	struct mergelist_part *list_part;
	struct mergelist *list;
	struct buf path; /* base of the returned entry */
	unsigned round;  /* number of the pass, from 1 */
	struct ocdbt_merge_stats stats;
};

/* All parts that have the key must agree. Checked in the first pass only. */
static int check_same(struct merge_source *s, const struct mergelist_hit *hit, size_t n)
{
	s->stats.keys++;
	for (size_t i = 1; i < n; i++) {
		int r = ocdbt_value_equal(s->part[hit[0].part].db, &hit[0].entry->value,
					  s->part[hit[i].part].db, &hit[i].entry->value);

		if (r < 0)
			return err_at(r, "'%.*s'", SPAN_ARG(hit[0].entry->key));
		if (r == 0)
			return fail(-EUCLEAN, "'%.*s' is in '%s' and in '%s' with different values",
				    SPAN_ARG(hit[0].entry->key), s->part[hit[0].part].base,
				    s->part[hit[i].part].base);
		s->stats.repeated++;
	}
	return 0;
}

static int merge_next(struct ocdbt_source *src, struct ocdbt_entry *ret)
{
	struct merge_source *s = container_of(src, struct merge_source, base);
	const struct mergelist_hit *hit;
	int n = mergelist_next(s->list, &hit), r;

	if (n <= 0)
		return n;
	r = s->round == 1 ? check_same(s, hit, (size_t)n) : 0;
	if (r < 0)
		return r;
	*ret = *hit->entry;
	if (ret->value.kind != OCDBT_FILE)
		return 1;
	buf_clear(&s->path);
	r = buf_add_str(&s->path, s->part[hit->part].base);
	if (r < 0)
		return r;
	r = buf_add_span(&s->path, hit->entry->value.ref.base);
	ret->value.ref.base = buf_span(&s->path);
	return r < 0 ? r : 1;
}

static int merge_rewind(struct ocdbt_source *src)
{
	struct merge_source *s = container_of(src, struct merge_source, base);

	mergelist_close(take(s->list));
	s->round++;
	return mergelist_open(s->list_part, s->n, span_of(NULL, 0), span_of(NULL, 0), &s->list);
}

int ocdbt_merge(const struct ocdbt_merge_part *part, size_t n, const struct ocdbt_config *config,
		struct ocdbt_data *data, struct ocdbt_version *ret,
		struct ocdbt_merge_stats *ret_stats)
{
	auto_free struct mergelist_part *list_part = calloc(n + 1, sizeof(*list_part));
	struct merge_source s = { { merge_next, merge_rewind }, part, n, list_part };
	int r;

	if (!list_part)
		return fail(-ENOMEM, "cannot merge %zu databases", n);
	for (size_t i = 0; i < n; i++)
		list_part[i] = (struct mergelist_part){ part[i].db, part[i].version };
	r = ocdbt_build(&s.base, config, data, ret);
	mergelist_close(s.list);
	buf_release(&s.path);
	if (r < 0)
		return r;
	trace(TRACE_OCDBT, "merged %zu databases: %llu keys", n, (unsigned long long)s.stats.keys);
	if (ret_stats)
		*ret_stats = s.stats;
	return 0;
}

/* ---- parts by name ---- */

struct opened {
	struct ocdbt *db;
	struct ocdbt_version version;
	char *base;
};

static int open_one(struct io_dir *dir, const char *name, struct cache *cache, struct arena *a,
		    struct opened *ret)
{
	size_t n = strlen(name) + 2;
	int r = db_open_latest(dir, name, cache, a, &ret->db, &ret->version);

	if (r < 0)
		return r;
	ret->base = arena_alloc(a, n);
	if (!ret->base)
		return fail(-ENOMEM, "cannot open '%s'", name);
	snprintf(ret->base, n, "%s/", name);
	return 0;
}

int ocdbt_merge_dirs(struct io_dir *dir, const struct ocdbt_parts *parts, struct cache *cache,
		     const struct ocdbt_config *config, struct ocdbt_data *data,
		     struct ocdbt_version *ret, struct ocdbt_merge_stats *ret_stats)
{
	auto_free struct opened *opened = calloc(parts->n + 1, sizeof(*opened));
	auto_free struct ocdbt_merge_part *part = calloc(parts->n + 1, sizeof(*part));
	auto_arena a = { 0 };
	int r = opened && part ? 0 : fail(-ENOMEM, "cannot merge %zu databases", parts->n);

	for (size_t i = 0; i < parts->n && r >= 0; i++) {
		r = open_one(dir, parts->name[i], cache, &a, &opened[i]);
		part[i] = (struct ocdbt_merge_part){ opened[i].db, &opened[i].version,
						     opened[i].base };
	}
	if (r >= 0)
		r = ocdbt_merge(part, parts->n, config, data, ret, ret_stats);
	for (size_t i = 0; opened && i < parts->n; i++)
		ocdbt_db_close(opened[i].db);
	return r;
}
