/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store_impl.h - what the two kinds of store share; included by the files of the two stores only.
 */
#ifndef PYTREEFS_STORE_IMPL_H
#define PYTREEFS_STORE_IMPL_H

#include <pthread.h>

#include "core/commit/store.h"

struct store {
	struct io_dir *dir; /* owned */
	struct store_opts opts;
	struct ocdbt_data *data; /* database; else NULL */
	atomic_uint refs;        /* its owner and its leaves */
	atomic_uint next_leaf;   /* directories: number of the next one's temporary name */
};

struct store *store_ref(struct store *s);
int store_ocdbt_leaf(struct store *s, struct kv **ret);
int store_dir_leaf(struct store *s, struct kv **ret);

extern const struct kv_ops store_ocdbt_ops, store_dir_ops;

/* Temporary names of leaf directories: no parameter is called so, and Orbax takes none for one. */
#define STORE_LEAF_TMP ".pytreefs-leaf-"

/* Longer values go to a data file: what Orbax sets. */
#define STORE_INLINE_MAX 1024

#endif
