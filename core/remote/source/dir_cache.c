/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dir_cache.c - the known state of a store's directories, in two lists, the newest first.
 */
#include "core/remote/source/dir_cache.h"

#include "core/base/clock.h"
#include "core/base/limits.h"
#include "core/base/lock.h"
#include "core/base/path.h"

#define LISTINGS_MAX 512
#define ENTRIES_MAX 100000 /* of all listings */
#define READ_ONCE (64 * KiB)
#define RANGED_MAX 3 /* objects of a directory that are looked up by a range */

/* An object, or a range of its bytes. */
struct known_object {
	char *path;
	struct io_object object;
	bool is_looked_up; /* it answers look-ups */
	uint64_t off;      /* of the bytes */
	size_t n;
	uint8_t *p;
	int64_t expires;
	struct known_object *next;
};

/* Takes p. NULL: there is no memory. */
static struct known_object *known_object_new(const char *path, const struct io_object *o,
					     uint64_t off, size_t n, uint8_t *p)
{
	struct known_object *k = calloc(1, sizeof(*k));
	char *copy = strdup(path);

	if (!k || !copy || (n && !p)) {
		free(k);
		free(copy);
		free(p);
		return NULL;
	}
	*k = (struct known_object){ .path = copy, .object = *o, .off = off, .n = n, .p = p };
	return k;
}

/* ---- the lists; all called with the lock held ---- */

static void unlink_object(struct known_object **at)
{
	struct known_object *k = *at;

	*at = k->next;
	free(k->path);
	free(k->p);
	free(k);
}

static void unlink_listing(struct object_list **at)
{
	struct object_list *l = *at;

	*at = l->next;
	object_list_free(l);
}

/*
 * Add k, and drop objects that are too old, or too many, and what k replaces. Of objects that were
 * looked up the last DIR_CACHE_OBJECTS remain, of bytes the last DIR_CACHE_BYTES.
 */
static void dir_cache_add_object(struct dir_cache *c, struct known_object *k)
{
	int64_t now = clock_ns();
	size_t n, bytes;

	if (!k)
		return;
	n = k->is_looked_up;
	bytes = k->n;
	for (struct known_object **at = &c->object; *at;) {
		const struct known_object *o = *at;
		bool is_same = o->is_looked_up == k->is_looked_up && o->off == k->off &&
			       !strcmp(o->path, k->path);

		if (o->expires <= now || is_same || n + o->is_looked_up > DIR_CACHE_OBJECTS ||
		    bytes + o->n > DIR_CACHE_BYTES) {
			unlink_object(at);
			continue;
		}
		n += o->is_looked_up;
		bytes += o->n;
		at = &(*at)->next;
	}
	k->expires = now + c->lifetime_ns;
	k->next = c->object;
	c->object = k;
}

/* ---- the cache ---- */

void dir_cache_init(struct dir_cache *c, unsigned lifetime_ms)
{
	*c = (struct dir_cache){ .lifetime_ns = (int64_t)lifetime_ms * 1000000 };
	pthread_mutex_init(&c->lock, NULL);
	pthread_cond_init(&c->ended, NULL);
}

void dir_cache_release(struct dir_cache *c)
{
	dir_cache_forget(c, NULL);
	free(c->ranged.path);
	free(c->listed.path);
	pthread_cond_destroy(&c->ended);
	pthread_mutex_destroy(&c->lock);
}

void dir_cache_forget(struct dir_cache *c, const char *path)
{
	pthread_mutex_lock(&c->lock);
	c->epoch += !path;
	while (!path && c->listing)
		unlink_listing(&c->listing);
	for (struct known_object **at = &c->object; *at;) {
		if (!path || !strcmp((*at)->path, path))
			unlink_object(at);
		else
			at = &(*at)->next;
	}
	pthread_mutex_unlock(&c->lock);
}

unsigned dir_cache_epoch(struct dir_cache *c)
{
	auto_unlock pthread_mutex_t *held = lock_hold(&c->lock);

	return c->epoch;
}

struct object_list *dir_cache_listing(struct dir_cache *c, const char *path)
{
	auto_unlock pthread_mutex_t *held = lock_hold(&c->lock);
	int64_t now = clock_ns();

	for (struct object_list *l = c->listing; l; l = l->next)
		if (l->expires > now && !strcmp(l->path, path)) {
			atomic_fetch_add(&l->refs, 1);
			return l;
		}
	return NULL;
}

bool dir_cache_has_listing(struct dir_cache *c, const char *path)
{
	auto_of(object_list) struct object_list *l = dir_cache_listing(c, path);

	return l;
}

void dir_cache_add_listing(struct dir_cache *c, struct object_list *l)
{
	auto_unlock pthread_mutex_t *held = lock_hold(&c->lock);
	int64_t now = clock_ns();
	size_t n = 1, entries = 0;

	if (l->epoch != c->epoch)
		return;
	/* Drop listings that are too old or too many, and those of this directory. */
	for (struct object_list **at = &c->listing; *at;) {
		struct object_list *old = *at;

		if (n == LISTINGS_MAX || entries + old->n >= ENTRIES_MAX || old->expires <= now ||
		    !strcmp(old->path, l->path)) {
			unlink_listing(at);
			continue;
		}
		n++;
		entries += old->n;
		at = &old->next;
	}
	atomic_fetch_add(&l->refs, 1);
	l->expires = now + c->lifetime_ns;
	l->next = c->listing;
	c->listing = l;
}

