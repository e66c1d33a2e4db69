/* SPDX-License-Identifier: Apache-2.0 */
/*
 * draft_dir_shared.c - the directory of a draft that the ranks of a job share: joining it, and
 * giving up an attempt.
 */
#include "core/commit/draft_dir_impl.h"

#include <fcntl.h>
#include <sys/file.h>
#include <time.h>

#include "core/base/err.h"
#include "core/step/access.h"

#define FIND_TRIES 50      /* searches for a shared draft that is being renamed, ... */
#define FIND_NS 20000000   /* ... and the time between them */
#define ATTEMPTS_AHEAD 256 /* by how many attempts other ranks may be ahead of this one */

int draft_dir_join(struct io_dir *parent, const char *name, const char *final, unsigned mode,
		   int64_t init_ns, struct draft_dir **ret)
{
	auto_of(draft_dir) struct draft_dir *d = NULL;
	struct stat st;
	int r = draft_dir_new(parent, name, final, mode, true, &d);

	if (r < 0)
		return r;
	d->init_ns = init_ns;
	r = io_dir_sub(parent, name, &d->dir);
	if (r < 0)
		return r;
	r = io_file_open(d->dir, DRAFT_LOCK_FILE, O_RDWR, 0, &d->lock);
	if (r < 0)
		return r;
	if (TEMP_FAILURE_RETRY(flock(d->lock->fd, LOCK_SH | LOCK_NB)) < 0)
		return err_sys("cannot share draft", d->name);
	/* Files that this rank makes belong to the draft's owner, and only that user may join. */
	r = io_stat(d->dir, ".", &st);
	if (r < 0)
		return r;
	if (user_is_other() && st.st_uid != user_now()->uid)
		return fail(-EPERM, "draft '%s' belongs to user %u", d->final, st.st_uid);
	if (geteuid() == 0 && st.st_uid != 0)
		io_dir_own(d->dir, st.st_uid, st.st_gid);
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

bool draft_dir_is_given_up(const struct draft_dir *d)
{
	bool is = false;

	for (unsigned i = 1; !is && i <= ATTEMPTS_AHEAD; i++) {
		auto_free char *name = NULL;

		is = attempt_name(d, d->named + i, &name) >= 0 && draft_dir_is_it(d, name) > 0;
	}
	err_clear();
	return is;
}

static int find_once(struct draft_dir *d, unsigned attempt)
{
	int r = draft_dir_is_it(d, d->final);

	for (unsigned i = 1; r == 0 && i <= attempt + ATTEMPTS_AHEAD; i++) {
		auto_free char *name = NULL;

		r = attempt_name(d, i, &name);
		if (r < 0)
			return r;
		r = draft_dir_is_it(d, name);
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
	r = draft_dir_is_it(d, d->final);
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
		if (r < 0)
			return r;
		r = io_dirop(d->parent, IO_RENAME_NEW, d->name, to, 0);
		/* Another process was faster: the committing rank, or one that gives up. */
		if (r == -ENOENT && tries <= 100) {
			err_clear();
			continue;
		}
		if (r < 0)
			return r;
		free(d->name);
		d->name = take(to);
		d->named = attempt + 1;
		return 0;
	}
}
