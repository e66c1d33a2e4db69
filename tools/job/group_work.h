/* SPDX-License-Identifier: Apache-2.0 */
/*
 * group_work.h - the ranks of a command that make one result together.
 *
 * Each step that other ranks rely on ends with group_reduce(). All ranks call it, in the same
 * order, whether their part succeeded or not, and each gets the worst result of all. A rank that
 * fails notifies the others at once, and they stop at their next interrupt_check().
 *
 * With group NULL there is one process, and group_reduce() returns its argument.
 */
#ifndef PYTREEFS_GROUP_WORK_H
#define PYTREEFS_GROUP_WORK_H

#include "tools/cli/parallel_for.h"
#include "tools/cli/progress.h"
#include "tools/job/rank_group.h"

/*
 * Call before the work: the progress bar of rank 0 shows the sum of all ranks, the others have
 * none. Call group_work_end() before group_end().
 */
void group_work_begin(struct rank_group *t, struct progress *progress);
void group_work_end(struct rank_group *t);

/*
 * The worst result of all ranks, with its note. -ETIMEDOUT: a rank does not answer any more; -EIO:
 * a rank has ended. After a failure no other rank works any more.
 */
int group_reduce(struct rank_group *t, int r);
/* The same, and rank 0 gets the text of each rank: ret[rank], one for each rank, to be released. */
int group_gather(struct rank_group *t, int r, struct span text, struct buf *ret);
/* Send the text of rank 0, or its failure, to all ranks; r and text of the others are ignored. */
int group_broadcast(struct rank_group *t, int r, struct buf *text);

/*
 * Assign n tasks of that many bytes each to ranks: the same assignment on all ranks, and about the
 * same number of bytes for each. owner[i] is set where it is negative.
 */
int group_split(const struct rank_group *t, size_t n, const uint64_t *bytes, int *owner);
/* parallel_for() over the tasks that this rank owns. */
int group_parallel_for(const struct rank_group *t, unsigned threads, size_t n, const int *owner,
		       worker_fn *fn, void *arg);

#endif
