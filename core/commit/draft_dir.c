/* SPDX-License-Identifier: Apache-2.0 */
/* draft_dir.c - begin, lock, mark and remove the directory of a draft. */
#include "core/commit/draft_dir_impl.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <time.h>

#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/log.h"
#include "core/io/bucket_mount.h"
#include "core/step/access.h"
#include "core/step/step.h"
#include "core/step/step_name.h"

#define BEGIN_TRIES 100 /* while other processes remove the directory that is begun */

int draft_dir_is_it(const struct draft_dir *d, const char *name)
{
	struct stat st, own;
	int r = io_stat(d->parent, name, &st);

	if (r < 0)
		return err_except(r, -ENOENT);
	if (fstat(d->dir->fd, &own) < 0)
		return err_sys("cannot look at draft", d->name);
	return st.st_dev == own.st_dev && st.st_ino == own.st_ino;
}

#define LOCK_TEXT_MAX 128

/* The text of the lock file: no other draft has the same. */
static size_t lock_text(const struct draft_dir *d, char text[LOCK_TEXT_MAX])
{
	return (size_t)snprintf(text, LOCK_TEXT_MAX, "{\"pid\": %ld, \"begun_ns\": %lld}\n",
				(long)getpid(), (long long)d->init_ns);
}

/*
 * Whether the directory of that name and its lock file are those of this draft: 1 or 0. Another
 * writer may have removed them, and even committed a step of that name since.
 */
static int draft_dir_is_ours(const struct draft_dir *d, const char *name)
{
	char own[LOCK_TEXT_MAX];
	auto_buf text = { 0 };
	struct stat st;
	int r = draft_dir_is_it(d, name);

	if (r <= 0)
		return r;
	r = io_stat(d->dir, DRAFT_LOCK_FILE, &st);
	if (r < 0 || st.st_dev != d->lock->dev || st.st_ino != d->lock->ino)
		return err_except(MIN(r, 0), -ENOENT);
	if (!d->parent->bucket)
		return 1;
	/* Programs that show a bucket may give a new file the inode of a former one of its name. */
	r = io_read_file(d->dir, DRAFT_LOCK_FILE, sizeof(own), &text);
	return r < 0 ? r : span_eq(buf_span(&text), span_of(own, lock_text(d, own)));
}

/*
 * The writer that creates the lock file owns the directory. A process that sees the file before it
 * is locked takes the draft for an abandoned one: then that process has the lock, and owns it.
 */
static int draft_dir_mark(struct draft_dir *d)
{
	auto_of(io_file) struct io_file *f = NULL;
	char text[LOCK_TEXT_MAX];
	int r = io_file_open(d->dir, DRAFT_LOCK_FILE, O_RDWR | O_CREAT | O_EXCL, 0600, &f);

	if (r == -EEXIST)
		return draft_dir_busy(d->name);
	if (r < 0)
		return r;
	if (TEMP_FAILURE_RETRY(flock(f->fd, (d->base_name ? LOCK_SH : LOCK_EX) | LOCK_NB)) < 0) {
		if (errno != EWOULDBLOCK) {
			d->lock = take(f);
			return err_sys("cannot lock draft", d->name);
		}
		/* With a name that nobody else uses, only gc does that. */
		return step_name_is_tmp(span_str(d->name)) ?
			       fail(-ENOENT, "draft '%s' was removed while it was begun", d->name) :
			       draft_dir_busy(d->name);
	}
	d->lock = take(f);
	r = io_write_exact(d->lock, text, lock_text(d, text), 0);
	/* Written now, and not when it is closed, since it has been removed by then. */
	return r < 0 || !d->parent->bucket ? r : io_file_finish(d->lock);
}

