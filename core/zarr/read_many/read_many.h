/* SPDX-License-Identifier: Apache-2.0 */
/*
 * read_many.h - read many views of many arrays into memory, using all processors.
 *
 * The chunks of all views form one list, in the order of their place in the data files. Each thread
 * takes the next few, and reads their stored bytes in one batch while it decodes those of its
 * previous batch. It decodes a chunk directly into the result where the chunk is a run of it,
 * otherwise through scratch memory. Stored elements that need no decoding are read directly into
 * the result. The cache is neither used nor filled. A chunk that several views need is decoded
 * once.
 *
 * Memory besides the results is taken from read_budget, once for a round of at most READ_MANY_JOBS
 * chunks. A chunk whose stored bytes do not fit is decoded as a stream.
 */
#ifndef PYTREEFS_READ_MANY_H
#define PYTREEFS_READ_MANY_H

#include "core/zarr/zarr.h"

#define READ_MANY_JOBS 65536  /* chunks of a round, approximately */
#define READ_MANY_ARRAYS 1024 /* arrays that are open at the same time */

struct read_target {
	struct zarr *z;        /* a reference, which zarr_read_many() drops */
	struct zarr_view view; /* zarr_view_finish() was called */
	uint8_t *to;           /* first element of the result */
	/*
	 * Bytes between neighbours in the result, by axis of the array; ignored for dropped axes.
	 */
	int64_t stride[LIMIT_RANK];
};

/* Set the strides for a result in C order. */
void read_target_set_order(struct read_target *t);

struct read_many_ops {
	/*
	 * Called by any thread. Returns 1 with a target; 0 when the target is done already; or an
	 * error, which is that of this target only.
	 */
	int (*open)(void *arg, size_t i, struct read_target *ret);
	/*
	 * Called by the calling thread for each i that was opened, with 0 or an error and its note.
	 */
	void (*done)(void *arg, size_t i, int result);
	/*
	 * Called by the calling thread every 20 ms, also within large chunks, with the bytes of
	 * results so far. An error ends the job.
	 */
	int (*progress)(void *arg, uint64_t done);
	/* No other thread takes part: for a thread of the pool, which must not wait for others. */
	bool is_alone;
};

/*
 * Read targets 0 to n - 1. Returns 0 when all were tried, whatever their results, or the error that
 * ended the job early; done() is then not called for the rest. Afterwards no thread accesses a
 * result.
 */
int zarr_read_many(struct zarr_env *env, size_t n, const struct read_many_ops *ops, void *arg);

#endif
