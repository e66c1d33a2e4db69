/* SPDX-License-Identifier: Apache-2.0 */
/*
 * draft_dir.c - begin, lock, mark and remove the directory of a draft.
 */
#include "core/commit/draft_dir.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <time.h>

#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/log.h"
#include "core/step/access.h"
#include "core/step/step_name.h"

#define FIND_TRIES 50      /* searches for a shared draft that is being renamed, ... */
#define FIND_NS 20000000   /* ... and the time between them */
#define ATTEMPTS_AHEAD 256 /* by how many attempts other ranks may be ahead of this one */

/* Open the lock file of a draft: returns 1, or 0 when there is none. */
static int open_lock(struct io_dir *parent, const char *name, struct io_file **ret)
{
	auto_free char *path = NULL;
	int r;

	path = str_fmt("%s/%s", name, DRAFT_LOCK_FILE);
	if (!path)
		return fail(-ENOMEM, "cannot look at draft '%s'", name);
	r = io_file_open(parent, path, O_RDWR, 0, ret);
	if (r == -ENOENT) {
		err_clear();
		return 0;
	}
	return r < 0 ? r : 1;
}

int draft_dir_state(struct io_dir *parent, const char *name, enum draft_state *ret)
{
	auto_of(io_file) struct io_file *f = NULL;
	int r = open_lock(parent, name, &f);

	if (r < 0)
		return r;
	if (r == 0)
		*ret = DRAFT_FOREIGN;
	else
		*ret = flock(f->fd, LOCK_EX | LOCK_NB) == 0 ? DRAFT_ABANDONED : DRAFT_LIVE;
	return 0;
}

int draft_dir_mark(struct draft_dir *d)
{
	char text[128];
	int n;
	int r = io_file_open(d->dir, DRAFT_LOCK_FILE, O_RDWR | O_CREAT | O_EXCL, 0600, &d->lock);

	if (r < 0)
		return r;
	if (TEMP_FAILURE_RETRY(flock(d->lock->fd, (d->shared ? LOCK_SH : LOCK_EX) | LOCK_NB)) < 0)
		return err_sys("cannot lock draft", d->name);
	n = snprintf(text, sizeof(text), "{\"pid\": %ld, \"begun_ns\": %lld}\n", (long)getpid(),
		     (long long)d->init_ns);
	return io_write_exact(d->lock, text, (size_t)n, 0);
}

int draft_dir_unmark(struct draft_dir *d)
{
	int r = d->lock ? io_dirop(d->dir, IO_UNLINK, DRAFT_LOCK_FILE, NULL, 0) : 0;

	if (r < 0)
		return r;
	io_file_unref(take(d->lock));
	return 0;
}

/*
 * Lock the draft of another writer that is gone: returns 1, or 0 when there is no lock file. The
 * lock file may be of a draft that was removed between opening and locking it; then the name may
 * belong to a new, live draft.
 */
static int lock_abandoned(struct io_dir *parent, const char *name, struct io_file **ret)
{
	auto_of(io_file) struct io_file *f = NULL;
	struct stat st;
	int r = open_lock(parent, name, &f);

	if (r <= 0)
		return r;
	if (TEMP_FAILURE_RETRY(flock(f->fd, LOCK_EX | LOCK_NB)) < 0)
		return fail(-EBUSY, "draft '%s' is held by a live mount", name);
	r = io_stat(parent, f->name, &st);
	if (r < 0 || st.st_ino != f->ino || st.st_dev != f->dev)
		return fail(-EBUSY, "draft '%s' was removed, and perhaps begun again", name);
	*ret = take(f);
	return 1;
}

int draft_dir_name_now(const char *name, const char *mark, char **ret)
{
	char *made, rest[64];

	snprintf(rest, sizeof(rest), "%s%llx", mark, (unsigned long long)clock_real_ns());
	if (step_name_is_tmp(span_str(name)))
		made = str_fmt("%s%s", name, rest);
	else
		made = step_name_temporary(name, rest);
	if (!made)
		return fail(-ENOMEM, "cannot rename '%s'", name);
	*ret = made;
	return 0;
}

