/* SPDX-License-Identifier: Apache-2.0 */
/*
 * draft_upload.h - drafts of a mount whose SOURCE is in a bucket, by its URL or on a file system
 * that shows one (core/io/bucket_mount.h).
 *
 * Objects of a bucket cannot be renamed, appended to or locked. So a draft claims the place of its
 * step in the bucket when it begins (core/remote/upload/step_upload.h), its files are written in a
 * local directory, and they are uploaded by the commit. The step has its final name from the start,
 * as with atomicity=commit_file: "5.tmp" can only become "5".
 */
#ifndef PYTREEFS_DRAFT_UPLOAD_H
#define PYTREEFS_DRAFT_UPLOAD_H

#include "core/remote/upload/step_upload.h"
#include "handlers/draft/commit_driver.h"
#include "handlers/draft/draft.h"

struct draft_uploads;

/*
 * Create the state for a mount whose SOURCE is a bucket. opts NULL: it is on a file system, where
 * the commit copies the draft (core/commit/step_copy.h), and nothing is claimed. spill: the
 * directory for drafts, in which the first draft creates a private directory; NULL: drafts cannot
 * begin.
 */
int draft_uploads_new(const struct draft_env *env, const struct url_store_opts *opts,
		      const char *spill, struct draft_uploads **ret);
/*
 * The mount is being ended: let commits fail at once with -ECANCELED. Any thread may call this.
 * Accepts NULL.
 */
void draft_uploads_interrupt(struct draft_uploads *u);
/* All drafts must have ended. Accepts NULL. */
void draft_uploads_free(struct draft_uploads *u);

/*
 * For a SOURCE on a file system: what that does not promise, one sentence; NULL for others. u
 * may be NULL. draft_uploads_log() logs it once per process; the first draft calls it.
 */
const char *draft_uploads_remark(const struct draft_uploads *u);
void draft_uploads_log(const struct draft_uploads *u);

/* ---- operations of bucket_driver and mounted_driver (commit_driver.h) ---- */

/*
 * Claim the place of a draft in the bucket, and make its directory d->dir. -EEXIST: the step
 * exists; -EBUSY: another process is writing it; -EACCES: the caller is not the user who mounted
 * the bucket, with whose credentials it would be written.
 */
int draft_upload_begin(struct draft *d, const char *final, unsigned mode);
int draft_copy_begin(struct draft *d, const char *final, unsigned mode);
/*
 * Set options of an item's store so that the draft's sender uploads data files while they are
 * written. An object's name follows from the item's: when the item is renamed later, its files are
 * uploaded again at the commit.
 */
int draft_upload_watch(const struct draft_node *item, bool replicas, struct item_store_opts *ret);
/*
 * The argument is the draft. After an upload, listings of the bucket show the step. After a
 * failure, its objects are removed again, and the next attempt begins with the claim.
 */
extern const struct commit_publisher publish_by_upload, publish_by_copy;
/* End a draft: remove its objects, unless a commit made them a step, and its local directory. */
int draft_upload_end(struct draft *d);
void draft_upload_leave(struct draft *d);

/* ---- their parts, for the driver of a job ---- */

/* Fail if this user, or this mount, cannot begin a draft. */
int draft_upload_prepare(struct draft *d);
/* The same, and make the directory for drafts, if there is none yet; *ret is borrowed. */
int draft_upload_spill(struct draft *d, struct io_dir **ret);
/* Claim the place of a step, or, unless p is NULL, join the process that has `claimed` it. */
int draft_upload_claim(struct draft_uploads *u, const char *final, struct span claimed,
		       struct step_upload **ret);
void draft_upload_set_sender(struct draft *d);
/* Like draft_upload_watch(), for a database in a directory of the item ("ocdbt.process_0/"). */
int draft_upload_watch_in(const struct draft_node *item, const char *database,
			  struct item_store_opts *ret);
/* Whether an upload has to stop; arg is a struct uploading. Any thread may call this. */
struct uploading {
	const struct draft *d;
	int64_t deadline; /* clock_ns(), or 0 */
};
int draft_upload_check(void *arg);
/*
 * After a commit of which it is not known whether it succeeded: remember the state of the draft,
 * until another attempt is made.
 * When it is known that it did: -EEXIST if the draft has changed since, which then stays.
 */
void draft_upload_set_unknown(struct draft *d);
int draft_upload_check_same(const struct draft *d);
void draft_upload_remove_spill(struct draft *d);

#endif
