/* SPDX-License-Identifier: Apache-2.0 */
/*
 * draft_dir.h - a draft on the disk: a temporary directory with a name of ours (step_name.h), and
 * the lock that tells a live one from an abandoned one.
 *
 * The file `.pytreefs-draft` in it says that it is ours; whoever writes the draft
 * holds an advisory lock on that file for as long as it lives, so a lock that can
 * be had means that the writer is gone. A draft that the ranks of a job share is
 * locked by all of them, each for sharing: it is abandoned when all are gone.
 *
 * A shared draft is committed by one rank and watched by the others. Who gives up
 * waiting moves the directory aside, from its name of one attempt to that of the
 * next: from then on the rename of that attempt cannot succeed, however late it
 * comes (draft_dir_fence()).
 */
#ifndef PYTREEFS_DRAFT_DIR_H
#define PYTREEFS_DRAFT_DIR_H

#include "core/io/io.h"

#define DRAFT_LOCK_FILE ".pytreefs-draft"
#define DRAFT_BEGUN "-begun-"     /* in the name of a draft whose lock is not there yet */
#define DRAFT_REMOVED "-removed-" /* in the name of one that is being removed */

struct draft_dir {
	struct io_dir *parent; /* SOURCE; borrowed */
	char *name;            /* of the directory on the disk */
	char *final;           /* what it will be called */
	struct io_dir *dir;
	struct io_file *lock;
	int64_t init_ns;           /* when it was begun */
	uint64_t failed_dir_syncs; /* of the engine, when all its names were written */
	unsigned mode;
	bool shared;     /* with the ranks of this job */
	char *base_name; /* shared: the name of the first attempt */
	unsigned named;  /* shared: the attempt whose name it has, from 1 */
};

/*
 * Make the directory `name` (step_name_on_disk(), or final itself) beneath parent and lock it. One
 * that is there and abandoned is removed first; -EBUSY when a live writer holds it, -EEXIST when it
 * is another program's. mode: of directories, under the umask. It becomes that of user_now(), and
 * so does all that is made in it; -EPERM when one of another user would have to be removed.
 */
int draft_dir_begin(struct io_dir *parent, const char *name, const char *final, unsigned mode,
		    struct draft_dir **ret);
/*
 * The same for a draft that ranks share: the primary begins it, the others join what it has begun.
 * init_ns: as the primary says.
 */
int draft_dir_begin_shared(struct io_dir *parent, const char *name, const char *final,
			   unsigned mode, struct draft_dir **ret);
int draft_dir_join(struct io_dir *parent, const char *name, const char *final, unsigned mode,
		   int64_t init_ns, struct draft_dir **ret);
/*
 * -EIO when what has the draft's name is not its directory: another program removed it, and perhaps
 * made its own.
 */
int draft_dir_check(const struct draft_dir *d);
/*
 * Of a shared draft: find out what its directory is called now, after attempts that somebody gave
 * up. 1: it has become a step; 0: d->name and d->named are set. attempt counts from 1 and bounds
 * the names.
 */
int draft_dir_find(struct draft_dir *d, unsigned attempt);
/*
 * Give up waiting for an attempt. 1: it is too late, the draft is a step; 0: that attempt cannot
 * succeed any more.
 */
int draft_dir_fence(struct draft_dir *d, unsigned attempt);

/* Make the lock file, and hold the lock. */
int draft_dir_mark(struct draft_dir *d);
/* Take the lock file away: it is a step now. */
int draft_dir_unmark(struct draft_dir *d);
/* Remove it with all that is in it, at once as others see it. d stays to be freed. */
int draft_dir_remove(struct draft_dir *d);
/* Lets go of the lock; the directory stays. Accepts NULL. */
void draft_dir_free(struct draft_dir *d);
DEFINE_AUTO(draft_dir, struct draft_dir, draft_dir_free);

/*
 * Remove an abandoned draft, under its lock, so that nobody begins one of that name meanwhile.
 * -EBUSY: a live writer holds it. 0 also when it is gone.
 */
int draft_dir_remove_abandoned(struct io_dir *parent, const char *name);

enum draft_state {
	DRAFT_FOREIGN, /* no lock file: another program's */
	DRAFT_LIVE,    /* somebody holds the lock */
	DRAFT_ABANDONED,
};
/* Of a temporary directory beneath parent. */
int draft_dir_state(struct io_dir *parent, const char *name, enum draft_state *ret);

#endif
