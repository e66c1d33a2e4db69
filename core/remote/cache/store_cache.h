/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store_cache.h - a store's bytes that were read, on disk (cache_dir=). The store passes its reads
 * through the cache, which calls it for what is not on disk.
 *
 * Look-ups and listings do not come here, so the cache is used only for the object that has the
 * current tag and size.
 */
#ifndef PYTREEFS_CORE_STORE_STORE_CACHE_H
#define PYTREEFS_CORE_STORE_STORE_CACHE_H

#include "core/io/io_store.h"

struct store_cache;

struct store_cache_opts {
	const char *dir;  /* cache_dir=; borrowed until store_cache_begin() */
	uint64_t limit;   /* bytes; 0: any number */
	const char *root; /* the URL of the root, the same for all processes; borrowed */
	/* The store, and its reads without the cache. */
	struct io_store *store;
	int (*submit)(struct io_store *store, struct io_req *req, size_t n);
	int (*wait)(struct io_store *store, struct io_req *req, size_t n);
};

int store_cache_new(const struct store_cache_opts *opts, struct store_cache **ret);
/* Accepts NULL. */
void store_cache_free(struct store_cache *c);
/* Open the directory: called as in io_store_ops, and so are the next two. */
int store_cache_begin(struct store_cache *c, struct io_engine *io);
int store_cache_submit(struct store_cache *c, struct io_req *req, size_t n);
int store_cache_wait(struct store_cache *c, struct io_req *req, size_t n);
/* Set the counts of the cache, and leave the others. */
void store_cache_stats(struct store_cache *c, struct io_store_stats *ret);

#endif
