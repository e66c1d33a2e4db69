/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cache.c - one hash table, three lists in order of use, one lock.
 *
 * The lock is held for look-ups and list operations only, never while a value is filled or freed.
 * One lock is enough: values are nodes and megabytes, so look-ups are rare compared with the work
 * that they save.
 *
 * Entries that a sequential reader has read (drop-behind) are on a short list of their own: a scan
 * of a large leaf reuses memory that is still in the processor's cache, and does not evict what
 * others read. Entries that were filled ahead of requests are on a list of their own, too, which
 * counts their bytes.
 *
 * Invariants: an entry that is being filled or is pinned is on no list; the bytes of the table
 * exceed the limit only by entries that are pinned or reserved.
 */
#include "core/base/cache.h"

#include <pthread.h>
#include <stdatomic.h>

#include "core/base/digest.h"
#include "core/base/err.h"
#include "core/base/lock.h"
#include "core/base/meter.h"

#define DROP_BEHIND_SHARE 8 /* share of the limit for drop-behind entries */
#define AHEAD_SHARE 3 /* if entries ahead of requests take a larger share, they are evicted first */

enum entry_state { ENTRY_FILLING, ENTRY_READY, ENTRY_FAILED };

struct entry {
	struct cache_entry e; /* the public part; first */
	struct entry *hash_next;
	struct entry *newer, *older; /* list of unpinned entries */
	bool drop_behind;            /* it is, or will be, on the drop-behind list */
	bool ahead;                  /* not requested yet; implies that it is not pinned */
	bool given_up;               /* ahead, and no request is expected */
	bool asked;                  /* requested by another thread than the one that fills it */
	enum entry_state state;
	unsigned pins;
	unsigned holds;  /* see cache_hold() */
	bool in_table;   /* false once dropped; the last put or unhold then frees it */
	uint64_t charge; /* while it is being filled: what is reserved */
	void (*free_value)(void *value);
	struct err_note *note; /* ENTRY_FAILED; NULL when memory was short */
	int code;
};

struct cache {
	pthread_mutex_t lock; /* protects everything below and all entries */
	pthread_cond_t filled;
	struct entry **table;
	size_t n_table, n_entries;
	struct list {
		struct entry *newest, *oldest;
		uint64_t bytes;
	} used, drop_behind, ahead;
	struct cache_stats stats;
	struct meter_user meter;
};

static atomic_ullong next_owner = 1;

uint64_t cache_owner(void)
{
	return atomic_fetch_add(&next_owner, 1);
}

static void entry_free(struct entry *e)
{
	if (e->state == ENTRY_READY && e->free_value)
		e->free_value((void *)(uintptr_t)e->e.value);
	free(e->note);
	free(e);
}

void cache_free(struct cache *c)
{
	if (!c)
		return;
	meter_leave(&c->meter);
	for (size_t i = 0; i < c->n_table; i++)
		while (c->table[i]) {
			struct entry *e = c->table[i];

			c->table[i] = e->hash_next;
			entry_free(e);
		}
	pthread_cond_destroy(&c->filled);
	pthread_mutex_destroy(&c->lock);
	free(c->table);
	free(c);
}

static struct entry **slot_of(const struct cache *c, const struct cache_key *k)
{
	return &c->table[mix64(k->owner + mix64(k->id + mix64(k->part))) & (c->n_table - 1)];
}

static struct entry *find(const struct cache *c, const struct cache_key *key)
{
	struct entry *e = *slot_of(c, key);

	while (e && !(e->e.key.owner == key->owner && e->e.key.id == key->id &&
		      e->e.key.part == key->part))
		e = e->hash_next;
	return e;
}

/* Double the table when chains grow. When memory is short, long chains still work. */
static void grow(struct cache *c)
{
	size_t old_n = c->n_table;
	struct entry **old = c->table, **fresh = calloc(2 * old_n, sizeof(*fresh));

	if (!fresh)
		return;
	c->table = fresh;
	c->n_table = 2 * old_n;
	for (size_t i = 0; i < old_n; i++)
		while (old[i]) {
			struct entry *e = old[i], **slot = slot_of(c, &e->e.key);

			old[i] = e->hash_next;
			e->hash_next = *slot;
			*slot = e;
		}
	free(old);
}

