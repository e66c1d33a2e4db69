/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verify_chunk.h - whether one chunk decodes.
 */
#ifndef PYTREEFS_VERIFY_CHUNK_H
#define PYTREEFS_VERIFY_CHUNK_H

#include <pthread.h>

#include "tools/select/walk.h"

#define VERIFY_WINDOW (128 * MiB) /* what zstd's highest level makes a decoder remember */

struct verify_chunk {
	uint64_t stored; /* bytes; 0: it is not stored */
	bool is_summed;  /* a checksum covers it: its own, that of its value, or that of its node */
};

/*
 * Find it, read it, decode it to the size that it should have, and compare the value with the
 * checksum that follows it. has_nodes: what is inline lies in a node, which has a checksum. large
 * is held while more is remembered than decoders usually do.
 */
int verify_chunk(struct zarr *z, const uint64_t *index, struct walk_worker *worker,
		 pthread_mutex_t *large, bool has_nodes, struct verify_chunk *ret);

#endif
