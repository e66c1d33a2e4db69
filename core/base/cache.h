/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cache.h - byte-bounded, pinned, single-flight cache of immutable values.
 *
 * One cache holds everything that a mount keeps decoded: chunks, pieces of large chunks, shard
 * indices and B+tree nodes. A value is filled once, by the first thread that asks for it, while
 * others wait. It is freed when it is not pinned and the bytes are needed, in the order of least
 * recent use. Entries named by cache_drop_behind() are freed first. Entries that were filled ahead
 * of any request (cache_put_ahead()) may use only a part of the limit, and the statistics count how
 * many of them were used.
 *
 * Any thread may call any of these functions. Values are immutable once filled.
 */
#ifndef PYTREEFS_CACHE_H
#define PYTREEFS_CACHE_H

#include "core/base/mem.h"

struct cache;

struct cache_key {
	uint64_t owner; /* from cache_owner(): one array, one database */
	uint64_t id;    /* which value of the owner: chunk number, offset in a file */
	uint64_t part;  /* which part of it: piece number, kind of value */
};

/* A pinned entry. value may be read while the entry is ready and pinned. */
struct cache_entry {
	struct cache_key key;
	const void *value;
};

enum cache_state {
	CACHE_HIT,  /* the value is ready */
	CACHE_MINE, /* the caller must call cache_fill() or cache_fail() */
	CACHE_BUSY, /* another thread is filling it; call cache_wait() */
};

/* Metadata may use memory of the cache (meter.h). */
int cache_new(uint64_t bytes, struct cache **ret);
/* No entry may be pinned or held. Accepts NULL. */
void cache_free(struct cache *cache);
DEFINE_AUTO(cache, struct cache, cache_free);
/* Returns a number that was never returned before, for cache_key.owner. */
uint64_t cache_owner(void);

/*
 * Find or begin an entry and pin it; cache_put() must give the pin back in every case. To avoid
 * deadlock, a thread fills all of its CACHE_MINE entries before it waits for a CACHE_BUSY entry of
 * the same kind. Kinds have an order: a thread that fills a slab may wait for a chunk, one that
 * fills a chunk for a shard index, and one that fills any of these for a node of the database,
 * never the other way round. Returns an enum cache_state, or -ENOMEM.
 */
int cache_begin(struct cache *cache, const struct cache_key *key, struct cache_entry **ret);
enum cache_ask { CACHE_READY, CACHE_READY_OR_BUSY };
/*
 * Pin the entry and return true if it is ready, or with CACHE_READY_OR_BUSY is still being filled:
 * then the caller calls cache_wait(). Never begins an entry.
 */
bool cache_peek(struct cache *cache, const struct cache_key *key, enum cache_ask ask,
		struct cache_entry **ret);
/* Like cache_peek(), but neither pins the entry nor counts as a use. */
bool cache_has(struct cache *cache, const struct cache_key *key, enum cache_ask ask);
/*
 * Count `charge` bytes for a CACHE_MINE entry from now on, before it is filled, and evict others
 * for them. Never waits. cache_fill() replaces the charge, and cache_fail() gives it back.
 */
void cache_reserve(struct cache *cache, struct cache_entry *e, uint64_t charge);
/*
 * Set the value of a CACHE_MINE entry. charge is its size in bytes; free_value() is called when the
 * entry is freed.
 */
void cache_fill(struct cache *cache, struct cache_entry *e, void *value, uint64_t charge,
		void (*free_value)(void *value));
/*
 * Report that filling failed: waiters get the code and this thread's note, and the next
 * cache_begin() starts anew.
 */
void cache_fail(struct cache *cache, struct cache_entry *e, int code);
/*
 * Wait until another thread has filled the entry. Returns 0, or that thread's error with its note.
 */
int cache_wait(struct cache *cache, struct cache_entry *e);
/* Give the pin back. Accepts NULL. */
void cache_put(struct cache *cache, struct cache_entry *e);
/*
 * The same for an entry that was filled ahead of requests: it counts as `ahead` until the first
 * request for it.
 */
void cache_put_ahead(struct cache *cache, struct cache_entry *e);
/*
 * Keep the value of a ready, pinned entry beyond the pin, without effect on when the entry is
 * evicted or on the bytes that the cache counts: the caller accounts for them. cache_unhold() ends
 * that, and accepts NULL.
 */
void cache_hold(struct cache *cache, struct cache_entry *e);
void cache_unhold(struct cache *cache, struct cache_entry *e);
/*
 * No request is expected any more for entries of this owner that are still ahead: they are the
 * least recently used ones from now on.
 */
void cache_end_ahead(struct cache *cache, uint64_t owner);
/*
 * A sequential reader has read n entries with consecutive ids. They are freed before all others,
 * and together take only a small part of the limit. Another request for such an entry makes it an
 * ordinary one again.
 */
void cache_drop_behind(struct cache *cache, const struct cache_key *first, uint64_t n);
/* Remove all entries of one owner; pinned ones are freed when they are put. */
void cache_drop(struct cache *cache, uint64_t owner);

struct cache_stats {
	uint64_t bytes, peak_bytes, limit, entries, pinned_bytes, drop_behind_bytes;
	uint64_t hits, misses, waits, evictions;
	uint64_t ahead_bytes; /* of entries that nobody has requested yet */
	/* bytes: filled ahead, later used, freed unused */
	uint64_t ahead_started, ahead_used, ahead_wasted;
};
void cache_stats(struct cache *cache, struct cache_stats *ret);
uint64_t cache_limit(const struct cache *cache);
/* The number of bytes that the cache may hold now: its limit less what metadata has taken. */
uint64_t cache_limit_now(const struct cache *cache);

#endif
