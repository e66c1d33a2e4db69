/* SPDX-License-Identifier: Apache-2.0 */
/*
 * draft_upload.h - drafts of a mount whose SOURCE is in a bucket.
 *
 * Nothing can be renamed there, appended to or locked. So a draft claims its step's place in the
 * bucket when it begins (core/store/step_upload.h), is written in a directory of this machine, and
 * its files are uploaded when it is committed. It is written in place, as drafts are with
 * atomicity=commit_file: "5.tmp" can only become "5".
 */
#ifndef PYTREEFS_DRAFT_UPLOAD_H
#define PYTREEFS_DRAFT_UPLOAD_H

#include "core/store/url_store.h"
#include "handlers/draft/draft.h"

struct draft_uploads;

/*
 * Of the env of a mount whose SOURCE is a bucket. spill: the directory in which drafts are made, in
 * one that is made with the first of them; NULL: none, and no draft can begin.
 */
int draft_uploads_new(const struct draft_env *env, const struct url_store_opts *opts,
		      const char *spill, struct draft_uploads **ret);
/* The mount is being ended: commits fail at once with -ECANCELED. Any thread. Accepts NULL. */
void draft_uploads_interrupt(struct draft_uploads *u);
/* No draft is left. Accepts NULL. */
void draft_uploads_free(struct draft_uploads *u);

/*
 * The place of a draft in the bucket, and its directory d->dir. -EEXIST: a step is there, or
 * somebody writes it; -EACCES: another user than the one who mounted it asks, whose credentials
 * these are not.
 */
int draft_upload_begin(struct draft *d, const char *final, unsigned mode);
/*
 * The finished draft becomes a step of the bucket: 0 when listings show it. When it fails, nothing
 * of it stays there, and another attempt begins with the claim. deadline: clock_ns(), or 0.
 */
int draft_upload_run(struct draft *d, int64_t deadline);
/* It was not committed: what is in the bucket and on this machine goes away. */
void draft_upload_end(struct draft *d);
/* The URL of SOURCE. */
const char *draft_uploads_url(const struct draft_uploads *u);

#endif