int draft_dir_remove_abandoned(struct io_dir *parent, const char *name)
{
	auto_of(io_file) struct io_file *lock = NULL;
	auto_free char *gone = NULL;
	int r = lock_abandoned(parent, name, &lock);

	if (r <= 0)
		return r;
	r = draft_dir_name_now(name, DRAFT_REMOVED, &gone);
	/* After a crash the name shows that the draft was being removed. */
	if (r >= 0)
		r = io_dirop(parent, IO_RENAME_NEW, name, gone, 0);
	return r < 0 ? r : io_remove_tree(parent, gone);
}

/* Remove an abandoned draft of ours with that name. */
static int make_room(struct io_dir *parent, const char *name)
{
	enum draft_state state;
	struct stat st;
	int r = io_stat(parent, name, &st);

	if (r == -ENOENT) {
		err_clear();
		return 0;
	}
	if (r >= 0)
		r = draft_dir_state(parent, name, &state);
	if (r < 0)
		return r;
	if (state == DRAFT_LIVE)
		return fail(-EBUSY, "draft '%s' is held by a live mount", name);
	if (user_is_other() && st.st_uid != user_now()->uid)
		return fail(-EPERM, "'%s' was left there by user %u, and is not yours to remove",
			    name, st.st_uid);
	/*
	 * A draft that is written in place has its final name from the start, so a crash may leave
	 * its directory empty, without a lock file.
	 */
	if (state == DRAFT_FOREIGN && !step_name_is_tmp(span_str(name)) &&
	    io_dirop(parent, IO_RMDIR, name, NULL, 0) >= 0)
		return 0;
	if (state == DRAFT_FOREIGN)
		return fail(-EEXIST, "'%s' is a temporary directory of another program", name);
	return draft_dir_remove_abandoned(parent, name);
}

/*
 * Check the name of Orbax, or of an old release of ours, for the same draft. Two writers of one
 * step would do no harm to each other, but the later one would fail only at its commit.
 */
static int check_tmp_of_orbax(struct draft_dir *d)
{
	auto_free char *name = NULL;

	if (!step_name_is_tmp(span_str(d->name)))
		return 0;
	name = str_fmt("%s" STEP_TMP, d->final);
	return name ? make_room(d->parent, name) :
		      fail(-ENOMEM, "cannot begin draft '%s'", d->name);
}

/*
 * Change the owner of the draft to the user who begins it. Another process may have replaced the
 * directory between its creation and opening; therefore it must still be empty and ours.
 */
static int give_to_user(struct draft_dir *d)
{
	const struct user *u = user_now();
	auto_free char *self = NULL;
	struct stat st;
	int r;

	if (!user_is_other())
		return 0;
	if (geteuid() != 0)
		return fail(
			-EPERM,
			"draft '%s' would not belong to user %u: the mount does not run as root",
			d->final, u->uid);
	r = io_stat(d->dir, ".", &st);
	if (r >= 0)
		r = io_dir_is_empty(d->dir, ".");
	if (r == 0 || (r > 0 && st.st_uid != geteuid()))
		r = fail(-EBUSY, "the directory of draft '%s' was replaced while it was begun",
			 d->final);
	self = str_fmt("/proc/self/fd/%d", d->dir->fd);
	if (r >= 0 && !self)
		r = -ENOMEM;
	/* A setgid directory has inherited the group of its parent, and keeps it. */
	if (r >= 0 &&
	    TEMP_FAILURE_RETRY(chown(self, u->uid, st.st_mode & S_ISGID ? (gid_t)-1 : u->gid)) < 0)
		r = err_sys("cannot give to its user", d->name);
	if (r >= 0)
		io_dir_own(d->dir, u->uid, st.st_mode & S_ISGID ? st.st_gid : u->gid);
	return MIN(r, 0);
}

/*
 * Make the directory with its lock file under a temporary name that marks it as ours, and then
 * rename it, so that a crash never leaves a draft's name without a lock file.
 */
