/* SPDX-License-Identifier: Apache-2.0 */
/*
 * access.h - who may read what lies in SOURCE, as the mount shows it: owner, group and mode.
 *
 * One file of a mount is made of several on the disk, which may differ in whom they let in. What is
 * shown then lets in nobody whom one of them keeps out; where that cannot be said with one owner
 * and one group, it lets in fewer.
 *
 * Modes are compared as the kernel of this process sees them: an owner or group that its user
 * namespace does not know is shown as the process's own, with what others may do.
 */
#ifndef PYTREEFS_ACCESS_H
#define PYTREEFS_ACCESS_H

#include "core/io/io.h"

struct access {
	uid_t uid;
	gid_t gid;
	mode_t mode; /* 0777 */
};

/* Of one file or directory, as it is: io_stat() and io_acl(). */
int access_of(struct io_dir *dir, const char *rel, struct access *ret);
/* The same for a directory that is open. */
int access_of_dir(struct io_dir *dir, struct access *ret);
/*
 * Only reading is left: 05 for each class that may read a file, or list and enter a directory, else
 * 0.
 */
void access_readers(struct access *a, bool is_dir);
/* Of access_readers(): those whom both let in, or fewer of them. */
void access_both(struct access *a, const struct access *b);
/* Those who may read rel and, of a directory, all that is in it: its owner and group,
 * access_below(). */
int access_of_all(struct io_dir *dir, const char *rel, struct access *ret);
/*
 * a becomes that of those who may also read rel and, of a directory, its files; of directories in
 * it all that is there when `deep`. What is gone meanwhile, names that begin with a dot but for
 * zarr's, and temporary ones do not count.
 */
int access_below(struct io_dir *dir, const char *rel, bool deep, struct access *a);
/* The same for every directory on the way to rel, and not rel itself. */
int access_on_the_way(struct io_dir *dir, const char *rel, struct access *a);

/* How long what was found counts, when finding it took that long: nanoseconds. */
#define ACCESS_FRESH_NS (500 * 1000000LL)
static inline int64_t access_fresh_ns(int64_t took_ns)
{
	return MAX(ACCESS_FRESH_NS, 100 * took_ns);
}

/* ---- on whose behalf a thread works ---- */

struct user {
	uid_t uid;
	gid_t gid;
	mode_t umask;
	/* Supplementary groups, asked for when they are needed: how many, or negative. */
	int (*groups)(void *arg, int n, gid_t *ret);
	void *arg;
};

/* NULL: the process itself. Borrowed, for this thread. */
void user_set(const struct user *u);
const struct user *user_now(void);
/* Whether there is a user who is neither root nor the process itself. */
bool user_is_other(void);
/* Whether that user may do all of `want` (04 read, 02 write, 01 enter); true when there is none. */
bool user_may(const struct access *a, unsigned want);

#endif
