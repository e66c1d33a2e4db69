/* SPDX-License-Identifier: Apache-2.0 */
/* item_store_impl.h - shared by the two kinds of store, and included only by their files. */
#ifndef PYTREEFS_ITEM_STORE_IMPL_H
#define PYTREEFS_ITEM_STORE_IMPL_H

#include <pthread.h>

#include "core/commit/item_store.h"

struct item_store {
	struct io_dir *dir; /* owned */
	struct item_store_opts opts;
	struct ocdbt_data *data; /* for a database; else NULL */
	struct kv *files;        /* reads written files of a directory per leaf; else NULL */
	atomic_uint refs;        /* held by the owner and the leaves */
	atomic_uint next_leaf;   /* directory per leaf: number of the next temporary name */
};

struct item_store *item_store_ref(struct item_store *s);
int item_store_ocdbt_leaf(struct item_store *s, struct kv **ret);
int item_store_dir_leaf(struct item_store *s, struct kv **ret);

extern const struct kv_ops item_store_ocdbt_ops, item_store_dir_ops;

/*
 * Prefix of the temporary names of leaf directories. No parameter has such a name, and Orbax does
 * not read them as leaves.
 */
#define ITEM_STORE_LEAF_TMP ".pytreefs-leaf-"

/* Longer values are written to a data file. The limit is that of Orbax. */
#define ITEM_STORE_INLINE_MAX 1024

#endif
