/* SPDX-License-Identifier: Apache-2.0 */
/*
 * collective.h - drafts that the ranks of a job share: their members, and common decisions.
 *
 * One rank, the primary, keeps a record of each shared draft. An attempt at a commit is an
 * agreement (agree.h) of the active ranks in two rounds: the primary answers the first with the
 * tasks of each rank, and decides after the second. The decision is recorded for ranks that come
 * later. A rank whose mount is being ended gives up at once with -ECANCELED.
 *
 * Attempt n is the n-th call of rename on the draft; each rank counts these itself.
 */
#ifndef PYTREEFS_COLLECTIVE_H
#define PYTREEFS_COLLECTIVE_H

#include "core/commit/draft_dir.h"
#include "core/job/agree.h"

struct collective_record;

/*
 * Where drafts are when the ranks do not share a directory. Called in the primary by the thread
 * that admits the first rank, or that dismisses the last one.
 */
struct collective_place_ops {
	/* Claim the place of the step `final`; append what the other ranks have to know of it. */
	int (*claim)(void *arg, const char *final, void **ret_place, struct buf *ret);
	/* Remove what was not committed there. */
	void (*release)(void *arg, void *place);
};

/* This process in its job. Only core/job changes it. */
struct collective {
	struct peers *peers;
	struct io_dir *source;
	int primary;
	bool *active; /* by rank */
	unsigned n_active;
	const struct collective_place_ops *place;
	void *place_arg;
	peers_serve_fn *other;
	void *other_arg;

	pthread_mutex_t lock;              /* protects all members below */
	struct collective_record *records; /* only in the primary */
	uint64_t last_epoch;
};

static inline bool collective_is_primary(const struct collective *j)
{
	return j->peers->rank == j->primary;
}

struct collective_opts {
	struct peers *peers;   /* borrowed */
	struct io_dir *source; /* borrowed */
	int primary;           /* -1: the first active rank */
	const char *active;    /* "0-3:6"; NULL: all */
	/* NULL: drafts are directories in source, which all ranks share */
	const struct collective_place_ops *place;
	void *place_arg;
};
/*
 * Join the job, and begin to serve requests; requests of other kinds are passed to `other`, unless
 * arg is NULL. -EINVAL: active is not a list of ranks, or does not contain the primary.
 */
int collective_new(const struct collective_opts *opts, peers_serve_fn *other, void *arg,
		   struct collective **ret);
/* Stops serving. Accepts NULL. */
void collective_free(struct collective *j);
DEFINE_AUTO(collective, struct collective, collective_free);

/*
 * Parse a list of ranks, "0-3:6", of a job with `size` ranks, into active[] (NULL: only check it).
 * Returns 1 when `rank` is in the list, else 0 (-1: no rank is asked for); -EINVAL.
 */
int collective_parse_active(const char *text, int size, bool *active, int rank);
/*
 * The mount of this rank is being ended: all waiting for other ranks stops, now and later, with
 * -ECANCELED. Accepts NULL.
 */
void collective_interrupt(struct collective *j);

/* The membership of one rank in a shared draft. */
struct collective_member {
	uint64_t epoch;   /* identifies the draft during the life of the job */
	unsigned attempt; /* the last attempt that the rank took part in, or knows the result of */
	bool notified;    /* its last call returned the result of an attempt that it had missed */
	bool undecided;   /* and that was one of collective_decide() with `undecided` */
};

/*
 * Join the draft of that name, which the first rank begins; *ret_init_ns is the time when it did.
 * Appends to ret_where the name of its directory on the disk, or, for a draft that has a place,
 * what its claim() appended; each rank has a directory of its own then. -EBUSY: a mount of another
 * job holds it; -EROFS: this rank is not active; -ETIMEDOUT: the primary does not answer.
 */
int collective_join(struct collective *j, const char *name, const char *final, unsigned mode,
		    struct collective_member *ret, int64_t *ret_init_ns, struct buf *ret_where);
/* Primary: the place of a draft that this rank has joined; borrowed until the rank leaves it. */
void *collective_place(struct collective *j, const struct collective_member *m);
/*
 * Leave the draft. It is removed from the disk when all ranks have left, the last of them with
 * `aborted`. A draft that has a place is removed in either case.
 */
void collective_leave(struct collective *j, const struct collective_member *m, bool aborted);

/* ---- a commit ---- */

/*
 * Tell the primary that this rank does not wait for its last attempt any more, so that the next one
 * of all ranks is a later one. Ranks that share a directory see that in its name
 * (draft_dir_fence()).
 */
void collective_give_up(struct collective *j, const struct collective_member *m);

/*
 * Each rank calls this first: it sets m->attempt to the attempt that this call takes part in.
 * named: the attempt that the draft's current name is for. Returns 1 to take part, else the result
 * that was decided without this rank. -ETIMEDOUT with m->notified unset: the primary did not
 * answer.
 */
int collective_begin(struct collective *j, struct collective_member *m, unsigned named,
		     int64_t deadline);
/*
 * The agreement for this attempt, in which the active ranks vote and the primary answers: with 1 to
 * go on, 0 for committed, or the common error.
 */
struct agreement collective_attempt(const struct collective *j, const struct collective_member *m,
				    int64_t deadline);
/*
 * Primary: record the result, with this thread's note, and send it to all. undecided: r is an
 * error, and the step may be there nevertheless: the others get COLLECTIVE_UNDECIDED, with bytes
 * for collective_undecided().
 */
void collective_decide(struct collective *j, const struct collective_member *m, int r,
		       bool undecided);
#define COLLECTIVE_UNDECIDED 2 /* code of an answer */
/* The error that such an answer has, with its note. */
int collective_undecided(struct span bytes);

#endif
