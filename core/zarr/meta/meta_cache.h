/* SPDX-License-Identifier: Apache-2.0 */
/*
 * meta_cache.h - recently parsed metadata documents.
 *
 * The arrays of a tree have only a few different documents, and a listing opens all of them.
 */
#ifndef PYTREEFS_META_CACHE_H
#define PYTREEFS_META_CACHE_H

#include <stdatomic.h>

#include "core/zarr/meta/zarr_meta.h"

struct meta_cache;

/* Immutable; has a reference count. */
struct meta_shared {
	struct zarr_meta meta;
	atomic_uint refs;
	size_t n;
	uint8_t *text; /* the document; NULL when it is not cached */
};

int meta_cache_new(struct meta_cache **ret);
/* Arrays may outlive the cache. Accepts NULL. */
void meta_cache_free(struct meta_cache *m);
/* zarr_meta_parse() with a cache; any thread may call. With m NULL every document is parsed. */
int meta_cache_parse(struct meta_cache *m, struct span json, const char *what,
		     struct meta_shared **ret);
/*
 * A document by its array, for stores, where reading it again takes a round trip. An array is
 * identified as in the cache of chunks, and by the kv that it was read from. Get returns a
 * reference, or NULL when it is not known any more.
 */
struct meta_shared *meta_cache_get(struct meta_cache *m, uint64_t owner, uint32_t tag,
				   const void *kv);
void meta_cache_put(struct meta_cache *m, uint64_t owner, uint32_t tag, const void *kv,
		    struct meta_shared *s);
void meta_shared_unref(struct meta_shared *s);
DEFINE_AUTO(meta_shared, struct meta_shared, meta_shared_unref);

#endif