static struct list *list_of(struct cache *c, const struct entry *e)
{
	if (e->drop_behind)
		return &c->drop_behind;
	return e->ahead && !e->given_up ? &c->ahead : &c->used;
}

static void list_remove(struct cache *c, struct entry *e)
{
	struct list *l = list_of(c, e);

	*(e->newer ? &e->newer->older : &l->newest) = e->older;
	*(e->older ? &e->older->newer : &l->oldest) = e->newer;
	e->newer = e->older = NULL;
	l->bytes -= e->charge;
}

static void list_add(struct cache *c, struct entry *e, bool as_oldest)
{
	struct list *l = list_of(c, e);

	e->older = as_oldest ? NULL : l->newest;
	e->newer = as_oldest ? l->oldest : NULL;
	*(e->newer ? &e->newer->older : &l->newest) = e;
	*(e->older ? &e->older->newer : &l->oldest) = e;
	l->bytes += e->charge;
}

static void table_remove(struct cache *c, struct entry *e)
{
	struct entry **at = slot_of(c, &e->e.key);

	while (*at != e)
		at = &(*at)->hash_next;
	*at = e->hash_next;
	e->in_table = false;
	c->n_entries--;
	c->stats.bytes -= e->charge;
	if (e->ahead)
		c->stats.ahead_wasted += e->charge;
}

/* Put an entry that is neither pinned nor in the table before the list out, unless it is held. */
static struct entry *leave(struct entry *e, struct entry *out)
{
	if (e->holds)
		return out;
	e->hash_next = out;
	return e;
}

static struct entry *take_out(struct cache *c, struct entry *e, struct entry *out)
{
	list_remove(c, e);
	table_remove(c, e);
	c->stats.evictions++;
	return leave(e, out);
}

uint64_t cache_limit_now(const struct cache *c)
{
	return c->stats.limit - MIN(c->stats.limit, meter_taken());
}

/* The entry to evict next; NULL when all are pinned. */
static struct entry *first_to_go(const struct cache *c)
{
	if (c->drop_behind.oldest)
		return c->drop_behind.oldest;
	if (c->ahead.oldest &&
	    (!c->used.oldest || c->ahead.bytes > cache_limit_now(c) / AHEAD_SHARE))
		return c->ahead.oldest;
	return c->used.oldest;
}

/*
 * Remove entries until the rest fits. Returns them as a list, which the caller frees without the
 * lock.
 */
static struct entry *evict(struct cache *c)
{
	struct entry *out = NULL, *e;

	while (c->stats.bytes > cache_limit_now(c) && (e = first_to_go(c)))
		out = take_out(c, e, out);
	return out;
}

static void free_all(struct entry *e)
{
	while (e) {
		struct entry *next = e->hash_next;

		entry_free(e);
		e = next;
	}
}

static void cache_reclaim(void *cache)
{
	struct cache *c = cache;
	struct entry *out;

	pthread_mutex_lock(&c->lock);
	out = evict(c);
	pthread_mutex_unlock(&c->lock);
	free_all(out);
}

int cache_new(uint64_t bytes, struct cache **ret)
{
	struct cache *c = calloc(1, sizeof(*c));

	if (c) {
		c->n_table = 1024;
		c->table = calloc(c->n_table, sizeof(*c->table));
	}
	if (!c || !c->table) {
		free(c);
		return fail(-ENOMEM, "cannot allocate the cache");
	}
	c->stats.limit = bytes;
	pthread_mutex_init(&c->lock, NULL);
	pthread_cond_init(&c->filled, NULL);
	c->meter = (struct meter_user){ bytes, cache_reclaim, c, NULL };
	meter_join(&c->meter);
	*ret = c;
	return 0;
}

static bool is_there(const struct entry *e, enum cache_ask ask)
{
	return e && (e->state == ENTRY_READY || ask == CACHE_READY_OR_BUSY);
}

/* Pin an entry of the table for a request, and count it. Returns its enum cache_state. */
static int use(struct cache *c, struct entry *e)
{
	bool is_ready = e->state == ENTRY_READY;

	if (e->pins++ == 0 && e->state == ENTRY_READY) {
		list_remove(c, e);
		c->stats.pinned_bytes += e->charge;
	}
	if (e->ahead)
		c->stats.ahead_used += e->charge;
	e->asked = true;
	/* A request makes it an ordinary entry. */
	e->ahead = e->drop_behind = e->given_up = false;
	*(is_ready ? &c->stats.hits : &c->stats.waits) += 1;
	return is_ready ? CACHE_HIT : CACHE_BUSY;
}

