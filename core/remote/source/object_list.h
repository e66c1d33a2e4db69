/* SPDX-License-Identifier: Apache-2.0 */
/*
 * object_list.h - one listing of a directory of a store: names, sizes and tags.
 *
 * A listing is built by one thread, and does not change after object_list_finish(). Its owners
 * share it by references.
 */
#ifndef PYTREEFS_CORE_REMOTE_OBJECT_LIST_H
#define PYTREEFS_CORE_REMOTE_OBJECT_LIST_H

#include <stdatomic.h>

#include "core/io/io_store.h"

struct object_list_entry {
	char *name, *tag;
	bool is_dir;
	uint64_t size;
	struct timespec mtime;
};

struct object_list {
	char *path;
	unsigned epoch;                  /* of the cache of directories when it was asked for */
	struct object_list_entry *entry; /* sorted by name after object_list_finish() */
	size_t n, cap;
	/* NULL, or the listing is partial, names that are not in it may exist, and these were
	 * looked up: if they are not in it, they do not exist. Ends with NULL; borrowed. */
	const char *const *asked;
	bool is_truncated; /* it has only the first page: partial as well, not shown to users */
	atomic_uint refs;
	/* In the cache (dir_cache.h). */
	int64_t expires;
	struct object_list *next;
};

/* epoch: dir_cache_epoch(), before any of its requests. */
int object_list_new(const char *path, unsigned epoch, struct object_list **ret);
int object_list_add(struct object_list *l, struct span name, const struct io_object *o);
/* Sort the entries. Of equal names one remains, a directory rather than an object. */
void object_list_finish(struct object_list *l);
/* The object or directory of an entry. */
struct io_object object_list_get(const struct object_list_entry *e);
/* ret may be NULL. */
bool object_list_find(const struct object_list *l, const char *name, struct io_object *ret);
/* Whether a name that is not in the listing is known not to exist. */
bool object_list_lacks(const struct object_list *l, const char *name);
/* The directory itself: its time is the latest one of an object in it. */
struct io_object object_list_dir(const struct object_list *l);
/* Give back a reference. Accepts NULL. */
void object_list_free(struct object_list *l);
DEFINE_AUTO(object_list, struct object_list, object_list_free);

#endif