int dir_cache_find(struct dir_cache *c, const char *path, struct io_object *ret)
{
	auto_free char *parent = span_dup_str(path_above(path));
	auto_of(object_list) struct object_list *l = parent ? dir_cache_listing(c, parent) : NULL;

	if (!l)
		return -1;
	if (object_list_find(l, path_last(path), ret))
		return 1;
	return object_list_lacks(l, path_last(path)) ? 0 : -1;
}

/* ---- look-ups of objects ---- */

/* Called with the lock held. */
static bool is_under_way(const struct dir_cache *c, const char *path)
{
	const struct dir_lookup *l = c->under_way;

	while (l && strcmp(l->path, path))
		l = l->next;
	return l;
}

int dir_cache_lookup(struct dir_cache *c, const char *path, struct dir_lookup *lookup,
		     struct io_object *ret)
{
	auto_unlock pthread_mutex_t *held = lock_hold(&c->lock);
	const struct known_object *k;
	bool has_waited = is_under_way(c, path);

	while (is_under_way(c, path))
		pthread_cond_wait(&c->ended, &c->lock);
	k = c->object;
	while (k && !(k->is_looked_up && k->expires > clock_ns() && !strcmp(k->path, path)))
		k = k->next;
	if (k)
		*ret = k->object;
	/* If the other thread's look-up failed, all that waited for it ask at the same time. */
	*lookup = (struct dir_lookup){ k || has_waited ? NULL : path, c->under_way, c->epoch };
	if (lookup->path)
		c->under_way = lookup;
	return k != NULL;
}

void dir_cache_lookup_end(struct dir_cache *c, const char *path, struct dir_lookup *lookup,
			  const struct io_object *object)
{
	struct known_object *k = object ? known_object_new(path, object, 0, 0, NULL) : NULL;
	struct dir_lookup **at = &c->under_way;

	pthread_mutex_lock(&c->lock);
	if (k)
		k->is_looked_up = lookup->epoch == c->epoch;
	dir_cache_add_object(c, k);
	while (lookup->path && *at != lookup)
		at = &(*at)->next;
	if (lookup->path)
		*at = lookup->next;
	pthread_cond_broadcast(&c->ended);
	pthread_mutex_unlock(&c->lock);
}

/* Note a look-up; returns how many there were in the same directory since one in another. */
static unsigned looks_before(struct dir_cache *c, struct recent_dir *recent, const char *path)
{
	auto_unlock pthread_mutex_t *held = lock_hold(&c->lock);
	struct span dir = path_above(path);

	if (!recent->path || !span_eq(dir, span_str(recent->path))) {
		free(recent->path);
		*recent = (struct recent_dir){ .path = span_dup_str(dir) };
	}
	return recent->n++;
}

bool dir_cache_by_range(struct dir_cache *c, const char *path, bool can_list)
{
	return looks_before(c, &c->ranged, path) < RANGED_MAX || !can_list;
}

bool dir_cache_is_next(struct dir_cache *c, const char *path)
{
	return looks_before(c, &c->listed, path) > 0;
}

/* ---- bytes ---- */

void dir_cache_add_bytes(struct dir_cache *c, const char *path, const struct io_object *object,
			 uint64_t off, size_t n, uint8_t *p)
{
	struct known_object *k = known_object_new(path, object, off, n, p);
	auto_unlock pthread_mutex_t *held = lock_hold(&c->lock);

	dir_cache_add_object(c, k);
}

/* The number of bytes that k has of a range of an object, from the range's start on. */
static size_t dir_cache_bytes_of(const struct known_object *k, const char *path, const char *tag,
				 uint64_t size, uint64_t off, size_t n)
{
	if (k->object.size != size || off < k->off || off - k->off >= k->n ||
	    k->expires <= clock_ns() || strcmp(k->path, path) || strcmp(k->object.tag, tag))
		return 0;
	return MIN(n, k->n - (size_t)(off - k->off));
}

size_t dir_cache_read(struct dir_cache *c, const struct io_file *file, uint64_t off, size_t n,
		      void *p)
{
	auto_unlock pthread_mutex_t *held = lock_hold(&c->lock);

	for (struct known_object **at = &c->object; *at; at = &(*at)->next) {
		const struct known_object *k = *at;
		size_t found = dir_cache_bytes_of(k, file->key, file->tag, file->size, off, n);

		if (!found)
			continue;
		memcpy(p, k->p + (off - k->off), found);
		if ((k->n > READ_ONCE || k->n < k->object.size) && off + found == k->off + k->n)
			unlink_object(at);
		return found;
	}
	return 0;
}

bool dir_cache_has_bytes(struct dir_cache *c, const char *path, const struct io_object *o)
{
	auto_unlock pthread_mutex_t *held = lock_hold(&c->lock);

	for (const struct known_object *k = c->object; k; k = k->next)
		if (dir_cache_bytes_of(k, path, o->tag, o->size, 0, (size_t)o->size) == o->size)
			return true;
	return false;
}