int draft_dir_unmark(struct draft_dir *d)
{
	int r;

	if (!d->lock)
		return 0;
	if (d->parent->bucket && !d->parent->bucket->uploads_later)
		io_file_unref(take(d->lock));
	r = io_dirop(d->dir, IO_UNLINK, DRAFT_LOCK_FILE, NULL, 0);
	if (r < 0 && r != -ENOENT)
		return r;
	err_clear();
	io_file_unref(take(d->lock));
	return 0;
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

int draft_dir_move_away(struct io_dir *parent, const char *from, const char *name, const char *mark,
			char **ret)
{
	auto_free char *made = NULL;
	int r = draft_dir_name_now(name, mark, &made);

	if (r < 0)
		return r;
	r = io_dirop(parent, IO_RENAME_NEW, from, made, 0);
	if (r < 0)
		return r;
	*ret = take(made);
	return 0;
}

static int draft_dir_give(int fd, uid_t uid, gid_t gid, const char *name)
{
	char self[64];

	/* The descriptor of a directory does not allow fchown(2). */
	snprintf(self, sizeof(self), "/proc/self/fd/%d", fd);
	return TEMP_FAILURE_RETRY(chown(self, uid, gid)) < 0 ?
		       err_sys("cannot give to its user", name) :
		       0;
}

/* Change the owner of the draft to the user who begins it. It has nothing but the lock file. */
static int give_to_user(struct draft_dir *d)
{
	const struct user *u = user_now();
	struct stat st;
	gid_t gid;
	int r;

	if (!user_is_other())
		return 0;
	if (geteuid() != 0)
		return fail(
			-EPERM,
			"draft '%s' would not belong to user %u: the mount does not run as root",
			d->final, u->uid);
	r = io_stat(d->dir, ".", &st);
	if (r < 0)
		return r;
	if (st.st_uid != geteuid() && st.st_uid != u->uid)
		return fail(-EBUSY, "the directory of draft '%s' was replaced while it was begun",
			    d->final);
	/* A setgid directory has inherited the group of its parent, and keeps it. */
	gid = st.st_mode & S_ISGID ? st.st_gid : u->gid;
	r = draft_dir_give(d->dir->fd, u->uid, gid, d->name);
	if (r < 0)
		return r;
	r = draft_dir_give(d->lock->fd, u->uid, gid, d->name);
	if (r < 0)
		return r;
	io_dir_own(d->dir, u->uid, gid);
	return r;
}

/* Undo what this process has made, and nothing else. */
static void draft_dir_leave(struct draft_dir *d, const char *at, bool is_made)
{
	if (step_name_is_tmp(span_str(at))) {
		io_remove_tree(d->parent, at);
		return;
	}
	if (d->lock && draft_dir_is_ours(d, at) > 0)
		io_dirop(d->dir, IO_UNLINK, DRAFT_LOCK_FILE, NULL, 0);
	/* If another writer has taken it, it is not empty. */
	if (is_made)
		io_dirop(d->parent, IO_RMDIR, at, NULL, 0);
}

/* Lock the directory, and give it its name. */
static int draft_dir_set_up(struct draft_dir *d, const char *at)
{
	int r = io_dir_sub(d->parent, at, &d->dir);

	if (r < 0)
		return r;
	r = draft_dir_mark(d);
	if (r < 0)
		return r;
	/* Another writer may have removed it, made it anew, and even committed its step. */
	r = draft_dir_is_ours(d, at);
	if (r == 0)
		return fail(-ENOENT, "draft '%s' was removed while it was begun", d->name);
	r = r < 0 ? r : draft_dir_has_others(d->dir, ".");
	if (r > 0)
		r = draft_dir_refuse(d->parent, at);
	if (r < 0)
		return r;
	r = give_to_user(d);
	if (r < 0)
		return r;
	r = io_dirop(d->dir, IO_SYNC_DIR, ".", NULL, 0);
	if (r < 0 || !step_name_is_tmp(span_str(d->name)))
		return r;
	r = io_dirop(d->parent, IO_RENAME_NEW, at, d->name, 0);
	return r == -EEXIST ? draft_dir_busy(d->name) : r;
}

/*
 * Make the directory with its lock file under a temporary name that marks it as ours, and then
 * rename it, so that a crash never leaves a draft's name without a lock file. A draft in place has
 * its final name from the start: there the lock file decides, which may be in an empty directory
 * that another process has made.
 */
static int make_dir(struct draft_dir *d)
{
	bool in_place = !step_name_is_tmp(span_str(d->name)), is_made;
	auto_free char *at = NULL;
	struct err_note note;
	int r;

	at = str_fmt(in_place ? "%s" : "%s" DRAFT_BEGUN "%ld-%llx", d->name, (long)getpid(),
		     (unsigned long long)d->init_ns);
	if (!at)
		return fail(-ENOMEM, "cannot begin draft '%s'", d->name);
	if (user_now())
		d->mode &= ~user_now()->umask;
	r = io_dirop(d->parent, IO_MKDIR, at, NULL, d->mode);
	is_made = r >= 0;
	if (r == -EEXIST && in_place) {
		err_clear();
		r = 0;
	}
	if (r < 0)
		return r;
	r = draft_dir_set_up(d, at);
	if (r < 0) {
		err_save(r, &note);
		draft_dir_leave(d, at, is_made);
		return err_restore(&note);
	}
	return 0;
}

int draft_dir_new(struct io_dir *parent, const char *name, const char *final, unsigned mode,
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
	d->named = 1;
	d->init_ns = clock_real_ns();
	trace(TRACE_STEP, "begin '%s'", name);
	d->failed_dir_syncs = atomic_load(&io_engine_stats(parent->io)->failed_dir_syncs);
	*ret = take(d);
	return 0;
}

static int begin_once(struct io_dir *parent, const char *name, const char *final, unsigned mode,
		      bool shared, struct draft_dir **ret)
{
	auto_of(draft_dir) struct draft_dir *d = NULL;
	auto_free char *other = str_fmt("%s" STEP_TMP, final);
	int r = draft_dir_new(parent, name, final, mode, shared, &d);

	if (r < 0)
		return r;
	if (!other)
		return fail(-ENOMEM, "cannot begin draft '%s'", name);
	r = draft_dir_make_room(parent, name);
	/*
	 * Check the name of Orbax, or of an old release of ours, for the same draft. Two writers of
	 * one step would do no harm to each other, but the later one would fail only at its commit.
	 */
	if (r >= 0 && step_name_is_tmp(span_str(name)))
		r = draft_dir_make_room(parent, other);
	if (r < 0)
		return r;
	r = make_dir(d);
	if (r < 0)
		return r;
	*ret = take(d);
	return 0;
}

int draft_dir_begin(struct io_dir *parent, const char *name, const char *final, unsigned mode,
		    bool shared, struct draft_dir **ret)
{
	int r = begin_once(parent, name, final, mode, shared, ret);

	for (unsigned i = 1; i < BEGIN_TRIES && r == -ENOENT; i++) {
		err_clear();
		r = begin_once(parent, name, final, mode, shared, ret);
	}
	return r;
}

int draft_dir_check(const struct draft_dir *d)
{
	int r = draft_dir_is_ours(d, d->name);

	return r == 0 ? draft_dir_lost(d) : MIN(r, 0);
}

int draft_dir_lost(const struct draft_dir *d)
{
	enum draft_state state;
	struct stat st;
	int r;

	if (d->base_name && draft_dir_is_given_up(d))
		return fail(-ETIMEDOUT, "another rank gave up waiting for '%s'", d->final);
	if (!strcmp(d->name, d->final))
		r = step_has_marker(d->parent, d->final);
	else
		r = io_stat(d->parent, d->final, &st) >= 0 &&
		    draft_dir_state(d->parent, d->final, &state) >= 0 && state == DRAFT_FOREIGN;
	err_clear();
	if (r > 0)
		return fail(-EEXIST,
			    "another writer has removed the draft of '%s', and committed that step",
			    d->final);
	r = draft_dir_state(d->parent, d->name, &state);
	err_clear();
	if (r >= 0 && state == DRAFT_LIVE)
		return fail(
			-EBUSY,
			"another writer has removed the draft of '%s', and writes that step now",
			d->final);
	/*
	 * Not -ESTALE, since the kernel would then repeat the rename, and report that the draft
	 * does not exist.
	 */
	return fail(
		-EIO,
		"the directory of draft '%s' was removed by another program: what was written to "
		"it is lost; "
		"remove the draft and write it again",
		d->final);
}

/* ---- ending ---- */

int draft_dir_remove(struct draft_dir *d)
{
	auto_free char *gone = NULL;
	int r = draft_dir_is_ours(d, d->name);

	/* A directory of another program is never removed, whatever its name. */
	if (r == 0) {
		log_warn("the directory of draft '%s' had been removed by another program",
			 d->final);
		io_file_unref(take(d->lock));
		return 0;
	}
	if (r < 0)
		return r;
	/*
	 * Rename it first, so that it disappears in one step, and after a crash the name shows that
	 * it was being removed.
	 */
	r = draft_dir_move_away(d->parent, d->name, d->name, DRAFT_REMOVED, &gone);
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
