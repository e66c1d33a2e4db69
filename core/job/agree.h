/* SPDX-License-Identifier: Apache-2.0 */
/*
 * agree.h - ranks come to one decision.
 *
 *     the other ranks                 the root, which is one of them
 *     agree_vote()     ---------->    agree_collect()
 *     agree_await()    <----------    agree_answer()
 *
 * Each rank votes with a result of its own and, unless that is an error, with bytes for the root.
 * The root has the worst result of all, and answers each rank with that or with another decision.
 * agree() is the whole of it where the worst result is the decision: a reduction, or a gathering
 * of bytes. An answer without votes is a broadcast.
 *
 * The worst result is the error of the root, else that of the lowest rank that has one. -ECANCELED
 * is after all others: such a rank stopped because of another one, or is being ended. Ranks that
 * did not vote by the deadline are before all: -ETIMEDOUT, which names them.
 *
 * All functions may be called by any thread.
 */
#ifndef PYTREEFS_AGREE_H
#define PYTREEFS_AGREE_H

#include "core/job/peers.h"

struct agreement {
	struct peers *peers;
	int root;
	const bool *active; /* by rank: who takes part; NULL: all */
	uint64_t id;        /* below 2^62, the same on all ranks and of no other agreement */
	/* Several rounds of votes may lead to one decision, which the root may make in any of
	 * them: 0 to 3. */
	unsigned round;
	int64_t deadline;   /* of clock_ns(), for votes and for the answer */
	const char *within; /* the option that the deadline follows from, for messages; or NULL */
	/* Wait for a message in another way than until the deadline; or NULL. What it returns is
	 * then the result of that rank. */
	int (*wait)(void *arg, enum peers_kind kind, uint64_t id, int from, struct peers_msg **ret);
	void *arg;
};

/* This rank's vote: r with this thread's note, or bytes. The newest one of a round counts. Not for
 * the root. */
int agree_vote(const struct agreement *a, int r, struct span bytes);
/*
 * The root's answer: its code, with the bytes in ret (NULL: not wanted) unless it is an error.
 * ret_answered (may be NULL) is false when none came: -ETIMEDOUT, -ECANCELED.
 */
int agree_await(const struct agreement *a, struct buf *ret, bool *ret_answered);

/*
 * The root: the worst result of its own and the votes of all others. ret (NULL: not wanted) has a
 * place for each rank and gets the bytes of each that voted without an error.
 */
int agree_collect(const struct agreement *a, int mine, struct buf *ret);
/* The root: answer one rank, or (-1) all others: an error with this thread's note, which stays, or
 * a code with bytes. */
int agree_answer(const struct agreement *a, int rank, int code, struct span bytes);

/* All of it: the worst result, with its note, on each rank. bytes are for the root, ret is its. */
int agree(const struct agreement *a, int r, struct span bytes, struct buf *ret, bool *ret_answered);

/* The root: votes that came too late to be collected, of agreements from first to last, are
 * dropped. */
void agree_forget(struct peers *p, uint64_t first, uint64_t last);

#endif
