/* SPDX-License-Identifier: Apache-2.0 */
/*
 * object_tree.h - all objects below a directory of a bucket, as a writer left them.
 */
#ifndef PYTREEFS_CORE_STORE_OBJECT_TREE_H
#define PYTREEFS_CORE_STORE_OBJECT_TREE_H

#include "core/store/url_store_impl.h"

/* The bytes of all of them. */
int object_tree_size(struct store *s, const char *path, uint64_t *ret);
/* Remove uploads that were not ended, then all objects, a claim last. ret: as above; or NULL. */
int object_tree_remove(struct store *s, const char *path, uint64_t *ret);

#endif
