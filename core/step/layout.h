/* SPDX-License-Identifier: Apache-2.0 */
/*
 * layout.h - how an array is cut for storage: chunk shapes, and who writes which part.
 *
 * Pure arithmetic, equal to Orbax's: so a checkpoint that is written here has the chunks that Orbax
 * would have given it.
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
	bool ocdbt;           /* without it file_size is not looked at */
	uint64_t file_size;   /* target_data_file_size; 0: no limit */
	unsigned n_axes;
	const unsigned *axes; /* shard_axes: cut completely, first */
};

/*
 * The chunk shape. -EINVAL: a limit below one element, an axis of shard_axes beyond the rank;
 * -EFBIG: an axis above LIMIT_LAYOUT_AXIS that has to be cut.
 */
int layout_chunk_shape(const struct layout *l, uint64_t ret[LIMIT_RANK]);

/* How a block that several devices hold is shared out among them. */
struct layout_replicas {
	bool sliced;   /* false: the first replica writes it all */
	unsigned axis; /* cut in count equal slices */
	uint64_t count;
	uint64_t write_shape[LIMIT_RANK]; /* of one slice, or of the block */
};

/*
 * block: shape of one device's shard, held by replicas devices. max_replicas 0: no bound;
 * min_slice_bytes: smaller slices are not worth it.
 */
void layout_replicas(const uint64_t *block, unsigned rank, uint64_t replicas, uint64_t max_replicas,
		     uint64_t item_size, uint64_t min_slice_bytes, struct layout_replicas *ret);

#endif
