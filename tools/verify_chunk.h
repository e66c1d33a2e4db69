/*
 * verify_chunk.h - whether one chunk decodes.
 */
#ifndef PYTREEFS_VERIFY_CHUNK_H
#define PYTREEFS_VERIFY_CHUNK_H

#include <pthread.h>

#include "tools/walk.h"

#define VERIFY_WINDOW (128 * MiB)	/* what zstd's highest level makes a decoder remember */

/*
 * Find it, read it, decode it to the size that it should have. ret_stored: bytes, 0 for one that is not
 * stored. large is held while more is remembered than decoders usually do.
 */
int verify_chunk(struct zarr *z, const uint64_t *index, struct walk_lane *lane, pthread_mutex_t *large,
		 uint64_t *ret_stored);

#endif
