/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store_cache_impl.h - a store with a cache on disk, for store_cache.c and store_cache_read.c.
 */
#ifndef PYTREEFS_CORE_STORE_STORE_CACHE_IMPL_H
#define PYTREEFS_CORE_STORE_STORE_CACHE_IMPL_H

#include "core/io/io_store.h"
#include "core/remote/cache/piece_dir.h"

struct store_cache {
	struct io_store base;
	struct io_store *below;
	struct piece_dir *dir;
	char *path, *root;
	uint64_t limit;
	atomic_ullong copies; /* bytes */
	atomic_ullong hits, misses, hit_bytes, fetched_bytes;
};

/* As in io_store_ops. */
int store_cache_submit(struct io_store *base, struct io_req *req, size_t n);
int store_cache_wait(struct io_store *base, struct io_req *req, size_t n);

#endif
