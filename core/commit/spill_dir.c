/* SPDX-License-Identifier: Apache-2.0 */
/*
 * spill_dir.c - make a directory for a step that will be uploaded, and remove those of dead
 * processes.
 *
 * A process that uses such a directory holds a lock on a file in it.
 */
#include "core/commit/spill_dir.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <time.h>

#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/log.h"

#define PREFIX "pytreefs-upload-"
#define BEGUN "pytreefs-begun-" /* in place of PREFIX until it is locked */
#define LOCK ".lock"
#define YOUNG_S 60 /* a younger directory may not be locked yet */

/*
 * Whether a directory was left by a dead process: 1 or 0. Nobody has locked one that is named
 * BEGUN...
 */
static int is_left(struct io_dir *parent, const char *name)
{
	bool begun = !strncmp(name, BEGUN, strlen(BEGUN));
	auto_of(io_file) struct io_file *lock = NULL;
	auto_free char *path = str_fmt("%s/" LOCK, name);
	struct stat st;
	int r = path ? io_stat(parent, name, &st) : -ENOMEM;

	if (r < 0 || !S_ISDIR(st.st_mode) || st.st_uid != geteuid())
		return 0;
	r = begun ? -ENOENT : io_file_open(parent, path, O_RDWR, 0, &lock);
	if (r == -ENOENT)
		return !clock_is_near(clock_ns_of(st.st_mtim), YOUNG_S * SECOND_NS);
	return r >= 0 && TEMP_FAILURE_RETRY(flock(lock->fd, LOCK_EX | LOCK_NB)) == 0;
}

static int sweep_one(void *arg, const char *name, unsigned char type)
{
	struct io_dir *parent = arg;
	bool is_ours = !strncmp(name, PREFIX, strlen(PREFIX)) ||
		       !strncmp(name, BEGUN, strlen(BEGUN));

	if (type == DT_DIR && is_ours && is_left(parent, name) > 0 &&
	    io_remove_tree(parent, name) < 0)
		log_warn("cannot remove '%s/%s', which an earlier run left", parent->path, name);
	err_clear();
	return 0;
}

/* It gets its name when it is locked, since another process may look for directories to remove. */
static int spill_make(struct spill_dir *d, const char *where)
{
	unsigned long long now = (unsigned long long)clock_real_ns();
	auto_free char *begun = str_fmt(BEGUN "%d-%llx", (int)getpid(), now);
	auto_free char *lock = begun ? str_fmt("%s/" LOCK, begun) : NULL;
	struct err_note why;
	int r;

	d->name = str_fmt(PREFIX "%d-%llx", (int)getpid(), now);
	if (!lock || !d->name)
		return fail(-ENOMEM, "cannot make a directory in '%s'", where);
	r = io_dirop(d->parent, IO_MKDIR, begun, NULL, 0700);
	if (r < 0)
		return r;
	r = io_file_open(d->parent, lock, O_RDWR | O_CREAT | O_EXCL, 0600, &d->lock);
	if (r >= 0 && TEMP_FAILURE_RETRY(flock(d->lock->fd, LOCK_EX | LOCK_NB)) < 0)
		r = err_sys("cannot lock", begun);
	r = r < 0 ? r : io_dirop(d->parent, IO_RENAME_NEW, begun, d->name, 0);
	if (r < 0) {
		err_save(r, &why);
		io_remove_tree(d->parent, begun);
		return err_restore(&why);
	}
	return io_dir_sub(d->parent, d->name, &d->dir);
}

int spill_dir_make(struct io_engine *io, const char *where, struct spill_dir *ret)
{
	struct spill_dir d = { 0 };
	int r = io_dir_open(io, where, &d.parent);

	if (r < 0)
		return r;
	r = io_list(d.parent, ".", sweep_one, d.parent);
	if (r >= 0)
		r = spill_make(&d, where);
	if (r < 0) {
		spill_dir_remove(&d);
		return r;
	}
	*ret = d;
	return 0;
}

void spill_dir_remove(struct spill_dir *d)
{
	struct err_note why;

	err_peek(&why);
	if (d->lock && io_remove_tree(d->parent, d->name) < 0)
		log_warn("cannot remove '%s/%s'", d->parent->path, d->name);
	io_file_unref(d->lock);
	io_dir_close(d->dir);
	io_dir_close(d->parent);
	free(d->name);
	*d = (struct spill_dir){ 0 };
	err_restore(&why);
}