int cache_begin(struct cache *c, const struct cache_key *key, struct cache_entry **ret)
{
	auto_unlock pthread_mutex_t *held = lock_hold(&c->lock);
	struct entry *e = find(c, key), **slot;

	if (e) {
		*ret = &e->e;
		return use(c, e);
	}
	e = calloc(1, sizeof(*e));
	if (!e)
		return fail(-ENOMEM, "cannot allocate a cache entry");
	if (c->n_entries >= 2 * c->n_table)
		grow(c);
	e->e.key = *key;
	e->state = ENTRY_FILLING;
	e->pins = 1;
	e->in_table = true;
	slot = slot_of(c, key);
	e->hash_next = *slot;
	*slot = e;
	c->n_entries++;
	c->stats.misses++;
	*ret = &e->e;
	return CACHE_MINE;
}

bool cache_peek(struct cache *c, const struct cache_key *key, enum cache_ask ask,
		struct cache_entry **ret)
{
	auto_unlock pthread_mutex_t *held = lock_hold(&c->lock);
	struct entry *e = find(c, key);

	if (!is_there(e, ask))
		return false;
	use(c, e);
	*ret = &e->e;
	return true;
}

bool cache_has(struct cache *c, const struct cache_key *key, enum cache_ask ask)
{
	auto_unlock pthread_mutex_t *held = lock_hold(&c->lock);

	return is_there(find(c, key), ask);
}

/* Change the bytes that the entry counts for. Called with the lock held. */
static void set_charge(struct cache *c, struct entry *e, uint64_t charge)
{
	/* Those of an entry that was dropped while it was being filled are not counted. */
	if (e->in_table)
		c->stats.bytes += charge - e->charge;
	e->charge = charge;
}

void cache_reserve(struct cache *c, struct cache_entry *ce, uint64_t charge)
{
	struct entry *e = container_of(ce, struct entry, e), *out;

	pthread_mutex_lock(&c->lock);
	set_charge(c, e, charge + sizeof(*e));
	out = evict(c);
	c->stats.peak_bytes = MAX(c->stats.peak_bytes, c->stats.bytes);
	pthread_mutex_unlock(&c->lock);
	free_all(out);
}

void cache_fill(struct cache *c, struct cache_entry *ce, void *value, uint64_t charge,
		void (*free_value)(void *value))
{
	struct entry *e = container_of(ce, struct entry, e), *out;
	uint64_t freed = 0;

	pthread_mutex_lock(&c->lock);
	ce->value = value;
	set_charge(c, e, charge + sizeof(*e));
	e->free_value = free_value;
	e->state = ENTRY_READY;
	c->stats.pinned_bytes += e->charge;
	out = evict(c);
	/*
	 * Surplus drop-behind entries are freed one by one as others are added, not all at once, so
	 * that the next block is one that was just freed.
	 */
	while (c->drop_behind.oldest && c->drop_behind.bytes > c->stats.limit / DROP_BEHIND_SHARE &&
	       freed < 2 * e->charge) {
		freed += c->drop_behind.oldest->charge;
		out = take_out(c, c->drop_behind.oldest, out);
	}
	c->stats.peak_bytes = MAX(c->stats.peak_bytes, c->stats.bytes);
	pthread_cond_broadcast(&c->filled);
	pthread_mutex_unlock(&c->lock);
	free_all(out);
}

void cache_fail(struct cache *c, struct cache_entry *ce, int code)
{
	struct entry *e = container_of(ce, struct entry, e);
	struct err_note *note = malloc(sizeof(*note));

	if (note)
		err_save(code, note);
	pthread_mutex_lock(&c->lock);
	e->state = ENTRY_FAILED;
	e->note = note;
	e->code = code;
	/* It leaves the table, so that the next request tries again. */
	if (e->in_table)
		table_remove(c, e);
	pthread_cond_broadcast(&c->filled);
	pthread_mutex_unlock(&c->lock);
}

