/* SPDX-License-Identifier: Apache-2.0 */
/*
 * draft_upload.h - drafts of a mount whose SOURCE is in a bucket, by its URL or on a file system
 * that shows one (core/io/bucket_mount.h).
 *
 * Objects of a bucket cannot be renamed, appended to or locked. So a draft claims the place of its
 * step in the bucket when it begins (core/remote/upload/step_upload.h), its files are written in a
 * local directory, and they are uploaded by the commit. The step has its final name from the start,
 * as with atomicity=commit_file: "5.tmp" can only become "5".
 *
 * When the ranks of a job share a draft, the primary claims its place for all. Each rank has a
 * local directory with its own files, and uploads these in the second round of the commit
 * (handlers/job/draft_collective.c).
 */
#ifndef PYTREEFS_DRAFT_UPLOAD_H
#define PYTREEFS_DRAFT_UPLOAD_H

#include "core/remote/upload/step_upload.h"
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

/*
 * Claim the place of a draft in the bucket, and make its directory d->dir. -EEXIST: the step
 * exists; -EBUSY: another process is writing it; -EACCES: the caller is not the user who mounted
 * the bucket, with whose credentials it would be written.
 */
int draft_upload_begin(struct draft *d, const char *final, unsigned mode);
/*
 * Upload the finished draft as a step. Returns 0 when listings of the bucket show it. On failure,
 * its objects are removed again, and the next attempt begins with the claim. deadline: clock_ns(),
 * or 0.
 */
int draft_upload_run(struct draft *d, int64_t deadline);
/*
 * After a commit of which it is not known whether it succeeded: remember the state of the draft,
 * until another attempt is made.
 * When it is known that it did: -EEXIST if the draft has changed since, which then stays.
 */
void draft_upload_set_unknown(struct draft *d);
int draft_upload_check_same(const struct draft *d);
/* End a draft that was not committed: remove its objects and its local directory. */
void draft_upload_end(struct draft *d);
/*
 * Set options of an item's store so that the draft's sender uploads data files while they are
 * written. An object's name follows from the item's: when the item is renamed later, its files are
 * uploaded again at the commit.
 */
int draft_upload_watch(const struct draft_node *item, bool replicas, struct item_store_opts *ret);

/* ---- drafts that ranks share ---- */

/* The argument of its functions is a struct draft_uploads. */
extern const struct collective_place_ops draft_upload_place;
/*
 * Upload this rank's files, except for those that were uploaded in this attempt and have not
 * changed. deadline: clock_ns(), or 0.
 */
int draft_upload_send(struct draft *d, int64_t deadline);
/* Append what this rank has uploaded, for draft_upload_publish(). Nothing at the first attempt. */
int draft_upload_list(const struct draft *d, struct buf *ret);
/*
 * Primary: upload the remaining files, remove what failed attempts have left, and commit the step.
 * list: of each of n ranks what draft_upload_list() appended.
 */
int draft_upload_publish(struct draft *d, const struct buf *list, size_t n, int64_t deadline);
/* The attempt has the result r, which keeps its note. After a failure, this rank's objects are
 * removed. */
void draft_upload_decided(struct draft *d, int r);
/*
 * The result is not known to this rank: whether the step is committed, 1 or 0 for not yet. Its
 * objects are kept until the result is known, since the primary may still commit.
 */
int draft_upload_find(struct draft *d);
/*
 * Primary, before an attempt: find out what has become of the last one: 1: the step is committed;
 * 0: it is not.
 */
int draft_upload_resolve(struct draft *d);
/* Primary, after an attempt that failed: whether the step may be there nevertheless. */
bool draft_upload_keeps(const struct draft *d);
/* Open the directory of the step in the bucket, with what all ranks have uploaded. */
int draft_upload_dir(struct draft *d, struct io_dir **ret);

/* ---- budgets ---- */

/*
 * Divide write_budget: encoding gets one half, uploads get the other half, but at least the size of
 * one part. Sets the budget of ckpt, and returns that of uploads.
 */
uint64_t draft_upload_split(struct ckpt *ckpt, uint64_t write_budget);
void draft_uploads_resize(struct draft_uploads *u, uint64_t write_budget);
/* Returns the URL of SOURCE. */
const char *draft_uploads_url(const struct draft_uploads *u);

#endif
