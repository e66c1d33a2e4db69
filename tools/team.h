/*
 * team.h - the ranks of an MPI job that go through leaves together: a command under mpirun.
 *
 * Every rank lists the same leaves and works on its share of them. What is to be said of one goes to
 * rank 0, which says it in the order of the tree.
 */
#ifndef PYTREEFS_TEAM_H
#define PYTREEFS_TEAM_H

#include "core/step/peers.h"

struct team {
	struct peers *peers;		/* owned */
	uint64_t next;			/* number of the next leaf, over all walks */
	bool *ended;			/* rank 0: nothing comes from that rank any more */
	int *status;			/* rank 0: of ranks that have ended; negative: an error, which was said */
	struct team_work *work;		/* while they make one result (team_work.h) */
	bool *left;			/* that rank comes to no meeting any more */
	bool agreed;			/* the failure is that of all: rank 0 says it */
};
#define TEAM_LEFT UINT64_MAX		/* id of a PEERS_TROUBLE: the rank has ended without the others */

/* peers is taken, also on failure. */
int team_new(struct peers *peers, struct team **ret);
/* Whether this rank speaks for all. NULL: it is alone. */
bool team_is_lead(const struct team *t);
/* Which rank works on a leaf. */
int team_owner(const struct team *t, uint64_t number);

/* What this rank has to say of a leaf of its own, in their order; and what rank 0 hears of it. */
int team_tell(struct team *t, const char *leaf, struct span body);
/* -EIO: that rank came to its end before, or sees another tree. -ETIMEDOUT: it does not answer. */
int team_hear(struct team *t, int rank, const char *leaf, struct buf *ret);

/*
 * The end of all of them: status is this rank's exit status, or a negative errno with its note. Returns
 * the worst status of all on each of them; rank 0 gets its own errno back, and says those of others.
 * Frees t; with NULL the status is returned as it is.
 */
int team_end(struct team *t, int status);

#endif
