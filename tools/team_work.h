/*
 * team_work.h - the ranks of a command that make one result together.
 *
 * Everything that one rank does and the others rely on ends with team_meet(): all ranks call it, in the
 * same order, whatever became of their part; the worst result of all is that of each of them. A rank that
 * fails says so at once, and the others stop at their next interrupt_check().
 *
 * With team NULL there is one process: a meeting returns what it was given.
 */
#ifndef PYTREEFS_TEAM_WORK_H
#define PYTREEFS_TEAM_WORK_H

#include "tools/lanes.h"
#include "tools/progress.h"
#include "tools/team.h"

/*
 * Before the work: rank 0's bar shows what all have done, the others have none. Until team_work_end(),
 * which the caller's own end comes after.
 */
void team_work_begin(struct team *t, struct progress *progress);
void team_work_end(struct team *t);

/*
 * The worst result of all ranks, with its note. -ETIMEDOUT: one gives no sign of life any more; -EIO: one has
 * come to its end. Whoever returns from it with a failure knows that no other rank works any more.
 */
int team_meet(struct team *t, int r);
/* The same, and rank 0 gets what each rank has to say: ret[rank], as many as there are ranks, to be released. */
int team_gather(struct team *t, int r, struct span text, struct buf *ret);
/* What rank 0 has to say, or why it failed, to all; the others' r and text do not count. */
int team_follow(struct team *t, int r, struct buf *text);

/*
 * Who does which of n jobs, of that many bytes each: alike on all ranks, and about as much for each of
 * them. owner[i] is set where it is negative.
 */
int team_split(const struct team *t, size_t n, const uint64_t *bytes, int *owner);
/* lanes_run() over the jobs that this rank owns. */
int team_lanes(const struct team *t, unsigned threads, size_t n, const int *owner, lane_fn *fn, void *arg);

#endif
