/* SPDX-License-Identifier: Apache-2.0 */
/*
 * atomic_file.c - temporary names, syncs and the rename of exported files.
 *
 * All changes go through the engine; functions that only inspect (stat, locks) are plain calls.
 */
#include "tools/convert/atomic_file.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "core/base/arena.h"
#include "core/base/array.h"
#include "core/base/err.h"
#include "core/base/limits.h"
#include "core/base/path.h"
#include "core/step/detect.h"
#include "tools/convert/input.h"
#include "tools/cli/parallel_for.h"
#include "tools/convert/atomic_step.h"

#define TEMP_TAIL ".pytreefs-" /* in a temporary name, before the process number */
#define SYNCS 16               /* syncs in progress at once */

static int check_target(const struct atomic_file *n, const char *path)
{
	enum shape shape = SHAPE_UNKNOWN;
	struct stat st;

	/* In a directory of steps, an export would be taken for the newest of them. */
	if (path_check_latest(path) < 0) {
		if (detect_shape(n->dir, ".", NULL, &shape) >= 0 && shape == SHAPE_ROOT)
			return path_check_latest(path);
		err_clear();
	}
	if (fstatat(n->dir->fd, n->name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0 : err_sys("cannot look at", path);
	if (!n->force)
		return fail(-EEXIST, "'%s' is there already; --force replaces it", path);
	if (n->is_dir ? !S_ISDIR(st.st_mode) : !S_ISREG(st.st_mode))
		return fail(-EEXIST, "'%s' is %s: --force replaces only its like", path,
			    S_ISDIR(st.st_mode) ? "a directory" : "no directory");
	if (n->is_dir && !input_is_export(path))
		return fail(-EEXIST,
			    "'%s' holds something else than leaves: --force replaces only those",
			    path);
	return 0;
}

struct abandoned {
	const struct atomic_file *n;
	size_t prefix; /* length of the temporary name before the process number */
};

/*
 * Remove what a killed process has left for the same name, and does not write any more. Its process
 * may be on another host or in another container, where the number means nothing, so the lock must
 * be free, too. On file systems without locks, nothing is removed. Errors are ignored.
 */
static int atomic_file_remove_abandoned(void *arg, const char *name, unsigned char type)
{
	const struct abandoned *a = arg;
	int dirfd = a->n->dir->fd;
	auto_close int fd = -1;
	struct stat st;
	char *end;
	long pid;

	if (strncmp(name, a->n->temp_name, a->prefix))
		return 0;
	errno = 0;
	pid = strtol(name + a->prefix, &end, 10);
	if (end == name + a->prefix || *end || errno || pid <= 0 || pid > INT32_MAX)
		return 0;
	if (pid != getpid() && (kill((pid_t)pid, 0) == 0 || errno != ESRCH))
		return 0;
	/* Opening other kinds of files may have side effects. */
	if (fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
	    !(S_ISREG(st.st_mode) || S_ISDIR(st.st_mode)))
		return 0;
	fd = openat(dirfd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	if (fd >= 0 && fstat(fd, &st) == 0 && (S_ISREG(st.st_mode) || S_ISDIR(st.st_mode)) &&
	    TEMP_FAILURE_RETRY(flock(fd, LOCK_EX | LOCK_NB)) == 0)
		io_remove_tree(a->n->dir, name);
	return 0;
}

/* Create the file or directory with the temporary name, locked if the file system has locks. */
static int make_temp(struct atomic_file *n)
{
	int r;

	if (!n->is_dir) {
		r = io_file_open(n->dir, n->temp_name, O_RDWR | O_CREAT | O_EXCL, IO_FILE_MODE,
				 &n->file);
		n->is_made = r >= 0;
		if (r < 0)
			return r;
		(void)TEMP_FAILURE_RETRY(flock(n->file->fd, LOCK_EX | LOCK_NB));
		return r;
	}
	r = io_dirop(n->dir, IO_MKDIR, n->temp_name, NULL, IO_DIR_MODE);
	n->is_made = r >= 0;
	if (r < 0)
		return r;
	r = io_dir_sub(n->dir, n->temp_name, &n->temp_dir);
	if (r < 0)
		return r;
	n->lock = openat(n->dir->fd, n->temp_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	(void)TEMP_FAILURE_RETRY(flock(n->lock, LOCK_EX | LOCK_NB));
	return 0;
}

bool atomic_file_is_temp(const char *name)
{
	const char *at = name[0] == '.' ? strstr(name + 1, TEMP_TAIL) : NULL;

	while (at && at[strlen(TEMP_TAIL) + strspn(at + strlen(TEMP_TAIL), "0123456789")])
		at = strstr(at + 1, TEMP_TAIL);
	return at && at[strlen(TEMP_TAIL)];
}

int atomic_file_begin(struct io_engine *io, const char *path, bool is_dir, bool force,
		      struct atomic_file *ret)
{
	auto_atomic_file n = { .is_dir = is_dir, .force = force, .lock = -1 };
	struct abandoned abandoned = { .n = &n };
	auto_free char *dir = NULL;
	int r;

	if (path_is_url(path))
		return fail(-EOPNOTSUPP, "files and directories of leaves are written to this "
					 "machine only, not to a URL");
	r = path_split(path, &dir, &n.name);
	if (r < 0)
		return r;
	r = path_check_outside(path, dir, false);
	if (r < 0)
		return r;
	r = path_check_link(dir);
	if (r < 0)
		return r;
	r = io_dir_open(io, dir, &n.dir);
	if (r < 0)
		return r;
	n.temp_name = str_fmt(".%.200s" TEMP_TAIL "%ld", n.name, (long)getpid());
	n.temp = n.temp_name ? str_fmt("%s/%s", n.dir->path, n.temp_name) : NULL;
	if (!n.temp)
		return fail(-ENOMEM, "cannot write '%s'", path);
	r = check_target(&n, path);
	if (r < 0)
		return r;
	abandoned.prefix = (size_t)(strrchr(n.temp_name, '-') + 1 - n.temp_name);
	io_list(n.dir, ".", atomic_file_remove_abandoned, &abandoned);
	err_clear();
	r = make_temp(&n);
	if (r < 0)
		return r;
	*ret = n;
	n = (struct atomic_file){ .lock = -1 };
	return 0;
}

int atomic_file_join(struct io_engine *io, const char *temp, bool is_dir, struct atomic_file *ret)
{
	auto_atomic_file n = { .is_dir = is_dir, .lock = -1 };
	auto_free char *dir = NULL;
	int r = path_split(temp, &dir, &n.temp_name);

	if (r < 0)
		return r;
	r = io_dir_open(io, dir, &n.dir);
	if (r < 0)
		return r;
	n.temp = strdup(temp);
	if (!n.temp)
		return fail(-ENOMEM, "cannot write '%s'", temp);
	r = is_dir ? io_dir_sub(n.dir, n.temp_name, &n.temp_dir) :
		     io_file_open(n.dir, n.temp_name, O_RDWR, 0, &n.file);
	if (r < 0)
		return r;
	*ret = n;
	n = (struct atomic_file){ .lock = -1 };
	return 0;
}

/* ---- durable, then renamed ---- */

/* All paths below a directory, relative to it. */
struct paths {
	struct io_dir *dir;
	struct arena arena;
	struct path {
		const char *path;
		bool is_dir;
	} * path;
	size_t n, cap;
};

static int atomic_file_add_path(void *arg, const char *path, unsigned char type)
{
	struct paths *p = arg;

	if (!array_reserve(p->path, p->cap, p->n + 1))
		return fail(-ENOMEM, "cannot list '%s'", p->dir->path);
	p->path[p->n].path = arena_str(&p->arena, path);
	p->path[p->n].is_dir = type == DT_DIR;
	return p->path[p->n++].path ? 0 : fail(-ENOMEM, "cannot list '%s'", p->dir->path);
}

static int sync_one(void *arg, size_t i, struct worker *worker)
{
	const struct paths *p = arg;
	auto_of(io_file) struct io_file *f = NULL;
	int r;

	if (p->path[i].is_dir)
		return io_dirop(p->dir, IO_SYNC_DIR, p->path[i].path, NULL, 0);
	r = io_file_open(p->dir, p->path[i].path, O_RDONLY | O_NOFOLLOW, 0, &f);
	return r < 0 ? r : io_file_sync(f);
}

/*
 * Rename to the final name. An existing name is never replaced by accident, even if it appears
 * between the check and the rename. What is replaced gets the temporary name until everything is
 * durable.
 */
static int atomic_file_publish(struct atomic_file *n, enum io_dirop *ret_op)
{
	struct stat st;
	bool is_there = fstatat(n->dir->fd, n->name, &st, AT_SYMLINK_NOFOLLOW) == 0;
	int r;

	*ret_op = n->force && is_there ? IO_EXCHANGE : IO_RENAME_NEW;
	r = io_dirop(n->dir, *ret_op, n->temp_name, n->name, 0);
	/* The file system cannot exchange names. */
	if (r == -EINVAL && *ret_op == IO_EXCHANGE && !n->is_dir) {
		*ret_op = IO_RENAME;
		r = io_dirop(n->dir, IO_RENAME, n->temp_name, n->name, 0);
	}
	return r;
}

/*
 * Everything below a directory is synced in any order, since nothing is visible before the rename.
 * Several syncs run at once, because the journal of a file system makes concurrent ones durable
 * together.
 */
int atomic_file_sync(struct atomic_file *n)
{
	struct paths p = { .dir = n->temp_dir };
	int r;

	if (!n->is_dir)
		return io_file_sync(n->file);
	r = io_walk(p.dir, ".", false, atomic_file_add_path, &p);
	if (r >= 0)
		r = parallel_for(SYNCS, p.n, sync_one, &p);
	if (r >= 0)
		r = io_dirop(p.dir, IO_SYNC_DIR, ".", NULL, 0);
	free(p.path);
	arena_release(&p.arena);
	return r;
}

int atomic_file_commit(struct atomic_file *n)
{
	struct err_note why;
	enum io_dirop op;
	int r = atomic_file_sync(n);

	if (r < 0)
		return r;
	r = atomic_file_publish(n, &op);
	if (r < 0)
		return r;
	r = io_dirop(n->dir, IO_SYNC_DIR, ".", NULL, 0);
	/* Undo the rename, which may not be durable. What a plain rename has replaced is lost. */
	if (r < 0) {
		err_save(r, &why);
		if (op == IO_RENAME || io_dirop(n->dir, op, n->name, n->temp_name, 0) < 0)
			n->is_made = false;
		return err_restore(&why);
	}
	/* Remove what was replaced. A failure is not an error of the export. */
	if (op == IO_EXCHANGE)
		io_remove_tree(n->dir, n->temp_name);
	n->is_made = false;
	err_clear();
	return 0;
}

void atomic_file_release(struct atomic_file *n)
{
	if (n->is_made) {
		struct err_note why;

		err_peek(&why);
		io_remove_tree(n->dir, n->temp_name);
		err_restore(&why);
	}
	io_file_unref(n->file);
	io_dir_close(n->temp_dir);
	if (n->dir && n->lock >= 0)
		close(n->lock);
	io_dir_close(n->dir);
	free(n->name);
	free(n->temp_name);
	free(n->temp);
	*n = (struct atomic_file){ .lock = -1 };
}
