/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verify_chunk.h - checks that one chunk decodes.
 */
#ifndef PYTREEFS_VERIFY_CHUNK_H
#define PYTREEFS_VERIFY_CHUNK_H

#include <pthread.h>

#include "tools/select/walk.h"

#define VERIFY_WINDOW (128 * MiB) /* window of a decoder for zstd's highest level */

struct verify_chunk {
	uint64_t stored; /* number of bytes; 0: the chunk is not stored */
	bool is_summed;  /* a checksum covers it: of the chunk, of its value, or of its node */
};

/*
 * Find a chunk, read it, check its decoded size, and compare the checksum that follows its value.
 * has_nodes: inline values are in nodes, which have checksums. large: held while a decoder uses a
 * large window.
 */
int verify_chunk(struct zarr *z, const uint64_t *index, struct walk_worker *worker,
		 pthread_mutex_t *large, bool has_nodes, struct verify_chunk *ret);

#endif