static int make_dir(struct draft_dir *d)
{
	bool in_place = !step_name_is_tmp(span_str(d->name));
	auto_free char *at = NULL;
	int r;

	at = str_fmt(in_place ? "%s" : "%s" DRAFT_BEGUN "%ld-%llx", d->name, (long)getpid(),
		     (unsigned long long)d->init_ns);
	if (!at)
		return fail(-ENOMEM, "cannot begin draft '%s'", d->name);
	if (user_now())
		d->mode &= ~user_now()->umask;
	r = io_dirop(d->parent, IO_MKDIR, at, NULL, d->mode);
	if (r < 0)
		return r;
	r = io_dir_sub(d->parent, at, &d->dir);
	if (r >= 0)
		r = give_to_user(d);
	if (r >= 0)
		r = draft_dir_mark(d);
	if (r >= 0)
		r = io_dirop(d->dir, IO_SYNC_DIR, ".", NULL, 0);
	if (r >= 0 && !in_place)
		r = io_dirop(d->parent, IO_RENAME_NEW, at, d->name, 0);
	if (r < 0) {
		struct err_note note;

		err_save(r, &note);
		io_remove_tree(d->parent, at);
		return err_restore(&note);
	}
	return 0;
}

static int draft_dir_new(struct io_dir *parent, const char *name, const char *final, unsigned mode,
			 bool shared, struct draft_dir **ret)
{
	auto_of(draft_dir) struct draft_dir *d = calloc(1, sizeof(*d));

	if (d) {
		d->name = strdup(name);
		d->final = strdup(final);
		d->base_name = shared ? strdup(name) : NULL;
	}
	if (!d || !d->name || !d->final || (shared && !d->base_name))
		return fail(-ENOMEM, "cannot begin draft '%s'", name);
	d->parent = parent;
	d->mode = mode;
	d->shared = shared;
	d->named = 1;
	d->init_ns = clock_real_ns();
	trace(TRACE_STEP, "begin '%s'", name);
	d->failed_dir_syncs = atomic_load(&io_engine_stats(parent->io)->failed_dir_syncs);
	*ret = take(d);
	return 0;
}

static int begin(struct io_dir *parent, const char *name, const char *final, unsigned mode,
		 bool shared, struct draft_dir **ret)
{
	auto_of(draft_dir) struct draft_dir *d = NULL;
	int r = draft_dir_new(parent, name, final, mode, shared, &d);

	if (r >= 0)
		r = make_room(parent, name);
	if (r >= 0)
		r = check_tmp_of_orbax(d);
	if (r >= 0)
		r = make_dir(d);
	if (r < 0)
		return r;
	*ret = take(d);
	return 0;
}

int draft_dir_begin(struct io_dir *parent, const char *name, const char *final, unsigned mode,
		    struct draft_dir **ret)
{
	return begin(parent, name, final, mode, false, ret);
}

/* ---- shared by the ranks of a job ---- */

int draft_dir_begin_shared(struct io_dir *parent, const char *name, const char *final,
			   unsigned mode, struct draft_dir **ret)
{
	return begin(parent, name, final, mode, true, ret);
}

/* Files that this rank makes belong to the draft's owner, and only that user may join. */
static int share_with_user(struct draft_dir *d)
{
	struct stat st;
	int r = io_stat(d->dir, ".", &st);

	if (r < 0)
		return r;
	if (user_is_other() && st.st_uid != user_now()->uid)
		return fail(-EPERM, "draft '%s' belongs to user %u", d->final, st.st_uid);
	if (geteuid() == 0 && st.st_uid != 0)
		io_dir_own(d->dir, st.st_uid, st.st_gid);
	return 0;
}

int draft_dir_join(struct io_dir *parent, const char *name, const char *final, unsigned mode,
		   int64_t init_ns, struct draft_dir **ret)
{
	auto_of(draft_dir) struct draft_dir *d = NULL;
	int r = draft_dir_new(parent, name, final, mode, true, &d);

	if (r < 0)
		return r;
	d->init_ns = init_ns;
	r = io_dir_sub(parent, name, &d->dir);
	if (r >= 0)
		r = io_file_open(d->dir, DRAFT_LOCK_FILE, O_RDWR, 0, &d->lock);
	if (r >= 0 && TEMP_FAILURE_RETRY(flock(d->lock->fd, LOCK_SH | LOCK_NB)) < 0)
		r = err_sys("cannot share draft", d->name);
	if (r >= 0)
		r = share_with_user(d);
	if (r < 0)
		return r;
	*ret = take(d);
	return 0;
}

/*
 * The name of the directory during an attempt. Names of later attempts exist only after the earlier
 * ones were given up.
 */
static int attempt_name(const struct draft_dir *d, unsigned attempt, char **ret)
{
	char *name = attempt > 1 ? str_fmt("%s-%u", d->base_name, attempt) : strdup(d->base_name);

	if (!name)
		return fail(-ENOMEM, "cannot look at draft '%s'", d->name);
	*ret = name;
	return 0;
}

