/* SPDX-License-Identifier: Apache-2.0 */
/*
 * access.h - the owner, group and mode that the mount shows for files in SOURCE.
 *
 * One file of a mount is made of several files on the disk, whose modes may differ. The mode that
 * is shown gives access only to users who may read all of these; where one owner and one group
 * cannot express that, it gives access to fewer.
 *
 * Modes are interpreted as the kernel does for this process: an owner or group that its user
 * namespace does not map is shown as the process's own, with the permissions of "others".
 */
#ifndef PYTREEFS_ACCESS_H
#define PYTREEFS_ACCESS_H

#include "core/io/io.h"

struct access {
	uid_t uid;
	gid_t gid;
	mode_t mode; /* 0777 */
};

/* The access of one file or directory, with its ACL: io_stat_acl(). */
int access_of(struct io_dir *dir, const char *rel, struct access *ret);
/* The same for an open directory. */
int access_of_dir(struct io_dir *dir, struct access *ret);
/*
 * Reduce the mode to reading: 04 for each class that may read a file, or 05 for each that may list
 * and enter a directory; 0 for the other classes.
 */
void access_readers(struct access *a, bool is_dir);
/*
 * Reduce a to the users whom both a and b let in, or to fewer of these. Both are results of
 * access_readers().
 */
void access_both(struct access *a, const struct access *b);
/*
 * The users who may read rel and, if it is a directory, everything in it. The owner and group are
 * those of rel; see access_below() for the files that count.
 */
int access_of_all(struct io_dir *dir, const char *rel, struct access *ret);
/*
 * Reduce a to the users who may also read rel and, if it is a directory, its files; with `deep`
 * also everything in its subdirectories. Files that were removed meanwhile, temporary names, and
 * names that begin with a dot, except zarr's, do not count.
 */
int access_below(struct io_dir *dir, const char *rel, bool deep, struct access *a);
/* The same for every directory above rel in its path, without rel itself. */
int access_on_the_way(struct io_dir *dir, const char *rel, struct access *a);
/* Reduce a to the user of this process. */
void access_own(struct access *a);

/* How long a result stays valid, in nanoseconds, if determining it took took_ns. */
#define ACCESS_FRESH_NS (500 * 1000000LL)
static inline int64_t access_fresh_ns(int64_t took_ns)
{
	return MAX(ACCESS_FRESH_NS, 100 * took_ns);
}

/* An access that was determined, when (0: not yet), and how long that took, in nanoseconds. */
struct timed_access {
	struct access access;
	int64_t at, took;
};
static inline bool timed_access_is_fresh(const struct timed_access *t, int64_t now)
{
	return t->at && now - t->at <= access_fresh_ns(t->took);
}

/* ---- the user for whom a thread works ---- */

struct user {
	uid_t uid;
	gid_t gid;
	mode_t umask;
	/*
	 * Stores at most n supplementary groups in ret and returns how many there are, or a
	 * negative error. Called when they are needed.
	 */
	int (*groups)(void *arg, int n, gid_t *ret);
	void *arg;
};

/*
 * Set the user for whom this thread works; NULL is the process itself. Borrowed until the next
 * call.
 */
void user_set(const struct user *u);
const struct user *user_now(void);
/* Whether the thread works for a user other than root and the user of the process. */
bool user_is_other(void);
/*
 * Whether that user may do all of `want` (04 read, 02 write, 01 enter); true if user_is_other() is
 * false.
 */
bool user_may(const struct access *a, unsigned want);
/* Check the same for rel; -EACCES "'<rel>' is not yours to <what>". */
int user_check(struct io_dir *dir, const char *rel, unsigned want, const char *what);

#endif
