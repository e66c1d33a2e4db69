/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store_cache.c - a store in front of another one, with a directory of pieces that were read.
 *
 * store_cache_read.c has the reads. Look-ups and listings go to the store below, so the cache is
 * used only for the object that has the current tag and size.
 */
#include "core/remote/cache/store_cache.h"

#include "core/base/err.h"
#include "core/remote/cache/store_cache_impl.h"

static struct store_cache *cache_of(struct io_store *base)
{
	return container_of(base, struct store_cache, base);
}

static int cache_begin(struct io_store *base, struct io_engine *io)
{
	struct store_cache *c = cache_of(base);
	int r = c->below->ops->begin ? c->below->ops->begin(c->below, io) : 0;

	return r < 0 ? r : piece_dir_open(io, c->path, c->limit, &c->dir);
}

/* want is dropped: the range may be on disk, and need not be fetched along. */
static int cache_lookup(struct io_store *base, const char *path, const struct io_want *want,
			struct io_object *ret)
{
	struct store_cache *c = cache_of(base);

	return c->below->ops->lookup(c->below, path, NULL, ret);
}

static int cache_list(struct io_store *base, const char *path, io_store_fn *each, void *arg)
{
	struct store_cache *c = cache_of(base);

	return c->below->ops->list(c->below, path, each, arg);
}

static void cache_quiesce(struct io_store *base)
{
	struct store_cache *c = cache_of(base);

	c->below->ops->quiesce(c->below);
}

static const char *cache_file(struct io_store *base, size_t i)
{
	struct store_cache *c = cache_of(base);

	return c->below->ops->file(c->below, i);
}

static void cache_stats(struct io_store *base, struct io_store_stats *ret)
{
	struct store_cache *c = cache_of(base);
	struct piece_dir_stats dir;

	piece_dir_stats(c->dir, &dir);
	*ret = (struct io_store_stats){ 0 };
	if (c->below->ops->stats)
		c->below->ops->stats(c->below, ret);
	ret->has_cache = true;
	ret->cache_hits = atomic_load(&c->hits);
	ret->cache_misses = atomic_load(&c->misses);
	ret->cache_hit_bytes = atomic_load(&c->hit_bytes);
	ret->fetched_bytes = atomic_load(&c->fetched_bytes);
	ret->cache_stored = dir.stored;
	ret->cache_evicted = dir.evicted;
	ret->cache_damaged = dir.damaged;
}

static void cache_refresh(struct io_store *base)
{
	struct store_cache *c = cache_of(base);

	c->below->ops->refresh(c->below);
}

static void cache_free(struct io_store *base)
{
	struct store_cache *c = cache_of(base);

	c->below->ops->free(c->below);
	piece_dir_close(c->dir);
	free(c->path);
	free(c->root);
	free(c);
}

static const struct io_store_ops ops = {
	.name = "cache",
	.begin = cache_begin,
	.lookup = cache_lookup,
	.list = cache_list,
	.submit = store_cache_submit,
	.wait = store_cache_wait,
	.refresh = cache_refresh,
	.quiesce = cache_quiesce,
	.file = cache_file,
	.stats = cache_stats,
	.free = cache_free,
};

int store_cache_new(const struct store_cache_opts *opts, struct io_store *below,
		    struct io_store **ret)
{
	struct store_cache *c = calloc(1, sizeof(*c));

	if (!c) {
		below->ops->free(below);
		return fail(-ENOMEM, "cannot open cache_dir='%s'", opts->dir);
	}
	c->base = *below; /* which owns the texts */
	c->base.ops = &ops;
	c->below = below;
	c->limit = opts->limit;
	c->path = strdup(opts->dir);
	c->root = strdup(opts->root);
	if (!c->path || !c->root) {
		cache_free(&c->base);
		return fail(-ENOMEM, "cannot open cache_dir='%s'", opts->dir);
	}
	*ret = &c->base;
	return 0;
}
