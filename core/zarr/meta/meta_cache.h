/* SPDX-License-Identifier: Apache-2.0 */
/*
 * meta_cache.h - recently parsed metadata documents, and those of arrays in stores.
 *
 * The arrays of a tree have only a few different documents, and a listing opens all of them.
 */
#ifndef PYTREEFS_META_CACHE_H
#define PYTREEFS_META_CACHE_H

#include <stdatomic.h>

#include "core/zarr/meta/zarr_meta.h"

#define META_CACHED_BYTES 4096 /* longer documents are rare, and not kept */

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
 * identified by owner and tag, as in the cache of chunks, and by the kv that it was read from,
 * which has to live as long as its owner is in use: only its address is compared. Get returns a
 * reference, or NULL when the array is not known, or not any more: a later one may have replaced
 * it. Put takes a reference of its own; without memory it does nothing. Any thread may call; m may
 * be NULL.
 */
struct meta_shared *meta_cache_get(struct meta_cache *m, uint64_t owner, uint32_t tag,
				   const void *kv);
void meta_cache_put(struct meta_cache *m, uint64_t owner, uint32_t tag, const void *kv,
		    struct meta_shared *s);
/* Forget the arrays of an owner that is released. */
void meta_cache_drop(struct meta_cache *m, uint64_t owner);
void meta_shared_unref(struct meta_shared *s);
DEFINE_AUTO(meta_shared, struct meta_shared, meta_shared_unref);

#endif
