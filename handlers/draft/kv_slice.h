/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kv_slice.h - a kv for an array of which this rank writes only some chunks. Chunks of its slice go
 * to the step's store, the others to an unlinked file, from which the draft reads them back.
 *
 * When the array is written, the slice is an assumption (replica_parallel). If the ranks turn out
 * not to have written the leaf alike, the commit moves the other chunks into the store, too.
 */
#ifndef PYTREEFS_KV_SLICE_H
#define PYTREEFS_KV_SLICE_H

#include "core/kv/kv.h"
#include "core/zarr/meta/zarr_meta.h"

/* Chunks [from, to) along an axis. */
struct slice {
	unsigned axis;
	uint64_t from, to;
};

/*
 * Make a kv. Takes `own` on success. json: the array's document; dir: a directory for unlinked
 * files; staged: counts their bytes.
 */
int kv_slice_new(struct kv *own, struct span json, const struct slice *slice, const char *dir,
		 atomic_ullong *staged, struct kv **ret);
/*
 * Returns the kv of the step's store, after all chunks of `want` (NULL: all chunks) were moved into
 * it; borrowed. A kv of another kind is returned unchanged. Not thread-safe; all writes must have
 * ended.
 */
int kv_slice_give(struct kv *kv, const struct slice *want, struct kv **ret);

#endif
