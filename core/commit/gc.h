/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gc.h - what dead writers left in a SOURCE: found, reported, removed.
 *
 * Never what a living writer holds: each draft of ours is locked by its writer, and is removed
 * under that lock.
 */
#ifndef PYTREEFS_GC_H
#define PYTREEFS_GC_H

#include "core/io/io.h"

enum gc_kind {
	GC_DRAFT,   /* of ours, its writer is gone */
	GC_BEGUN,   /* of ours, its writer died before it was locked */
	GC_DELETED, /* a step that was being deleted */
	GC_LOCK,    /* a lock file that stayed in a committed step */
	GC_FOREIGN, /* a temporary directory of another program */
	GC_LIVE,    /* held by a living writer */
};
const char *gc_kind_text(enum gc_kind kind);

struct gc_found {
	const char *path; /* below SOURCE */
	enum gc_kind kind;
	uint64_t bytes; /* that it takes on the disk */
	bool removed;   /* or would be, in a dry run */
	int failed;     /* it could not be: its code, with a note */
};

struct gc_opts {
	bool dry_run;
	bool foreign;          /* those of other programs, too, ... */
	int64_t older_than_ns; /* ... when nothing in them changed for so long */
	/* Called for each, in order of the names; what is retained is reported, too. */
	void (*each)(void *arg, const struct gc_found *f);
	void *arg;
};

/* In a root, in its steps, or in a step. 0 also when some could not be removed: each is reported. */
int gc_run(struct io_dir *source, const struct gc_opts *opts);

#endif
