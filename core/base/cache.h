/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cache.h - byte-bounded, pinned, single-flight cache of immutable values.
 *
 * One cache holds all that a mount keeps decoded: chunks, pieces of large chunks,
 * shard indices and B+tree nodes. A value is filled once, by the first thread that
 * asks, while others wait for it; it is freed when it is not pinned and the bytes
 * are needed, least recently used first. Entries that cache_drop_behind() names are
 * freed first. Those that were made before anybody asked (cache_put_ahead()) have a part of
 * the limit, and are counted: which of them were of use.
 *
 * All functions may be called by any thread. Values are immutable once filled.
 */
#ifndef PYTREEFS_CACHE_H
#define PYTREEFS_CACHE_H

#include "core/base/mem.h"

struct cache;

struct cache_key {
	uint64_t owner; /* from cache_owner(): one array, one database */
	uint64_t id;    /* what of it: chunk number, offset in a file */
	uint64_t part;  /* further split: piece number, kind of value */
};

/* A pinned entry. value may be read while it is ready and pinned. */
struct cache_entry {
	struct cache_key key;
	const void *value;
};

enum cache_state {
	CACHE_HIT,  /* ready */
	CACHE_MINE, /* the caller must cache_fill() or cache_fail() it */
	CACHE_BUSY, /* another thread is filling it: cache_wait() */
};

int cache_new(uint64_t bytes, struct cache **ret);
/* From now on metadata may take the place of what it holds (meter.h). Once. */
void cache_give_way(struct cache *cache);
/* Nothing may be pinned any more. Accepts NULL. */
void cache_free(struct cache *cache);
DEFINE_AUTO(cache, struct cache, cache_free);
/* A number never given before, for cache_key.owner. */
uint64_t cache_owner(void);

/*
 * Find or begin an entry and pin it; the pin is given back by cache_put() whatever happens. To
 * avoid deadlock, a thread fills all that are CACHE_MINE before it waits for a CACHE_BUSY one of
 * the same kind. Kinds have an order: a thread that fills a chunk may wait for a shard index, and
 * one that fills either may wait for a node of the database, never the other way round. Returns an
 * enum cache_state, or -ENOMEM.
 */
int cache_begin(struct cache *cache, const struct cache_key *key, struct cache_entry **ret);
/* Pin it if it is ready: true. Never begins one. */
bool cache_peek(struct cache *cache, const struct cache_key *key, struct cache_entry **ret);
/* Whether it is there, without pinning or touching: ready, or (too) still being filled. */
enum cache_ask { CACHE_READY, CACHE_READY_OR_BUSY };
bool cache_has(struct cache *cache, const struct cache_key *key, enum cache_ask ask);
/* The value of a CACHE_MINE entry; charge is its size in bytes; free_value is called at its end. */
void cache_fill(struct cache *cache, struct cache_entry *e, void *value, uint64_t charge,
		void (*free_value)(void *value));
/* The filling failed: waiters get code and this thread's note; the next asker tries again. */
void cache_fail(struct cache *cache, struct cache_entry *e, int code);
/* Wait until another thread has filled it: 0, or its error with its note. */
int cache_wait(struct cache *cache, struct cache_entry *e);
/* Give the pin back. Accepts NULL. */
void cache_put(struct cache *cache, struct cache_entry *e);
/* The same by who filled it for readers that may come: it is `ahead` until one asks. */
void cache_put_ahead(struct cache *cache, struct cache_entry *e);
/* Nobody is expected any more to ask for what an owner has that is ahead: freed before all others. */
void cache_end_ahead(struct cache *cache, uint64_t owner);
/*
 * A sequential reader has read n entries with consecutive ids: they are freed before all others,
 * and take only a small part of the limit together. An entry that is asked for again is an ordinary
 * one from then on.
 */
void cache_drop_behind(struct cache *cache, const struct cache_key *first, uint64_t n);
/* Remove one owner's entries; pinned ones are freed when they are put. */
void cache_drop(struct cache *cache, uint64_t owner);

struct cache_stats {
	uint64_t bytes, peak_bytes, limit, entries, pinned_bytes, drop_behind_bytes;
	uint64_t hits, misses, waits, evictions;
	uint64_t ahead_bytes;                             /* that nobody has asked for yet */
	uint64_t ahead_started, ahead_used, ahead_wasted; /* bytes: all, asked for, freed before */
};
void cache_stats(struct cache *cache, struct cache_stats *ret);
uint64_t cache_limit(const struct cache *cache);
/* What it may hold at this time: metadata takes some of the limit. */
uint64_t cache_limit_now(const struct cache *cache);

#endif