int cache_wait(struct cache *c, struct cache_entry *ce)
{
	auto_unlock pthread_mutex_t *held = lock_hold(&c->lock);
	const struct entry *e = container_of(ce, struct entry, e);

	while (e->state == ENTRY_FILLING)
		pthread_cond_wait(&c->filled, &c->lock);
	if (e->state == ENTRY_READY)
		return 0;
	return e->note ? err_restore(e->note) : e->code;
}

static void put_entry_back(struct cache *c, struct cache_entry *ce, bool ahead)
{
	struct entry *e, *out = NULL;

	if (!ce)
		return;
	e = container_of(ce, struct entry, e);
	pthread_mutex_lock(&c->lock);
	if (ahead && e->state == ENTRY_READY) {
		c->stats.ahead_started += e->charge;
		/* Not ahead if it was requested or dropped while it was being filled. */
		e->ahead = e->pins == 1 && e->in_table && !e->asked;
		if (!e->ahead)
			c->stats.ahead_used += e->charge;
	}
	if (--e->pins == 0) {
		if (e->state == ENTRY_READY)
			c->stats.pinned_bytes -= e->charge;
		if (e->in_table) {
			list_add(c, e, false);
			out = evict(c);
		} else {
			out = leave(e, NULL);
		}
	}
	pthread_mutex_unlock(&c->lock);
	free_all(out);
}

void cache_put(struct cache *c, struct cache_entry *e)
{
	put_entry_back(c, e, false);
}

void cache_put_ahead(struct cache *c, struct cache_entry *e)
{
	put_entry_back(c, e, true);
}

void cache_hold(struct cache *c, struct cache_entry *ce)
{
	struct entry *e = container_of(ce, struct entry, e);

	pthread_mutex_lock(&c->lock);
	e->holds++;
	pthread_mutex_unlock(&c->lock);
}

void cache_unhold(struct cache *c, struct cache_entry *ce)
{
	struct entry *e, *out = NULL;

	if (!ce)
		return;
	e = container_of(ce, struct entry, e);
	pthread_mutex_lock(&c->lock);
	if (--e->holds == 0 && !e->pins && !e->in_table)
		out = leave(e, NULL);
	pthread_mutex_unlock(&c->lock);
	free_all(out);
}

void cache_end_ahead(struct cache *c, uint64_t owner)
{
	pthread_mutex_lock(&c->lock);
	for (struct entry *e = c->ahead.newest, *older; e; e = older) {
		older = e->older;
		if (e->e.key.owner != owner)
			continue;
		list_remove(c, e);
		e->given_up = true;
		list_add(c, e, true);
	}
	pthread_mutex_unlock(&c->lock);
}

void cache_drop_behind(struct cache *c, const struct cache_key *first, uint64_t n)
{
	struct cache_key key = *first;

	pthread_mutex_lock(&c->lock);
	for (; n > 0; n--, key.id++) {
		struct entry *e = find(c, &key);

		if (!e || e->drop_behind)
			continue;
		if (e->pins) {
			e->drop_behind = true;
			continue;
		}
		list_remove(c, e);
		e->drop_behind = true;
		list_add(c, e, false);
	}
	pthread_mutex_unlock(&c->lock);
}

void cache_drop(struct cache *c, uint64_t owner)
{
	struct entry *out = NULL;

	pthread_mutex_lock(&c->lock);
	for (size_t i = 0; i < c->n_table; i++)
		for (struct entry **at = &c->table[i]; *at;) {
			struct entry *e = *at;

			if (e->e.key.owner != owner) {
				at = &e->hash_next;
				continue;
			}
			table_remove(c, e);
			if (e->pins)
				continue;
			list_remove(c, e);
			out = leave(e, out);
		}
	pthread_mutex_unlock(&c->lock);
	free_all(out);
}

void cache_stats(struct cache *c, struct cache_stats *ret)
{
	pthread_mutex_lock(&c->lock);
	*ret = c->stats;
	ret->entries = c->n_entries;
	ret->drop_behind_bytes = c->drop_behind.bytes;
	ret->ahead_bytes = c->ahead.bytes;
	pthread_mutex_unlock(&c->lock);
}

uint64_t cache_limit(const struct cache *c)
{
	return c->stats.limit;
}
