/* SPDX-License-Identifier: Apache-2.0 */
/*
 * zarr_copy.h - chunks from one array to another as they are stored, without decoding.
 */
#ifndef PYTREEFS_ZARR_COPY_H
#define PYTREEFS_ZARR_COPY_H

#include "core/zarr/zarr_write.h"

/*
 * Put the array that `json` describes (as for zarr_writer_open()) into kv with the stored chunks of
 * `from`. Both must have one shape, dtype, fill value and grid of innermost chunks, and encode a
 * chunk in the same way, compression levels apart. 1; 0, with nothing worth keeping in kv, when
 * they do not. What can be checked without decoding is: lengths, indices of shards by their
 * checksum, the heads of zstd frames and blosc
 * objects. -EUCLEAN names a chunk that is damaged, or missing where that
 * is an error.
 */
int zarr_copy(struct write_env *we, struct zarr *from, struct kv *kv, struct span json,
	      enum zarr_fill fill);

#endif
