/* SPDX-License-Identifier: Apache-2.0 */
/*
 * object_list.h - listings of a store's directories; the last ones are kept and answer look-ups.
 */
#ifndef PYTREEFS_CORE_STORE_OBJECT_LIST_H
#define PYTREEFS_CORE_STORE_OBJECT_LIST_H

#include <pthread.h>

#include "core/io/io_store.h"

struct object_list_entry {
	char *name, *tag;
	bool is_dir;
	uint64_t size;
	struct timespec mtime;
};

struct object_list {
	char *path;
	struct object_list_entry *entry; /* sorted by name after object_list_finish() */
	size_t n, cap;
	bool is_partial; /* names that are not in it may exist */
	/* For a partial listing, the names that were looked up: if they are not in it, they do not
	 * exist. Ends with NULL; borrowed. */
	const char *const *asked;
	bool is_truncated; /* it has only the first page: is_partial, and not to be shown to users */
	int64_t expires;
	unsigned refs; /* protected by the lock of struct object_lists after object_lists_put() */
	struct object_list *next;
};

int object_list_new(const char *path, struct object_list **ret);
int object_list_add(struct object_list *l, struct span name, const struct io_object *o);
/* Sort the entries. Of equal names one remains, a directory rather than an object. */
void object_list_finish(struct object_list *l);
bool object_list_find(const struct object_list *l, const char *name, struct io_object *ret);
/* Whether a name that is not in the listing is known not to exist. */
bool object_list_lacks(const struct object_list *l, const char *name);
/* The latest time of an object, which is the directory's time. */
struct timespec object_list_newest(const struct object_list *l);
void object_list_free(struct object_list *l);

struct object_lists {
	pthread_mutex_t lock;
	struct object_list *newest;
	int64_t lifetime_ns;
};

void object_lists_init(struct object_lists *c, unsigned lifetime_ms);
void object_lists_release(struct object_lists *c);
/* A listing that has not expired, with a reference; or NULL. */
struct object_list *object_lists_get(struct object_lists *c, const char *path);
/* Keep a listing; the caller keeps a reference, too. The oldest are dropped when there are too
 * many. */
void object_lists_put(struct object_lists *c, struct object_list *l);
/* Drop all listings, which are out of date after a write. */
void object_lists_drop(struct object_lists *c);
/* Make `path` the root: listings below it remain, with paths relative to it. */
void object_lists_descend(struct object_lists *c, const char *path);
void object_lists_unref(struct object_lists *c, struct object_list *l);

#endif
