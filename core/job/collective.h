/* SPDX-License-Identifier: Apache-2.0 */
/*
 * collective.h - drafts that the ranks of a job share: who is in one, and what they decide
 * together.
 *
 * One rank, the primary, keeps a record of each shared draft. An attempt at a commit is an
 * agreement (agree.h) of the active ranks in two rounds: the primary answers the first with what
 * each rank is to do, and decides after the second. A decision is kept: who comes later gets it. A
 * rank whose mount is ended gives up at once, with -ECANCELED.
 *
 * An attempt is the n-th call of rename on the draft, which every rank counts for
 * itself.
 */
#ifndef PYTREEFS_COLLECTIVE_H
#define PYTREEFS_COLLECTIVE_H

#include "core/commit/draft_dir.h"
#include "core/job/agree.h"

struct collective;

struct collective_opts {
	struct peers *peers;   /* borrowed */
	struct io_dir *source; /* borrowed */
	int primary;           /* -1: the first active rank */
	const char *active;    /* "0-3:6"; NULL: all */
};
/*
 * -EINVAL: active is not a list of ranks, or the primary is not in it. Begins to serve requests;
 * those that are not ours are passed to `other`, unless arg is NULL.
 */
int collective_new(const struct collective_opts *opts, peers_serve_fn *other, void *arg,
		   struct collective **ret);
/* Ends serving. Accepts NULL. */
void collective_free(struct collective *j);
DEFINE_AUTO(collective, struct collective, collective_free);

/*
 * "0-3:6", of a job of that many ranks, into active[] (NULL: it is only looked at). 1 when a rank
 * is among them
 * (-1: none is asked for), else 0; -EINVAL.
 */
int collective_parse_active(const char *text, int size, bool *active, int rank);
/*
 * This rank's mount is being ended: whoever waits for other ranks here stops, now and later, with
 * -ECANCELED.
 */
void collective_interrupt(struct collective *j);
int collective_rank(const struct collective *j);
int collective_size(const struct collective *j);
int collective_primary(const struct collective *j);
bool collective_is_primary(const struct collective *j);
bool collective_is_active(const struct collective *j, int rank);
unsigned collective_n_active(const struct collective *j);

/* One rank's part in a shared draft. */
struct collective_member {
	uint64_t epoch;   /* which draft, in the life of the job */
	unsigned attempt; /* the last one that it took part in, or knows the result of */
	bool notified;    /* its last call got the result of an attempt that it had missed */
};

/*
 * Join the draft with that name on the disk, which the first one makes. -EBUSY: a mount of another
 * job holds it; -EROFS: this rank is not active; -ETIMEDOUT: the primary does not answer.
 */
int collective_join(struct collective *j, const char *name, const char *final, unsigned mode,
		    struct collective_member *ret, struct draft_dir **ret_dir);
/* Out of it. aborted: when all have left it so, it is removed from the disk. */
void collective_leave(struct collective *j, const struct collective_member *m, bool aborted);

/* ---- a commit ---- */

/*
 * Before anything else, on each rank: which attempt the call takes part in (m->attempt); named: the
 * attempt whose name the draft has. 1: take part. Else the result of what was decided without this
 * rank. -ETIMEDOUT with m->notified unset: the primary has not said.
 */
int collective_begin(struct collective *j, struct collective_member *m, unsigned named,
		     int64_t deadline);
/* That attempt: the votes of active ranks, and the primary's answer. Its code is 1 to go on, 0 for
 * committed, or the error of all. */
struct agreement collective_attempt(const struct collective *j, const struct collective_member *m,
				    int64_t deadline);
/* The primary: keep the result, with this thread's note, and answer all. */
void collective_decide(struct collective *j, const struct collective_member *m, int r);

#endif
