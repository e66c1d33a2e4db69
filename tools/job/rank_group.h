/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rank_group.h - the ranks of an MPI job that run one command: they share its leaves.
 *
 * Every rank lists the same leaves and works on its share of them. It sends its findings to rank 0,
 * which reports them in the order of the tree.
 */
#ifndef PYTREEFS_RANK_GROUP_H
#define PYTREEFS_RANK_GROUP_H

#include "core/job/peers.h"

struct rank_group {
	struct peers *peers; /* owned */
	uint64_t next;       /* number of the next leaf, over all walks */
	struct group_rank {
		/* on rank 0: it sends nothing any more; its status, negative: an error that was
		 * reported */
		bool ended;
		int status;
		bool left; /* it takes part in no collective call any more */
	} * rank;
	int error_status;        /* exit status for an error of the command (cmd_error_status()) */
	struct group_work *work; /* set while they make one result (group_work.h) */
	bool agreed;             /* all ranks have the same failure; rank 0 reports it */
};
/* id of a PEERS_TROUBLE message: the rank has ended without the others */
#define GROUP_LEFT UINT64_MAX

/* Takes peers, even on failure. error_status is EXIT_FOUND at first. */
int group_new(struct peers *peers, struct rank_group **ret);
/* Whether this is rank 0, which prints for all. True for NULL (a single process). */
bool group_is_lead(const struct rank_group *t);
/* Returns the rank that works on a leaf. */
int group_owner(const struct rank_group *t, uint64_t number);

/* Tell all other ranks that this one has failed, or, with id GROUP_LEFT, ended without them. */
void group_tell_trouble(struct rank_group *t, uint64_t id, int r);

/* Send this rank's findings in one of its leaves to rank 0, in the order of leaves. */
int group_send(struct rank_group *t, const char *leaf, struct span body);
/*
 * Receive the findings of another rank on rank 0. -EIO: that rank has ended, or has a different
 * tree; -ETIMEDOUT: it does not answer.
 */
int group_receive(struct rank_group *t, int rank, const char *leaf, struct buf *ret);

/*
 * End the group. status is this rank's exit status, or a negative errno with its note. Returns the
 * worst status of all ranks on each rank; rank 0 gets its own errno back, and reports those of the
 * others. Frees t. If t is NULL, returns status.
 */
int group_end(struct rank_group *t, int status);

#endif
