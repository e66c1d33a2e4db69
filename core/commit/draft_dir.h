/* SPDX-License-Identifier: Apache-2.0 */
/*
 * draft_dir.h - a draft on the disk: a temporary directory with a name of ours (step_name.h), and
 * the lock that distinguishes a live draft from an abandoned one.
 *
 * The file `.pytreefs-draft` in a directory marks it as ours. The writer of a draft holds an
 * advisory lock on that file as long as it lives, so if the lock is free, the writer is gone. All
 * ranks of a job hold shared locks on the draft that they share, which is abandoned when all of
 * them are gone.
 *
 * One rank commits a shared draft while the others wait. A rank that gives up waiting renames the
 * directory, from the name for this attempt to the name for the next: from then on the rename of
 * this attempt fails, however late it comes (draft_dir_fence()).
 */
#ifndef PYTREEFS_DRAFT_DIR_H
#define PYTREEFS_DRAFT_DIR_H

#include "core/io/io.h"

#define DRAFT_LOCK_FILE ".pytreefs-draft"
#define DRAFT_BEGUN "-begun-"           /* in the name of a draft that has no lock file yet */
#define DRAFT_BEGUN_NS (60 * SECOND_NS) /* a living writer has locked its draft long before */
/* Marks of draft_dir_name_now(), which are followed by the time. */
#define DRAFT_REMOVED "-removed-" /* a directory that is being removed */
#define DRAFT_DELETED "-deleted-" /* a step that is being deleted */
#define DRAFT_OLD "-old-"         /* a checkpoint that is being replaced */

struct draft_dir {
	struct io_dir *parent; /* SOURCE; borrowed */
	char *name;            /* of the directory on the disk */
	char *final;           /* the name of the step that it becomes */
	struct io_dir *dir;
	struct io_file *lock;
	int64_t init_ns; /* when it was begun, in real time */
	/*
	 * the engine's count of failed syncs of directories when all names in the draft were last
	 * written
	 */
	uint64_t failed_dir_syncs;
	unsigned mode;
	char *base_name; /* of the first attempt; NULL: no other ranks of a job share the draft */
	unsigned named;  /* the attempt of the job that its name is for, from 1 */
};

/*
 * Make the directory `name` (step_name_on_disk(), or final itself) in parent and lock it. An
 * abandoned draft of that name is removed first; -EBUSY when a live writer holds it, or it belongs
 * to another program; -EEXIST when it is a step that was committed in place. mode: of directories,
 * before the umask. The directory and everything made in it will belong to user_now(); -EPERM when
 * a draft of another user would have to be removed. shared: ranks share it; the primary begins it,
 * the others join it.
 */
int draft_dir_begin(struct io_dir *parent, const char *name, const char *final, unsigned mode,
		    bool shared, struct draft_dir **ret);
/* init_ns is the primary's. */
int draft_dir_join(struct io_dir *parent, const char *name, const char *final, unsigned mode,
		   int64_t init_ns, struct draft_dir **ret);
/* Whether that name in SOURCE is the draft's directory: 1 or 0. */
int draft_dir_is_it(const struct draft_dir *d, const char *name);
/*
 * draft_dir_lost() when the draft's name is no longer its directory, or the lock file in it not its
 * own. A lock may not reach writers on other machines, so this is asked before and after all that
 * depends on it.
 */
int draft_dir_check(const struct draft_dir *d);
/*
 * Say who has the place of a draft that is not there any more: -EEXIST when the step was committed
 * by another writer, -EBUSY when one is writing it, -ETIMEDOUT when a rank of this job gave up the
 * attempt, else -EIO.
 */
int draft_dir_lost(const struct draft_dir *d);
/*
 * For a shared draft: determine the current name of its directory after attempts that were given
 * up. Returns 1 when it has become a step, or 0 with d->name and d->named set. Attempts count from
 * 1; names of later attempts than `attempt` and some more are not tried.
 */
int draft_dir_find(struct draft_dir *d, unsigned attempt);
/*
 * Give up waiting for an attempt. Returns 1 when it is too late, since the draft is a step, or 0
 * when this attempt cannot succeed any more.
 */
int draft_dir_fence(struct draft_dir *d, unsigned attempt);

/* Remove the lock file, since the draft has become a step. */
int draft_dir_unmark(struct draft_dir *d);
/*
 * Remove the directory with its contents, in one step for other processes. d remains to be freed.
 */
int draft_dir_remove(struct draft_dir *d);
/*
 * Make an unused name for a directory that is renamed, of its name (a draft's or a step's), the
 * mark that gc recognizes, and the time in hexadecimal (decimal in DRAFT_DELETED names of older
 * versions). *ret is allocated.
 */
int draft_dir_name_now(const char *name, const char *mark, char **ret);
/* Rename what is called `from` in parent to such a name, made of `name`. */
int draft_dir_move_away(struct io_dir *parent, const char *from, const char *name, const char *mark,
			char **ret);
/* Releases the lock; the directory remains. Accepts NULL. */
void draft_dir_free(struct draft_dir *d);
DEFINE_AUTO(draft_dir, struct draft_dir, draft_dir_free);

/*
 * Remove an abandoned draft while holding its lock, so that no draft of that name is begun
 * meanwhile. -EBUSY: a live writer holds it. 0 also when it does not exist.
 */
int draft_dir_remove_abandoned(struct io_dir *parent, const char *name);

enum draft_state {
	DRAFT_FOREIGN, /* it has no lock file, so it belongs to another program */
	DRAFT_LIVE,    /* a process holds the lock */
	DRAFT_ABANDONED,
};
/* Get the state of a temporary directory in parent. */
int draft_dir_state(struct io_dir *parent, const char *name, enum draft_state *ret);

#endif
