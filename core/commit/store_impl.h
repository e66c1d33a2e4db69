/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store_impl.h - shared by the two kinds of store, and included only by their files.
 */
#ifndef PYTREEFS_STORE_IMPL_H
#define PYTREEFS_STORE_IMPL_H

#include <pthread.h>

#include "core/commit/store.h"

struct store {
	struct io_dir *dir; /* owned */
	struct store_opts opts;
	struct ocdbt_data *data; /* for a database; else NULL */
	atomic_uint refs;        /* held by the owner and the leaves */
	atomic_uint next_leaf;   /* directory per leaf: number of the next temporary name */
};

struct store *store_ref(struct store *s);
int store_ocdbt_leaf(struct store *s, struct kv **ret);
int store_dir_leaf(struct store *s, struct kv **ret);

extern const struct kv_ops store_ocdbt_ops, store_dir_ops;

/*
 * Prefix of the temporary names of leaf directories. No parameter has such a name, and Orbax does
 * not read them as leaves.
 */
#define STORE_LEAF_TMP ".pytreefs-leaf-"

/* Longer values are written to a data file. The limit is that of Orbax. */
#define STORE_INLINE_MAX 1024

#endif
