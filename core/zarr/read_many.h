/* SPDX-License-Identifier: Apache-2.0 */
/*
 * read_many.h - many views of many arrays into memory, as one job of all processors.
 *
 * The chunks under all views are one list, in the order in which they lie in the data files. Each
 * thread takes the next few, has their stored bytes read in one batch while it decodes those of the
 * batch before, and decodes each chunk into the result itself where the chunk is a run of it; else
 * by way of its scratch memory. Stored elements that need no decoding are read into the result. The
 * cache is neither asked nor filled.
 *
 * Memory beside the results is taken from read_budget, once for a round of at most READ_MANY_JOBS
 * chunks. A chunk whose stored bytes are too many for that is decoded as a stream.
 */
#ifndef PYTREEFS_READ_MANY_H
#define PYTREEFS_READ_MANY_H

#include "core/zarr/zarr.h"

#define READ_MANY_JOBS 65536  /* chunks of a round, about */
#define READ_MANY_ARRAYS 1024 /* arrays that are open at once */

struct read_target {
	struct zarr *z;        /* a reference, which the reader gives back */
	struct zarr_view view; /* finished: zarr_view_finish() */
	uint8_t *to;           /* of the result's first element */
	/* Bytes between neighbours in the result, by axis of the array; of dropped axes ignored. */
	int64_t stride[LIMIT_RANK];
};

/* The strides of a result in C order. */
void read_target_set_order(struct read_target *t);

struct read_many_ops {
	/* Any thread: 1 with a target; 0 when it is done already; a failure is that of this one. */
	int (*open)(void *arg, size_t i, struct read_target *ret);
	/* For each i that open() was called for, by the calling thread: 0, or an error with its
	 * note. */
	void (*done)(void *arg, size_t i, int result);
	/* By the calling thread, every 20 ms, inside of large chunks too: bytes of results so far.
	 * A failure ends the job. */
	int (*progress)(void *arg, uint64_t done);
};

/*
 * Read targets 0 to n - 1. Returns 0 when all were tried, whatever came of them, or what ended the
 * job early; done() was not called for the rest then. When it returns, no thread touches a result.
 */
int zarr_read_many(struct zarr_env *env, size_t n, const struct read_many_ops *ops, void *arg);

#endif
