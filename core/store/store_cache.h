/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store_cache.h - a store before another one: what was read is kept on disk, and read from there.
 */
#ifndef PYTREEFS_CORE_STORE_STORE_CACHE_H
#define PYTREEFS_CORE_STORE_STORE_CACHE_H

#include "core/io/io_store.h"

struct store_cache_opts {
	const char *dir;  /* cache_dir= */
	uint64_t limit;   /* bytes; 0: any number */
	const char *root; /* URL by which other processes know the same objects */
};

/* below is the new store's then, also on failure. The directory is opened by begin(). */
int store_cache_new(const struct store_cache_opts *opts, struct io_store *below,
		    struct io_store **ret);

#endif
