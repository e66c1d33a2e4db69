/* SPDX-License-Identifier: Apache-2.0 */
/*
 * atomic_file.c - temporary names, syncs and the rename of what export writes.
 */
#include "tools/convert/atomic_file.h"

#include <dirent.h>
#include <fcntl.h>
#include <fts.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "core/base/arena.h"
#include "core/base/err.h"
#include "core/base/limits.h"
#include "tools/convert/input.h"
#include "tools/cli/parallel_for.h"
#include "tools/convert/atomic_step.h"

#define TEMP_TAIL ".pytreefs-" /* of a temporary name, before the process that writes it */
#define SYNCS 16               /* at once */

static int check_target(const struct atomic_file *n, const char *path)
{
	struct stat st;

	if (fstatat(n->dirfd, n->name, &st, AT_SYMLINK_NOFOLLOW) < 0)
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

/*
 * Whether nobody writes it any more. The process may be one of another host or container, where
 * its number says nothing: so its lock has to be gone, too. Where there are no locks, all stays.
 */
static bool is_abandoned(int dirfd, const char *name, const char *pid_text)
{
	auto_close int fd = -1;
	struct stat st;
	char *end;
	long pid;

	errno = 0;
	pid = strtol(pid_text, &end, 10);
	if (end == pid_text || *end || errno || pid <= 0 || pid > INT32_MAX)
		return false;
	if (pid != getpid() && (kill((pid_t)pid, 0) == 0 || errno != ESRCH))
		return false;
	fd = openat(dirfd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	return fd >= 0 && fstat(fd, &st) == 0 && (S_ISREG(st.st_mode) || S_ISDIR(st.st_mode)) &&
	       TEMP_FAILURE_RETRY(flock(fd, LOCK_EX | LOCK_NB)) == 0;
}

/* What killed processes left of the same name. A courtesy: what cannot be removed stays. */
static void remove_abandoned(const struct atomic_file *n)
{
	size_t len = (size_t)(strrchr(n->temp, '-') + 1 - n->temp) - strlen(n->dir) - 1;
	const char *prefix = n->temp + strlen(n->dir) + 1;
	DIR *d = opendir(n->dir);

	for (struct dirent *e; d && (e = readdir(d));) {
		auto_free char *path = NULL;

		if (strncmp(e->d_name, prefix, len) ||
		    !is_abandoned(n->dirfd, e->d_name, e->d_name + len))
			continue;
		path = str_fmt("%s/%s", n->dir, e->d_name);
		if (path)
			remove_tree(path);
	}
	if (d)
		closedir(d);
}

/* Make what is at the temporary name, locked where the file system has locks. */
static int make_temp(struct atomic_file *n)
{
	if (n->is_dir) {
		if (TEMP_FAILURE_RETRY(mkdir(n->temp, 0777)) < 0)
			return err_sys("cannot make", n->temp);
		n->lock = open(n->temp, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	} else {
		n->fd = TEMP_FAILURE_RETRY(
			open(n->temp, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
		if (n->fd < 0)
			return err_sys("cannot make", n->temp);
	}
	(void)TEMP_FAILURE_RETRY(flock(n->is_dir ? n->lock : n->fd, LOCK_EX | LOCK_NB));
	return 0;
}

bool atomic_file_is_temp(const char *name)
{
	const char *at = name[0] == '.' ? strstr(name + 1, TEMP_TAIL) : NULL;

	while (at && at[strlen(TEMP_TAIL) + strspn(at + strlen(TEMP_TAIL), "0123456789")])
		at = strstr(at + 1, TEMP_TAIL);
	return at && at[strlen(TEMP_TAIL)];
}

int atomic_file_begin(const char *path, bool is_dir, bool force, struct atomic_file *ret)
{
	struct atomic_file n = {
		.is_dir = is_dir, .force = force, .dirfd = -1, .fd = -1, .lock = -1
	};
	int r = path_split(path, &n.dir, &n.name);

	if (r >= 0)
		r = path_check_outside(path, n.dir, false);
	if (r >= 0 &&
	    !(n.temp = str_fmt("%s/.%.200s" TEMP_TAIL "%ld", n.dir, n.name, (long)getpid())))
		r = fail(-ENOMEM, "cannot write '%s'", path);
	if (r >= 0) {
		n.dirfd = open(n.dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		r = n.dirfd < 0 ? err_sys("cannot open", n.dir) : check_target(&n, path);
	}
	if (r >= 0) {
		remove_abandoned(&n);
		r = make_temp(&n);
	}
	if (r < 0) {
		/* What is at the temporary name is not ours. */
		free(take(n.temp));
		atomic_file_release(&n);
		return r;
	}
	*ret = n;
	return 0;
}

int atomic_file_join(const char *temp, bool is_dir, struct atomic_file *ret)
{
	struct atomic_file n = {
		.is_dir = is_dir, .is_joined = true, .dirfd = -1, .fd = -1, .lock = -1
	};
	int r = path_split(temp, &n.dir, &n.name);

	n.temp = r < 0 ? NULL : strdup(temp);
	if (r >= 0 && !n.temp)
		r = fail(-ENOMEM, "cannot write '%s'", temp);
	if (r >= 0 && !is_dir) {
		n.fd = open(temp, O_RDWR | O_CLOEXEC);
		r = n.fd < 0 ? err_sys("cannot open", temp) : 0;
	}
	if (r < 0) {
		atomic_file_release(&n);
		return r;
	}
	*ret = n;
	return 0;
}

void remove_tree(const char *path)
{
	char *const paths[] = { (char *)path, NULL };
	FTS *fts = fts_open(paths, FTS_PHYSICAL | FTS_NOCHDIR, NULL);

	for (FTSENT *e; fts && (e = fts_read(fts));)
		if (e->fts_info != FTS_D)
			remove(e->fts_path);
	if (fts)
		fts_close(fts);
}

int atomic_file_sync_path(const char *path)
{
	auto_close int fd = TEMP_FAILURE_RETRY(open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC));

	if (fd < 0)
		return err_sys("cannot open", path);
	return TEMP_FAILURE_RETRY(fsync(fd)) < 0 ? err_sys("cannot sync", path) : 0;
}

/* Everything below a path, and itself. */
struct paths {
	struct arena arena;
	const char **path;
	size_t n, cap;
};

static int keep_path(struct paths *p, const char *path)
{
	if (p->n == p->cap) {
		size_t cap = p->cap ? 2 * p->cap : 64;
		const char **more = reallocarray(p->path, cap, sizeof(*more));

		if (!more)
			return fail(-ENOMEM, "cannot list %zu names", cap);
		p->path = more;
		p->cap = cap;
	}
	p->path[p->n] = arena_str(&p->arena, path);
	if (!p->path[p->n])
		return fail(-ENOMEM, "cannot list '%s'", path);
	p->n++;
	return 0;
}

static int list_tree(const char *path, struct paths *ret)
{
	char *const paths[] = { (char *)path, NULL };
	FTS *fts = fts_open(paths, FTS_PHYSICAL | FTS_NOCHDIR | FTS_NOSTAT, NULL);
	int r = fts ? 0 : err_sys("cannot list", path);

	for (FTSENT *e; r >= 0 && (e = fts_read(fts));) {
		if (e->fts_info == FTS_ERR || e->fts_info == FTS_DNR) {
			errno = e->fts_errno;
			r = err_sys("cannot list", e->fts_path);
		} else if (e->fts_info != FTS_D) {
			r = keep_path(ret, e->fts_path);
		}
	}
	if (fts)
		fts_close(fts);
	return r;
}

static int sync_one(void *arg, size_t i, struct worker *worker)
{
	const struct paths *p = arg;

	return atomic_file_sync_path(p->path[i]);
}

/*
 * In no order: nothing of it counts before the rename. Many at once, because a file system's
 * journal makes those durable together that wait together.
 */
static int sync_tree(const char *path)
{
	struct paths p = { 0 };
	int r = list_tree(path, &p);

	if (r >= 0)
		r = parallel_for(SYNCS, p.n, sync_one, &p);
	free(p.path);
	arena_release(&p.arena);
	return r;
}

/* A name that is taken is never replaced by accident: between look and rename somebody may have
 * made it. */
static int publish(struct atomic_file *n)
{
	struct stat st;
	bool is_there = fstatat(n->dirfd, n->name, &st, AT_SYMLINK_NOFOLLOW) == 0;
	unsigned flags = !n->force || !is_there ? RENAME_NOREPLACE :
			 n->is_dir              ? RENAME_EXCHANGE :
						  0;

	if (TEMP_FAILURE_RETRY(renameat2(AT_FDCWD, n->temp, n->dirfd, n->name, flags)) == 0)
		return flags == RENAME_EXCHANGE ? 1 : 0;
	/* File systems that cannot do more than rename(2). */
	if (errno == EINVAL && !is_there &&
	    TEMP_FAILURE_RETRY(renameat(AT_FDCWD, n->temp, n->dirfd, n->name)) == 0)
		return 0;
	return err_sys("cannot rename to", n->name);
}

int atomic_file_sync(struct atomic_file *n)
{
	return n->is_dir                            ? sync_tree(n->temp) :
	       TEMP_FAILURE_RETRY(fsync(n->fd)) < 0 ? err_sys("cannot sync", n->temp) :
						      0;
}

int atomic_file_commit(struct atomic_file *n)
{
	int r = atomic_file_sync(n);

	if (r >= 0)
		r = publish(n);
	if (r < 0)
		return r;
	/* What was replaced has the temporary name now. */
	if (r == 1)
		remove_tree(n->temp);
	free(take(n->temp));
	return TEMP_FAILURE_RETRY(fsync(n->dirfd)) < 0 ? err_sys("cannot sync", n->dir) : 0;
}

void atomic_file_release(struct atomic_file *n)
{
	if (n->temp && !n->is_joined)
		remove_tree(n->temp);
	if (n->dir && n->fd >= 0)
		close(n->fd);
	if (n->dir && n->lock >= 0)
		close(n->lock);
	if (n->dir && n->dirfd >= 0)
		close(n->dirfd);
	free(n->dir);
	free(n->name);
	free(n->temp);
	memset(n, 0, sizeof(*n));
}
