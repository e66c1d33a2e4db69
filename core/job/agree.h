/* SPDX-License-Identifier: Apache-2.0 */
/*
 * agree.h - the ranks agree on one decision.
 *
 *      the other ranks                 the root, which is one of the ranks
 *      agree_vote()     ---------->    agree_collect()
 *      agree_await()    <----------    agree_answer()
 *
 * Each rank votes with its own result and, unless that is an error, with bytes for the root. The
 * root gets the worst result of all ranks, and answers each rank with that or with another
 * decision. agree() does all of this for agreements whose decision is the worst result: a
 * reduction, or a gathering of bytes. An answer without votes is a broadcast.
 *
 * The worst result is the error of the root, else that of the lowest rank with an error. -ECANCELED
 * counts only if there is no other error: such a rank stopped because of another one, or is being
 * ended. If some ranks did not vote by the deadline, the result is always -ETIMEDOUT, with a note
 * that names them.
 *
 * Any thread may call all functions.
 */
#ifndef PYTREEFS_AGREE_H
#define PYTREEFS_AGREE_H

#include "core/job/peers.h"

struct agreement {
	struct peers *peers;
	int root;
	const bool *active; /* the ranks that take part, by rank; NULL: all */
	uint64_t id;        /* below 2^62; the same on all ranks, and unique among agreements */
	/*
	 * Several rounds of votes may lead to one decision, which the root may make in any of them:
	 * 0 to 3.
	 */
	unsigned round;
	int64_t deadline;   /* clock_ns() at which waiting for votes and for the answer ends */
	const char *within; /* the option that determines the deadline, for messages; or NULL */
	/*
	 * Waits for a message, instead of waiting until the deadline; or NULL. An error that it
	 * returns counts as the result of that rank.
	 */
	int (*wait)(void *arg, enum peers_kind kind, uint64_t id, int from, struct peers_msg **ret);
	void *arg;
};

/*
 * Send this rank's vote to the root: r with this thread's note, or bytes. If a rank votes more than
 * once in a round, the newest vote counts. The root does not call it.
 */
int agree_vote(const struct agreement *a, int r, struct span bytes);
/*
 * Wait for the root's answer. Returns its code; if that is not an error, ret (unless NULL) gets the
 * bytes. ret_answered (unless NULL) is false when no answer arrived: -ETIMEDOUT, -ECANCELED.
 */
int agree_await(const struct agreement *a, struct buf *ret, bool *ret_answered);

/*
 * Root: wait for all votes. Returns the worst result of its own and the votes of all others. ret
 * (unless NULL) has an element for each rank, and gets the bytes of each that voted without an
 * error.
 */
int agree_collect(const struct agreement *a, int mine, struct buf *ret);
/*
 * Root: answer one rank or, with rank -1, all others: with an error and this thread's note, which
 * is kept, or with a code and bytes.
 */
int agree_answer(const struct agreement *a, int rank, int code, struct span bytes);

/*
 * Vote and get the worst result, with its note, on each rank. bytes are sent to the root, and only
 * the root sets ret.
 */
int agree(const struct agreement *a, int r, struct span bytes, struct buf *ret, bool *ret_answered);

/* Root: drop votes that arrived too late to be collected, for agreements from first to last. */
void agree_forget(struct peers *p, uint64_t first, uint64_t last);

#endif