/* Whether that name in the parent is the draft's directory: 1 or 0. */
static int is_it(const struct draft_dir *d, const char *name)
{
	struct stat st, own;
	int r = io_stat(d->parent, name, &st);

	if (r == -ENOENT) {
		err_clear();
		return 0;
	}
	if (r >= 0 && fstat(d->dir->fd, &own) < 0)
		r = err_sys("cannot look at draft", d->name);
	return r < 0 ? r : st.st_dev == own.st_dev && st.st_ino == own.st_ino;
}

int draft_dir_check(const struct draft_dir *d)
{
	int r = is_it(d, d->name);

	if (r != 0)
		return MIN(r, 0);
	/*
	 * Not -ESTALE, since the kernel would then repeat the rename, and report that the draft
	 * does not exist.
	 */
	return fail(
		-EIO,
		"the directory of draft '%s' was removed by another program: what was written to it is lost; "
		"remove the draft and write it again",
		d->final);
}

static int find_once(struct draft_dir *d, unsigned attempt)
{
	int r = is_it(d, d->final);

	for (unsigned i = 1; r == 0 && i <= attempt + ATTEMPTS_AHEAD; i++) {
		auto_free char *name = NULL;

		r = attempt_name(d, i, &name);
		if (r >= 0)
			r = is_it(d, name);
		if (r > 0) {
			free(d->name);
			d->name = take(name);
			d->named = i;
			return 0;
		}
	}
	if (r != 0)
		return r;
	/* It may have been renamed between the checks. */
	r = is_it(d, d->final);
	return r != 0 ? r : fail(-ESTALE, "draft '%s' is gone", d->name);
}

/* A draft that is about to replace a step has another name for a moment (replace.h). */
int draft_dir_find(struct draft_dir *d, unsigned attempt)
{
	static const struct timespec pause = { .tv_nsec = FIND_NS };
	int r = find_once(d, attempt);

	for (unsigned i = 0; i < FIND_TRIES && r == -ESTALE; i++) {
		nanosleep(&pause, NULL);
		err_clear();
		r = find_once(d, attempt);
	}
	return r;
}

int draft_dir_fence(struct draft_dir *d, unsigned attempt)
{
	for (unsigned tries = 0;; tries++) {
		auto_free char *to = NULL;
		int r = draft_dir_find(d, attempt);

		if (r != 0 || d->named > attempt)
			return r;
		r = attempt_name(d, attempt + 1, &to);
		if (r >= 0)
			r = io_dirop(d->parent, IO_RENAME_NEW, d->name, to, 0);
		if (r >= 0) {
			free(d->name);
			d->name = take(to);
			d->named = attempt + 1;
			return 0;
		}
		/* Another process was faster: the committing rank, or one that gives up. */
		if (r != -ENOENT || tries > 100)
			return r;
		err_clear();
	}
}

/* ---- ending ---- */

int draft_dir_remove(struct draft_dir *d)
{
	auto_free char *gone = NULL;
	int r = d->shared ? 1 : is_it(d, d->name);

	/* A directory of another program is never removed, whatever its name. */
	if (r == 0) {
		log_warn("the directory of draft '%s' had been removed by another program",
			 d->final);
		io_file_unref(take(d->lock));
		return 0;
	}
	if (r >= 0)
		r = draft_dir_name_now(d->name, DRAFT_REMOVED, &gone);
	/*
	 * Rename it first, so that it disappears in one step, and after a crash the name shows that
	 * it was being removed.
	 */
	if (r >= 0)
		r = io_dirop(d->parent, IO_RENAME_NEW, d->name, gone, 0);
	if (r < 0)
		return r;
	r = io_remove_tree(d->parent, gone);
	if (r < 0)
		log_warn("draft '%s' is removed, but '%s' remains for `pytreefs gc`: %s", d->name,
			 gone, err_text(r));
	io_file_unref(take(d->lock));
	return 0;
}

void draft_dir_free(struct draft_dir *d)
{
	if (!d)
		return;
	io_file_unref(d->lock);
	io_dir_close(d->dir);
	free(d->name);
	free(d->final);
	free(d->base_name);
	free(d);
}
