/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store_cache.h - a store in front of another one, which keeps the bytes that were read on disk.
 */
#ifndef PYTREEFS_CORE_STORE_STORE_CACHE_H
#define PYTREEFS_CORE_STORE_STORE_CACHE_H

#include "core/io/io_store.h"

struct store_cache_opts {
	const char *dir;  /* cache_dir= */
	uint64_t limit;   /* bytes; 0: any number */
	const char *root; /* the URL of the root, the same for all processes */
};

/* The new store takes `below`, also on failure. begin() opens the directory. */
int store_cache_new(const struct store_cache_opts *opts, struct io_store *below,
		    struct io_store **ret);

#endif
