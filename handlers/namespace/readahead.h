/* SPDX-License-Identifier: Apache-2.0 */
/*
 * readahead.h - reading ahead of a sequential reader of one file.
 *
 * The *run*: the next bytes are decoded for the reader, by ordinary jobs, and bytes that it has
 * passed leave the cache first. After the run, in a file of many leaves, is the *guess*: idle
 * threads decode as much as ahead_window() allows, but never more than the reader has read. A map
 * that is touched in order has such a reader, since the kernel requests its pages in order. The
 * leaves that follow in other files are the concern of ahead.h.
 *
 * Idle threads may be late. A part of the guess therefore ends when the run has reached its end:
 * otherwise they would decode what was read and evicted, again and for nobody.
 *
 * A reader that jumps ends its run, and begins another one.
 */
#ifndef PYTREEFS_READAHEAD_H
#define PYTREEFS_READAHEAD_H

#include <pthread.h>

#include "core/zarr/guess.h"
#include "handlers/namespace/node.h"

#define READAHEAD_BYTES (16 * MiB) /* the longest run; longer in a store */
#define READAHEAD_GUESSES 12       /* parts of a guess: each has an eighth of the window */

/* Operations of a file on ranges. Any thread may call these. */
struct readahead_ops {
	/* Decode a range in the background. guess: as in zarr_prefetch(). */
	void (*prefetch)(struct file *f, uint64_t off, uint64_t n, struct zarr_guess *guess);
	/* See zarr_drop_behind(). */
	void (*drop_behind)(struct file *f, uint64_t from, uint64_t to);
	/* Data that was decoded for guesses will not be read. NULL: nothing is guessed. */
	void (*end_ahead)(struct file *f);
};

struct readahead {
	const struct readahead_ops *ops;
	struct file *file;    /* borrowed: it contains this struct */
	uint64_t size;        /* of the file */
	bool drops;           /* data that was read leaves the cache first */
	pthread_mutex_t lock; /* protects all members below */
	uint64_t first;       /* start of the run */
	/* ends of the furthest read, and of prefetched, guessed and dropped bytes */
	uint64_t reached, asked, guessed, dropped;
	struct readahead_guess {
		uint64_t end;
		struct zarr_guess *token; /* a reference */
	} guess[READAHEAD_GUESSES];       /* in ascending order */
	unsigned n_guesses;
	bool has_guessed; /* since the last jump */
};

void readahead_init(struct readahead *ra, const struct readahead_ops *ops, struct file *f,
		    uint64_t size);
/* For zeroed structs that were not initialized, too. */
void readahead_release(struct readahead *ra);
/* Bytes [off, end) are requested. Returns whether they continue the run. */
bool readahead_request(struct readahead *ra, uint64_t off, uint64_t end);
/* A request for bytes up to `end` was answered. */
void readahead_answered(struct readahead *ra, uint64_t end);

#endif
