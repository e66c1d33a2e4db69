/* SPDX-License-Identifier: Apache-2.0 */
/*
 * object_list.h - what is in a directory of a store, and the last listings, which answer look-ups.
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
	struct object_list_entry *entry; /* sorted by name once it is finished */
	size_t n, cap;
	bool is_partial; /* what it does not have may exist */
	/* Of a partial one, names that were asked for: those that it does not have do not exist.
	 * NULL ends them; borrowed. */
	const char *const *asked;
	bool is_truncated; /* only the first page of it: partial, and not one to show */
	int64_t expires;
	unsigned refs; /* protected by the lock of struct object_lists, once it is there */
	struct object_list *next;
};

int object_list_new(const char *path, struct object_list **ret);
int object_list_add(struct object_list *l, struct span name, const struct io_object *o);
/* Sort it; of equal names one remains, a directory before an object. */
void object_list_finish(struct object_list *l);
bool object_list_find(const struct object_list *l, const char *name, struct io_object *ret);
/* Whether a name that it does not have does not exist. */
bool object_list_lacks(const struct object_list *l, const char *name);
/* When the last of its objects was changed: the time of the directory. */
struct timespec object_list_newest(const struct object_list *l);
void object_list_free(struct object_list *l);

struct object_lists {
	pthread_mutex_t lock;
	struct object_list *newest;
	int64_t lifetime_ns;
};

void object_lists_init(struct object_lists *c, unsigned lifetime_ms);
void object_lists_release(struct object_lists *c);
/* One that has not expired, with a reference; or NULL. */
struct object_list *object_lists_get(struct object_lists *c, const char *path);
/* Keep it, and the caller's reference. Older ones go when there are too many. */
void object_lists_put(struct object_lists *c, struct object_list *l);
/* What was written since is not in them: the next look-up asks. */
void object_lists_drop(struct object_lists *c);
/* Of a root that is deeper: those below the path remain, with paths from there on. */
void object_lists_descend(struct object_lists *c, const char *path);
void object_lists_unref(struct object_lists *c, struct object_list *l);

#endif
