/* SPDX-License-Identifier: Apache-2.0 */
/*
 * layout.h - how an array is divided for storage: chunk shapes, and the part that each writer
 * writes.
 *
 * Pure arithmetic, with the same results as Orbax, so that checkpoints written here have the chunks
 * that Orbax would use.
 */
#ifndef PYTREEFS_LAYOUT_H
#define PYTREEFS_LAYOUT_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/limits.h"

/* The parameters that determine the chunks of one array. */
struct layout {
	unsigned rank;
	const uint64_t *shape;       /* of the whole array */
	const uint64_t *write_shape; /* of the block that one writer writes */
	uint64_t item_size;          /* of the stored type */
	bool has_chunk_bytes;
	uint64_t chunk_bytes; /* chunk_byte_size */
	bool ocdbt;           /* if false, file_size is ignored */
	uint64_t file_size;   /* target_data_file_size; 0: no limit */
	unsigned n_axes;
	const unsigned *axes; /* shard_axes, which are cut to 1 first */
};

/*
 * Compute the chunk shape. -EINVAL: a limit is smaller than one element, or an axis of shard_axes
 * is beyond the rank; -EFBIG: an axis above LIMIT_LAYOUT_AXIS has to be cut.
 */
int layout_chunk_shape(const struct layout *l, uint64_t ret[LIMIT_RANK]);

/* How a block that several devices hold is divided among these. */
struct layout_replicas {
	bool sliced;   /* false: the first replica writes the whole block */
	unsigned axis; /* the axis that is cut in count equal slices */
	uint64_t count;
	uint64_t write_shape[LIMIT_RANK]; /* of one slice, or of the whole block */
};

/*
 * Divide a block, the shape of one device's shard, which `replicas` devices hold. max_replicas
 * bounds the number of slices, 0: no bound; a block is not cut into slices below min_slice_bytes.
 */
void layout_replicas(const uint64_t *block, unsigned rank, uint64_t replicas, uint64_t max_replicas,
		     uint64_t item_size, uint64_t min_slice_bytes, struct layout_replicas *ret);

#endif
