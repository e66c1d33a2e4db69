/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dir_cache.h - all that is known of a store's directories: listings, objects that were looked up
 * one by one, and first bytes of objects.
 *
 * Each fact has an age, after which it is asked for again. Bytes belong to an object of a tag and
 * size, and no other object gets them. No I/O here; any thread may call these functions.
 */
#ifndef PYTREEFS_CORE_REMOTE_DIR_CACHE_H
#define PYTREEFS_CORE_REMOTE_DIR_CACHE_H

#include <pthread.h>

#include "core/remote/source/object_list.h"

#define DIR_CACHE_OBJECTS 64            /* objects that are known without a listing */
#define DIR_CACHE_BYTES (9 * (1 << 20)) /* first bytes of all objects */

/* A look-up under way. */
struct dir_lookup {
	const char *path; /* NULL: no other thread waits for it */
	struct dir_lookup *next;
	unsigned epoch;
};

/* The directory of the last look-ups of a kind, and how many of them there were. */
struct recent_dir {
	char *path;
	unsigned n;
};

struct dir_cache {
	pthread_mutex_t lock;        /* protects what follows */
	pthread_cond_t ended;        /* a look-up has ended */
	struct object_list *listing; /* the newest first */
	struct known_object *object; /* the newest first */
	struct dir_lookup *under_way;
	int64_t lifetime_ns;
	unsigned epoch;                   /* how often everything was forgotten */
	struct recent_dir ranged, listed; /* in which objects were looked up by a range, ... */
};                                        /* ... and of which directories were listed */

void dir_cache_init(struct dir_cache *c, unsigned lifetime_ms);
void dir_cache_release(struct dir_cache *c);
/*
 * Forget an object that was replaced, or everything (NULL): this process wrote to the bucket, or
 * the root has changed. In the second case a new epoch begins, and answers to what was asked for in
 * an earlier one are not remembered: they may be older than what was written.
 */
void dir_cache_forget(struct dir_cache *c, const char *path);
unsigned dir_cache_epoch(struct dir_cache *c);

/* The listing of a directory, with a reference for the caller (object_list_free()); or NULL. */
struct object_list *dir_cache_listing(struct dir_cache *c, const char *path);
bool dir_cache_has_listing(struct dir_cache *c, const char *path);
/*
 * Add a listing of this epoch, in place of an earlier one of its directory; the caller keeps his
 * reference.
 */
void dir_cache_add_listing(struct dir_cache *c, struct object_list *l);
/* Look for a path by the listings: 1 and the object, 0 if it does not exist, -1 if unknown. */
int dir_cache_find(struct dir_cache *c, const char *path, struct io_object *ret);

/*
 * Look for an object that was looked up without a listing. Returns 1 if *ret is known. 0: the
 * caller has to look it up, and then call dir_cache_lookup_end() with the same look-up. Waits, but
 * only once, for a thread that is looking up the same object.
 */
int dir_cache_lookup(struct dir_cache *c, const char *path, struct dir_lookup *lookup,
		     struct io_object *ret);
/* object is the result to remember; NULL: there is nothing to remember. */
void dir_cache_lookup_end(struct dir_cache *c, const char *path, struct dir_lookup *lookup,
			  const struct io_object *object);

/*
 * Add n bytes at off of an object, for the next read of them. Takes p, also when memory is short:
 * then the bytes are read again.
 */
void dir_cache_add_bytes(struct dir_cache *c, const char *path, const struct io_object *object,
			 uint64_t off, size_t n, uint8_t *p);
/*
 * Copy as many bytes of a range of a file as are known, from its beginning on; returns their
 * number. Many bytes, or a part of an object, are read once only, and then dropped.
 */
size_t dir_cache_read(struct dir_cache *c, const struct io_file *file, uint64_t off, size_t n,
		      void *p);
/* Whether all bytes of an object are known. */
bool dir_cache_has_bytes(struct dir_cache *c, const char *path, const struct io_object *object);
/*
 * Whether an object is to be looked up by a range of it. Each such look-up takes a round trip,
 * while one listing answers for a whole directory: if that can be listed, only the first few
 * objects are looked up by a range.
 */
bool dir_cache_by_range(struct dir_cache *c, const char *path, bool can_list);
/* Note that a directory is listed; whether the one listed before is in the same directory. */
bool dir_cache_is_next(struct dir_cache *c, const char *path);

#endif
