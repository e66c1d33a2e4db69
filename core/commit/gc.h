/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gc.h - find, report and remove files that dead writers left in a SOURCE.
 *
 * Files of a living writer are never removed: each draft of ours is locked by its writer, and is
 * removed while holding that lock.
 */
#ifndef PYTREEFS_GC_H
#define PYTREEFS_GC_H

#include "core/io/io.h"

enum gc_kind {
	GC_DRAFT,      /* a draft of ours whose writer is gone */
	GC_COPY,       /* of a mounted bucket, where locks of other machines are not seen */
	GC_BEGUN,      /* a draft of ours whose writer died before locking it */
	GC_DELETED,    /* a step that was being deleted */
	GC_LOCK,       /* a lock file that remained in a committed step */
	GC_FOREIGN,    /* a temporary directory of another program */
	GC_LIVE,       /* a draft that a living writer holds */
	GC_COMMITTING, /* in a bucket: its writer has ended, and may have committed it */
	GC_UNCLAIMED,  /* objects in a bucket that ranks of a job sent, whose claim is gone */
	GC_OLD,        /* a checkpoint that was renamed to be replaced, and was not replaced */
};
const char *gc_kind_text(enum gc_kind kind);

struct gc_found {
	const char *path; /* relative to SOURCE */
	enum gc_kind kind;
	uint64_t bytes; /* space on the disk */
	bool removed;   /* it was removed, or in a dry run would be */
	/* where its age decides: the time of its last change if that is in the future; else 0 */
	int64_t future_ns;
	int failed; /* negative when it could not be removed, with a note */
};

struct gc_opts {
	bool dry_run;
	bool foreign;          /* also remove temporary directories of other programs, ... */
	int64_t older_than_ns; /* ... if nothing in them has changed for this long */
	/* A time in the future counts as that far away: by itself it does not mean life. */
	/*
	 * Called for each directory or lock file that was found, sorted by name, also for those
	 * that are kept.
	 */
	void (*each)(void *arg, const struct gc_found *f);
	void *arg;
};

/*
 * Search a root and its steps, or a step. Returns 0 also when some could not be removed, each of
 * which is reported.
 */
int gc_run(struct io_dir *source, const struct gc_opts *opts);

#endif
