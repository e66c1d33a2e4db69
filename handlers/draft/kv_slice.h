/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kv_slice.h - an array of which this rank gives some chunks: those of its slice go into the step's
 * store, the rest into an unlinked file, where the draft reads them back.
 *
 * What is in the slice is guessed when the array is written (replica_parallel): should the ranks
 * not come with the leaf alike, the rest is moved into the store at the commit.
 */
#ifndef PYTREEFS_KV_SLICE_H
#define PYTREEFS_KV_SLICE_H

#include "core/kv/kv.h"
#include "core/zarr/zarr_meta.h"

/* Chunks [from, to) along an axis. */
struct slice {
	unsigned axis;
	uint64_t from, to;
};

/* own is taken on success. json: the array's document; dir: where unlinked files may be; aside:
 * counts their bytes. */
int kv_slice_new(struct kv *own, struct span json, const struct slice *slice, const char *dir,
		 atomic_ullong *staged, struct kv **ret);
/*
 * The store's own kv with all that is wanted in it (NULL: all chunks); borrowed. A kv that is not
 * one of these is returned as it is. Of one thread, when nobody writes any more.
 */
int kv_slice_give(struct kv *kv, const struct slice *want, struct kv **ret);

#endif
