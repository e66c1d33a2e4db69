/* SPDX-License-Identifier: Apache-2.0 */
/*
 * draft_dir_abandoned.c - the directories of other drafts: their state, and the removal of those
 * whose writers are gone.
 */
#include "core/commit/draft_dir_impl.h"

#include <fcntl.h>
#include <sys/file.h>

#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/commit/step_copy.h"
#include "core/io/bucket_mount.h"
#include "core/step/access.h"
#include "core/step/step.h"
#include "core/step/step_name.h"

/* Open the lock file of a draft: returns 1, or 0 when there is none. */
static int open_lock(struct io_dir *parent, const char *name, struct io_file **ret)
{
	auto_free char *path = str_fmt("%s/%s", name, DRAFT_LOCK_FILE);
	int r;

	if (!path)
		return fail(-ENOMEM, "cannot look at draft '%s'", name);
	/* An open that could write may write when it is closed, after the file's removal. */
	r = io_file_open(parent, path, parent->bucket ? O_RDONLY : O_RDWR, 0, ret);
	return r < 0 ? err_except(r, -ENOENT) : 1;
}

static int find_other(void *arg, const char *name, unsigned char type)
{
	(void)arg;
	(void)type;
	return strcmp(name, DRAFT_LOCK_FILE) != 0;
}

int draft_dir_has_others(struct io_dir *dir, const char *rel)
{
	return io_list(dir, rel, find_other, NULL);
}

int draft_dir_state(struct io_dir *parent, const char *name, enum draft_state *ret)
{
	auto_of(io_file) struct io_file *f = NULL;
	bool is_live = false;
	int r = open_lock(parent, name, &f);

	if (r < 0)
		return r;
	if (f && flock(f->fd, LOCK_EX | LOCK_NB) < 0) {
		is_live = true;
	} else if (f && !step_name_is_tmp(span_str(name)) && !f->size &&
		   clock_is_near(clock_ns_of(f->mtime), DRAFT_BEGUN_NS)) {
		/*
		 * In place, a writer locks its file when others can see it already, and only then
		 * writes to it. It may be about to do so.
		 */
		r = draft_dir_has_others(parent, name);
		if (r < 0)
			return r;
		is_live = r == 0;
	}
	*ret = !f ? DRAFT_FOREIGN : is_live ? DRAFT_LIVE : DRAFT_ABANDONED;
	return 0;
}

int draft_dir_busy(const char *name)
{
	return fail(-EBUSY, "draft '%s' is being written by another mount or command", name);
}

static int draft_dir_exists(const char *name)
{
	return fail(-EEXIST, "there is a '%s' already", name);
}

int draft_dir_refuse(struct io_dir *parent, const char *name)
{
	bool is_tmp = step_name_is_tmp(span_str(name));
	int r = is_tmp ? 0 : step_has_marker(parent, name);

	if (r != 0)
		return r < 0 ? r : draft_dir_exists(name);
	/* Not EEXIST: programs take that for a name that a mount shows. */
	return fail(-EBUSY, "'%s' is a %s of another program%s", name,
		    is_tmp ? "temporary directory" : "directory",
		    is_tmp ? "" : ", without commit_success.txt");
}

/*
 * Lock the draft of another writer that is gone: returns 1, or 0 when there is none, also when its
 * lock file was removed between opening and locking it. Then the name may belong to a new draft.
 */
static int lock_abandoned(struct io_dir *parent, const char *name, struct io_file **ret)
{
	auto_of(io_file) struct io_file *f = NULL;
	struct stat st;
	int r = open_lock(parent, name, &f);

	if (r <= 0)
		return r;
	if (TEMP_FAILURE_RETRY(flock(f->fd, LOCK_EX | LOCK_NB)) < 0)
		return draft_dir_busy(name);
	r = io_stat(parent, f->name, &st);
	if (r < 0)
		return err_except(r, -ENOENT);
	if (st.st_ino != f->ino || st.st_dev != f->dev)
		return 0;
	*ret = take(f);
	return 1;
}

int draft_dir_remove_abandoned(struct io_dir *parent, const char *name)
{
	auto_of(io_file) struct io_file *lock = NULL;
	auto_free char *gone = NULL;
	int r = lock_abandoned(parent, name, &lock);

	if (r <= 0)
		return r;
	/* A step that was committed in place, and its writer ended before it removed the lock. */
	r = step_name_is_tmp(span_str(name)) ? 0 : step_has_marker(parent, name);
	if (r > 0) {
		r = io_dirop(parent, IO_UNLINK, lock->name, NULL, 0);
		return r < 0 ? r : draft_dir_exists(name);
	}
	if (r < 0)
		return r;
	if (parent->bucket)
		return step_copy_remove(parent, name, take(lock));
	/* After a crash the name shows that the draft was being removed. */
	r = draft_dir_move_away(parent, name, name, DRAFT_REMOVED, &gone);
	return r < 0 ? r : io_remove_tree(parent, gone);
}

int draft_dir_make_room(struct io_dir *parent, const char *name)
{
	auto_of(io_file) struct io_file *lock = NULL;
	struct stat st;
	int r = io_stat(parent, name, &st);

	if (r >= 0)
		r = open_lock(parent, name, &lock);
	if (r == 0)
		r = step_name_is_tmp(span_str(name)) ? 0 : io_dir_is_empty(parent, name);
	else if (r > 0 && TEMP_FAILURE_RETRY(flock(lock->fd, LOCK_EX | LOCK_NB)) < 0)
		r = draft_dir_busy(name);
	if (r < 0)
		return err_except(r, -ENOENT);
	if (user_is_other() && st.st_uid != user_now()->uid && (lock || st.st_uid != geteuid()))
		return fail(-EPERM, "'%s' was left there by user %u, and is not yours to remove",
			    name, st.st_uid);
	if (lock) {
		io_file_unref(take(lock));
		r = draft_dir_remove_abandoned(parent, name);
		/* A step is there, whether or not its lock file can be removed. */
		if (r < 0 && r != -EBUSY && !step_name_is_tmp(span_str(name)) &&
		    step_has_marker(parent, name) > 0)
			return draft_dir_exists(name);
		return r;
	}
	if (r > 0)
		return 0;
	/* It may have become a step meanwhile. */
	r = io_stat(parent, name, &st);
	return r < 0 ? err_except(r, -ENOENT) : draft_dir_refuse(parent, name);
}
