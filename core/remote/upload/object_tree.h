/* SPDX-License-Identifier: Apache-2.0 */
/*
 * object_tree.h - finds, counts or removes all objects below a directory of a bucket.
 */
#ifndef PYTREEFS_CORE_STORE_OBJECT_TREE_H
#define PYTREEFS_CORE_STORE_OBJECT_TREE_H

#include "core/remote/source/url_store_impl.h"

struct objects {
	char **path;
	size_t n, cap;
	uint64_t bytes;
	int64_t newest_ns; /* the last modification of any */
};

/* Add all objects; none if there is no such directory. The caller releases ret, also on failure. */
int objects_collect(struct store *s, const char *path, struct objects *ret);
void objects_release(struct objects *o);
#define auto_objects __attribute__((cleanup(objects_release))) struct objects

/* Whether a listing of dir, made now, has the name: 1 or 0. */
int object_is_listed(struct store *s, const char *dir, const char *name);
/* The sum of the sizes of all objects. */
int object_tree_size(struct store *s, const char *path, uint64_t *ret);
/* Remove the objects that keeps() does not want. */
int object_tree_remove_others(struct store *s, bool (*keeps)(void *arg, const char *path),
			      void *arg);
/*
 * Remove unfinished uploads, then all objects, a claim last. ret: the sum of sizes; may be NULL.
 * renew() is called before each removal of some objects, and stops it by an error when the claim is
 * not the caller's any more; NULL: the caller has asked, and path has few objects.
 */
int object_tree_remove(struct store *s, const char *path, int (*renew)(void *arg), void *arg,
		       uint64_t *ret);

#endif
