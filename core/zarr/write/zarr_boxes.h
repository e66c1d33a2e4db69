/* SPDX-License-Identifier: Apache-2.0 */
/*
 * zarr_boxes.h - write boxes of arrays that are in memory, each of which consists of whole chunks.
 *
 * For a process that has parts of arrays, as the shards of its devices, of which others have the
 * rest.
 */
#ifndef PYTREEFS_ZARR_BOXES_H
#define PYTREEFS_ZARR_BOXES_H

#include "core/zarr/write/zarr_write.h"

/* An array, and those of its boxes that are written. */
struct zarr_boxes {
	struct kv *kv;        /* of its chunks, with keys without a prefix; borrowed */
	const struct zarr *z; /* borrowed */
	enum dtype have;      /* of the elements in memory, which are cast to that of the array */
	const struct zarr_box *box;
	size_t n;
};

/* -EINVAL: a box is not in the array, or begins or ends inside of a chunk. */
int zarr_boxes_check(const struct zarr_boxes *a);
/*
 * Encode and put all chunks of all boxes, by the threads of the pool. A chunk that does not fit the
 * write budget is encoded piece by piece where its codec can. done counts bytes of elements in
 * memory. Boxes must have been checked, and be in native byte order.
 */
int zarr_write_boxes(struct write_env *we, const struct zarr_boxes *arrays, size_t n,
		     atomic_ullong *done);

#endif
