/* SPDX-License-Identifier: Apache-2.0 */
/*
 * zarr_copy.h - copy stored chunks from one array to another without decoding them.
 */
#ifndef PYTREEFS_ZARR_COPY_H
#define PYTREEFS_ZARR_COPY_H

#include "core/zarr/write/zarr_write.h"

/*
 * Put the array that `json` describes (as for zarr_writer_open()) into kv, with the stored chunks
 * of `from`. Both must have the same shape, element type, fill value and grid of innermost chunks,
 * and the same codecs, except for compression levels. Returns 1; or 0 when they differ, and kv then
 * has nothing worth keeping. Everything is checked that needs no decoding: lengths, checksums of
 * shard indices and of values, heads of zstd frames and blosc objects. A compressed chunk without a
 * checksum of ours is copied without one. -EUCLEAN names a chunk that is damaged, or missing where
 * that is an error; -EBADMSG one that differs from its checksum.
 */
int zarr_copy(struct write_env *we, struct zarr *from, struct kv *kv, struct span json,
	      enum zarr_fill fill);

#endif
