/* SPDX-License-Identifier: Apache-2.0 */
/*
 * claim_keeper.h - the object with the claim of a place: put, renewed, checked, and taken over.
 *
 * A writer on another machine cannot be seen, so gc judges it by the age of what it has sent. A
 * writer may send nothing for hours, so it puts its claim again every few minutes, with a higher
 * number after the same text. Each put has the tag of the object that it replaces as its
 * condition. So of gc, which takes over the claim of a dead writer, and a writer that renews its
 * claim before it commits, only one succeeds. The claim says then that its writer commits: gc
 * leaves it alone for as long as the request that puts the marker may take.
 */
#ifndef PYTREEFS_CORE_STORE_CLAIM_KEEPER_H
#define PYTREEFS_CORE_STORE_CLAIM_KEEPER_H

#include "core/remote/bucket/store_write.h"

#define CLAIM_FILE ".pytreefs-draft"
#define CLAIM_BYTES 1024
#define CLAIM_RENEW_MS (5 * 60000)
#define CLAIM_COMMIT_NS (INT64_C(600) * 1000000000) /* more than the deadline of a request */

struct claim_keeper;

/*
 * Renew CLAIM_FILE, which has just been put, every renew_ms (0: CLAIM_RENEW_MS), until it is freed.
 * claim is borrowed.
 */
int claim_keeper_new(struct io_store *store, struct span claim, unsigned renew_ms,
		     struct claim_keeper **ret);
/*
 * Renew the claim now, with one of the lines of claim.h or "", which later renewals have, too.
 * -EEXIST: the claim is not there any more, or another one is; -EOPNOTSUPP: the server gives no
 * strong tags, so nothing can be replaced on that condition.
 */
int claim_keeper_renew(struct claim_keeper *k, const char *lines);
/* From now on the claim is renewed by claim_keeper_renew() only. Accepts NULL. */
void claim_keeper_stop(struct claim_keeper *k);
/* The object stays. Accepts NULL. */
void claim_keeper_free(struct claim_keeper *k);

/* Put a claim again, each time with another number. Errors as for claim_keeper_renew(). */
int claim_renew(struct io_store *store, const char *path, struct span claim, unsigned number,
		const char *lines);
/* -EEXIST: CLAIM_FILE is not there any more, or is another one. */
int claim_check(struct io_store *store, struct span claim);
/*
 * Replace the claim of a dead writer, which had this tag, by one of this process, whose text is
 * appended to ret. -EEXIST or -ENOENT: it has been renewed, or removed, since it was read.
 */
int claim_take_over(struct io_store *store, const char *path, const char *tag, struct buf *ret);

#endif
