/* SPDX-License-Identifier: Apache-2.0 */
/*
 * job_driver.h - the driver of drafts that the ranks of a job share (commit_driver.h): over a
 * directory (job_directory.c), or over a bucket (job_bucket.c).
 *
 * Ranks that share a directory learn from the name of the draft's directory what has become of an
 * attempt at a commit. Those of a bucket have directories of their own, upload their values, and
 * look for the marker. The sequence is the same (draft_collective.c); what differs is an operation
 * of struct attempt_ops.
 */
#ifndef PYTREEFS_JOB_DRIVER_H
#define PYTREEFS_JOB_DRIVER_H

#include "core/job/collective.h"
#include "handlers/draft/commit_driver.h"
#include "handlers/job/collective_plan.h"

extern const struct commit_driver job_directory_driver, job_bucket_driver;
/* Get the driver of a job where one process would have `single`. -EINVAL: there is none. */
int job_driver_over(const struct commit_driver *single, const struct commit_driver **ret);
/* Whether a whole array that all active ranks have is divided among them (replica_parallel). */
bool job_slices(const struct draft_env *env, const struct array_type *t, struct slices *ret);

/* ---- an attempt (docs/protocols.md) ---- */

/* The states of docs/protocols.md in which ranks vote; the others are in `undecided`. */
enum attempt_round { ATTEMPT_FIRST_ROUND, ATTEMPT_SECOND_ROUND };

struct attempt_ops;

/* One call of rename. */
struct course {
	struct draft *d;
	struct collective *j;
	const struct attempt_ops *ops;
	struct sealing_item *item; /* items of this rank */
	size_t n;
	struct span custom;
	struct agreement attempt;
	bool undecided;   /* the result is an error, and the step may be there nevertheless */
	bool sent;        /* objects may have been uploaded for this attempt */
	struct buf *list; /* primary: what the other ranks have uploaded, by rank */
};

struct attempt_ops {
	/* Before the attempt: 1: the draft is the step already. NULL: that is not known yet. */
	int (*find)(struct draft *d);
	/*
	 * Primary, before it: 1: the last attempt has made the step; 0: it has not, and will not.
	 * NULL: the result was known at its end.
	 */
	int (*resolve)(struct draft *d);
	/* Remove files of failed attempts from this rank's directory. NULL: the primary does. */
	int (*clean)(struct draft *d, const struct sealing_item *item, size_t n);
	/*
	 * Bring what was sealed to where the primary reads it. It was sent before the deadline;
	 * list (unless NULL) gets what there is. NULL: it is there.
	 */
	int (*send)(struct draft *d, int64_t deadline, struct buf *list);
	/* Open the directory with the values of all ranks. NULL: it is that of the draft. */
	int (*open_values)(struct draft *d, struct io_dir **ret);
	/* No result has arrived. Find out: 0: the step is there; else `why`, or "not known". */
	int (*give_up)(struct course *c, const struct err_note *why);
	/* Whether the last attempt, which failed, may have made the step nevertheless. NULL: no. */
	bool (*is_undecided)(struct draft *d);
	/* The result is known. Returns it. NULL: nothing is to be done. */
	int (*decided)(struct course *c, int r);
};

/* ---- operations of the two drivers ---- */

int job_directory_begin(struct draft *d, const char *final, unsigned mode);
int job_directory_commit(struct draft *d, struct sealing_item *item, size_t n, struct span custom,
			 int r, int64_t deadline);
/* Remove this rank's part of a shared draft. The other ranks continue with theirs. */
int job_directory_remove(struct draft *d);

int job_bucket_begin(struct draft *d, const char *final, unsigned mode);
int job_bucket_watch(const struct draft_node *item, bool replicas, struct item_store_opts *ret);
int job_bucket_commit(struct draft *d, struct sealing_item *item, size_t n, struct span custom,
		      int r, int64_t deadline);
extern const struct commit_publisher publish_by_job_upload; /* the argument is a struct course */
int job_bucket_open_finished(struct draft *d, const char *path, struct item **ret);
int job_bucket_end(struct draft *d);
void job_bucket_leave(struct draft *d);
/* Claims the place of a draft for all ranks. The argument is a struct draft_uploads. */
extern const struct collective_place_ops job_bucket_place;

#endif
