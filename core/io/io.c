/* SPDX-License-Identifier: Apache-2.0 */
/*
 * io.c - batches, open files, directories: calls of an engine for local files. io_store.c has those
 * for a store, io_stack.c those for the engine itself.
 *
 * It also does everything that is the same for all engines: it counts, continues short transfers,
 * repeats interrupted calls, and makes notes that name the file, the offset and the length.
 */
#include "core/io/io.h"

#include <assert.h>
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <time.h>

#include "core/base/err.h"
#include "core/base/limits.h"
#include "core/base/log.h"
#include "core/io/bucket_mount.h"
#include "core/io/io_engine.h"

/* ---- interrupted calls ---- */

#define TRIES_AT_ONCE 16
#define TRIES_MAX 1000
#define FILL_LEAST MiB /* reads of that size fill the page cache first */

/*
 * Whether to repeat a call: it was interrupted, or the kernel was short of a resource for a moment.
 * Our threads receive no signals, but a network or FUSE file system may be interrupted in its own
 * work, and io_uring reports that. When a file system keeps failing like this for about a second,
 * that is an error.
 */
static bool ask_again(int64_t result, unsigned *tries)
{
	const struct timespec pause = { .tv_nsec = 1000000 };

	if ((result != -EINTR && result != -EAGAIN) || ++*tries >= TRIES_MAX)
		return false;
	if (*tries > TRIES_AT_ONCE)
		nanosleep(&pause, NULL);
	return true;
}

/* The final code of a call that was repeated: the caller must not see a signal of its own. */
static int lasting(int code)
{
	return code == -EINTR || code == -EAGAIN ? -EIO : code;
}

int io_open_at(struct io_engine *io, int dirfd, const char *path, int flags, unsigned mode)
{
	bool interrupted = false;
	unsigned tries = 0;
	int r;

	/*
	 * Descriptors become free when idle files have been closed (watch_trim()); that takes time.
	 */
	do {
		r = io->ops->open(io, dirfd, path, flags, mode);
		if (r == -EMFILE && tries % TRIES_AT_ONCE == 0)
			io_descriptors_ran_out();
		interrupted |= r == -EINTR;
		/* The call that was interrupted has created the file. */
		if (r == -EEXIST && interrupted)
			r = io->ops->open(io, dirfd, path, flags & ~(O_CREAT | O_EXCL), 0);
	} while (r < 0 && ask_again(r == -EMFILE || r == -ENFILE ? -EAGAIN : r, &tries));
	return r < 0 ? lasting(r) : r;
}

/* ---- batches ---- */

static void io_refuse(struct io_req *q, int code)
{
	free(q->why);
	q->why = strdup(err_text(code));
	q->result = code;
	q->is_refused = true;
}

static void submit(struct io_engine *io, struct io_req *req, size_t n, bool at_once)
{
	int r;

	for (size_t i = 0; i < n; i++) {
		req[i].at_once = at_once;
		req[i].done = 0;
		req[i].why = NULL;
		req[i].is_refused = false;
		if (req[i].op == IO_READ && req[i].n >= FILL_LEAST && !req[i].file->bucket)
			io_file_fill_cache(req[i].file, req[i].off, req[i].n);
	}
	r = n ? io->ops->submit(io, req, n) : 0;
	for (size_t i = 0; i < n && r < 0; i++)
		io_refuse(&req[i], r);
	if (r < 0)
		err_clear();
}

void io_submit(struct io_engine *io, struct io_req *req, size_t n)
{
	submit(io, req, n, false);
}

/* Whether a request that moved `result` bytes has more to do; a read only inside the file. */
static bool is_short(struct io_req *q)
{
	if (q->op == IO_SYNC || q->result < 0 || q->done + (size_t)q->result >= q->n)
		return false;
	if (q->op == IO_READ &&
	    (q->result == 0 || q->off + q->done + (size_t)q->result >= q->file->size))
		return false;
	if (q->op == IO_WRITE && q->result == 0) {
		q->result = -EIO;
		return false;
	}
	return true;
}

static void count(struct io_engine *io, const struct io_req *q)
{
	struct io_stats *s = io->stats;

	if (q->op == IO_SYNC) {
		atomic_fetch_add_explicit(&s->syncs, 1, memory_order_relaxed);
	} else if (q->op == IO_READ) {
		atomic_fetch_add_explicit(&s->reads, 1, memory_order_relaxed);
		atomic_fetch_add_explicit(&s->read_bytes, (uint64_t)MAX(q->result, 0),
					  memory_order_relaxed);
	} else {
		atomic_fetch_add_explicit(&s->writes, 1, memory_order_relaxed);
		atomic_fetch_add_explicit(&s->write_bytes, (uint64_t)MAX(q->result, 0),
					  memory_order_relaxed);
	}
}

/* Bring a request that was waited for to its end. */
static void finish(struct io_engine *io, struct io_req *q)
{
	unsigned tries = 0;

	while (is_short(q) || ask_again(q->result, &tries)) {
		int r;

		q->done += (size_t)MAX(q->result, 0);
		r = io->ops->submit(io, q, 1);
		if (r >= 0)
			r = io->ops->wait(io, q, 1);
		if (r < 0)
			io_refuse(q, r);
	}
	if (q->result >= 0)
		q->result += (int64_t)q->done;
	count(io, q);
}

static int req_failed(const struct io_req *q, int code, int reason)
{
	static const char *const names[] = { "read", "write", "sync" };

	if (q->op == IO_READ)
		io_file_doubt(q->file);
	return fail(code, "cannot %s '%s' at offset %llu, %zu bytes: %s%s", names[q->op],
		    q->file->name, (unsigned long long)q->off + q->done, q->n - q->done,
		    q->why ? q->why : strerror(-reason),
		    bucket_mount_advice(q->file->bucket, code, q->op == IO_READ));
}

int io_wait(struct io_engine *io, struct io_req *req, size_t n)
{
	const struct io_req *bad = NULL;
	int r = n && !req->is_refused ? io->ops->wait(io, req, n) : 0, why = 0;

	if (r < 0)
		return r;
	for (size_t i = 0; i < n; i++) {
		finish(io, &req[i]);
		if (req[i].result >= 0)
			continue;
		if (!bad) {
			bad = &req[i];
			why = (int)bad->result;
		}
		req[i].result = lasting((int)req[i].result);
	}
	r = bad ? req_failed(bad, (int)bad->result, why) : 0;
	/* Free the reasons of failures, once the notes are made. */
	for (size_t i = 0; i < n; i++)
		free(take(req[i].why));
	return r;
}

int io_run(struct io_engine *io, struct io_req *req, size_t n)
{
	submit(io, req, n, true);
	return io_wait(io, req, n);
}

int io_cut_short(const struct io_req *q)
{
	io_file_doubt(q->file);
	return fail(-EUCLEAN, "'%s' ends at byte %llu, %zu bytes at offset %llu were wanted",
		    q->file->name, (unsigned long long)q->off + (unsigned long long)q->result, q->n,
		    (unsigned long long)q->off);
}

int io_splice_exact(struct io_file *file, uint64_t off, size_t n, int pipe)
{
	struct io_req q = { .op = IO_READ, .file = file, .off = off, .n = n };
	struct io_engine *io = file->io;
	unsigned tries = 0;

	while (q.done < n) {
		int64_t r = io->ops->splice(io, file, off + q.done, n - q.done, pipe);

		if (r > 0) {
			q.done += (size_t)r;
			continue;
		}
		q.result = (int64_t)q.done;
		if (r == 0)
			return io_cut_short(&q);
		if (r == -EAGAIN || r == -EINVAL || r == -ENOSYS)
			return 1;
		if (!ask_again(r, &tries))
			return req_failed(&q, lasting((int)r), (int)r);
	}
	q.result = (int64_t)n;
	count(io, &q);
	return 0;
}

/* ---- directories and files ---- */

static int dir_of_fd(struct io_engine *io, int fd, const char *path, struct io_dir **ret)
{
	struct io_dir *d = calloc(1, sizeof(*d));

	if (d)
		d->path = strdup(path);
	if (!d || !d->path) {
		free(d);
		close(fd);
		return fail(-ENOMEM, "cannot open directory '%s'", path);
	}
	d->ops = &io_local_dir;
	d->io = io;
	d->fd = fd;
	io_dirs_count(1);
	*ret = d;
	return 0;
}

int io_dir_open(struct io_engine *io, const char *path, struct io_dir **ret)
{
	int fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC), r;

	if (fd < 0)
		return err_sys("cannot open directory", path);
	r = dir_of_fd(io, fd, path, ret);
	if (r < 0)
		return r;
	(*ret)->bucket = bucket_mount_of(fd);
	(*ret)->hub = io_hub_find(path);
	return 0;
}

const char *io_shown(const struct io_dir *dir, const char *rel)
{
	return strcmp(rel, ".") ? rel : dir->path;
}

static int local_sub(struct io_dir *dir, const char *rel, struct io_dir **ret)
{
	auto_free char *path = NULL;
	int fd = io_open_in(dir->io, dir, rel, O_PATH | O_DIRECTORY, 0), r;

	if (fd < 0)
		return io_open_failed(fd, dir, "cannot open directory", rel);
	if (!strcmp(rel, "."))
		path = strdup(dir->path);
	else
		path = str_fmt("%s/%s", dir->path, rel);
	if (!path) {
		close(fd);
		return fail(-ENOMEM, "cannot open directory '%s'", rel);
	}
	r = dir_of_fd(dir->io, fd, path, ret);
	if (r < 0)
		return r;
	(*ret)->bucket = dir->bucket;
	(*ret)->hub = io_hub_ref(dir->hub);
	if (dir->owned)
		io_dir_own(*ret, dir->uid, dir->gid);
	return 0;
}

void io_dir_close(struct io_dir *dir)
{
	if (!dir)
		return;
	if (dir->fd >= 0) {
		close(dir->fd);
		io_dirs_count(-1);
	}
	io_hub_unref(dir->hub);
	free(dir->path);
	free(dir->prefix);
	free(dir);
}

static int file_of_fd(struct io_engine *io, int fd, const char *name, int flags,
		      struct io_file **ret)
{
	struct io_file *f = calloc(1, sizeof(*f));
	struct stat st;

	if (f)
		f->name = strdup(name);
	if (!f || !f->name) {
		free(f);
		close(fd);
		return fail(-ENOMEM, "cannot open '%s'", name);
	}
	f->io = io;
	f->fd = fd;
	atomic_init(&f->refs, 1);
	io_files_count(1);
	if (fstat(fd, &st) < 0) {
		int r = err_sys("cannot stat", name);

		io_file_unref(f);
		return r;
	}
	if (!S_ISREG(st.st_mode)) {
		io_file_unref(f);
		return io_not_regular(name, st.st_mode);
	}
	/*
	 * Only the open needed O_NONBLOCK; with it some file systems would not wait for the disk.
	 */
	if (flags & O_NONBLOCK)
		fcntl(fd, F_SETFL, flags & (O_APPEND | O_DIRECT | O_NOATIME));
	f->size = (uint64_t)st.st_size;
	f->mtime = st.st_mtim;
	f->dev = st.st_dev;
	f->ino = st.st_ino;
	*ret = f;
	return 0;
}

static int local_open(struct io_dir *dir, const char *rel, int flags, unsigned mode,
		      const struct io_want *want, struct io_file **ret)
{
	int fd, r = 0;

	if (!(flags & O_CREAT))
		r = io_look_first(dir, rel);
	if (r < 0)
		return r;
	if (flags & O_CREAT)
		io_owner_enter(dir);
	/* O_NONBLOCK: an open of a FIFO, in place of a data file, must not block. */
	fd = io_open_in(dir->io, dir, rel, flags | O_NONBLOCK | O_NOCTTY, mode);
	if (flags & O_CREAT)
		io_owner_leave(dir);
	if (fd < 0)
		return io_open_failed(fd, dir, "cannot open", rel);
	atomic_fetch_add_explicit(&dir->io->stats->opens, 1, memory_order_relaxed);
	r = file_of_fd(dir->io, fd, rel, flags | O_NONBLOCK, ret);
	if (r < 0)
		return r;
	(*ret)->bucket = dir->bucket;
	return r;
}

static int local_temp(struct io_engine *io, struct io_dir *dir, struct io_file **ret)
{
	int fd = io_open_at(io, dir->fd, ".", O_TMPFILE | O_RDWR, 0600);

	return fd < 0 ? err_code(fd, "cannot make a temporary file in", dir->path) :
			file_of_fd(io, fd, "temporary file", 0, ret);
}

int io_file_temp(struct io_engine *io, struct io_dir *dir, const char *tmpdir, struct io_file **ret)
{
	auto_close int at = dir ? -1 : open(tmpdir, O_PATH | O_DIRECTORY | O_CLOEXEC);
	int fd;

	if (dir)
		return dir->ops->temp(io, dir, ret);
	if (at < 0)
		return err_sys("cannot open directory", tmpdir);
	fd = io_open_at(io, at, ".", O_TMPFILE | O_RDWR, 0600);
	if (fd == -EOPNOTSUPP || fd == -EISDIR || fd == -EINVAL)
		fd = io_plain_unlinked(tmpdir);
	return fd < 0 ? err_code(fd, "cannot make a temporary file in", tmpdir) :
			file_of_fd(io, fd, "temporary file", 0, ret);
}

struct io_file *io_file_ref(struct io_file *file)
{
	atomic_fetch_add_explicit(&file->refs, 1, memory_order_relaxed);
	return file;
}

void io_file_unref(struct io_file *file)
{
	if (!file || atomic_fetch_sub_explicit(&file->refs, 1, memory_order_acq_rel) != 1)
		return;
	if (file->fd >= 0) {
		close(file->fd);
		io_files_count(-1);
	}
	if (file->closed)
		file->closed(file);
	free(file->name);
	free(file->key);
	free(file->tag);
	free(file);
}

void io_file_doubt(struct io_file *file)
{
	atomic_store_explicit(&file->doubtful, true, memory_order_relaxed);
}

bool io_file_is_doubtful(const struct io_file *file)
{
	return atomic_load_explicit(&file->doubtful, memory_order_relaxed);
}

int io_file_truncate(struct io_file *file, uint64_t size)
{
	unsigned tries = 0;
	int r;

	do {
		r = file->io->ops->truncate(file->io, file, size);
	} while (ask_again(r, &tries));
	return r < 0 ? fail(lasting(r), "cannot truncate '%s': %s", file->name, strerror(-r)) : 0;
}

/*
 * Whether an interrupted call has done its work all the same, as on a network file system:
 * repeating an exchange would undo it, and repeating a rename would not find the file. `was` is the
 * state of `from` before the first try (st_ino 0: unknown, or it did not exist).
 */
static bool was_done(const struct io_dir *dir, enum io_dirop op, int r, const char *to,
		     const struct stat *was)
{
	struct stat now;

	if (op == IO_UNLINK || op == IO_RMDIR)
		return r == -ENOENT;
	if (op == IO_MKDIR)
		return r == -EEXIST && !was->st_ino;
	return to && was->st_ino && fstatat(dir->fd, to, &now, AT_SYMLINK_NOFOLLOW) == 0 &&
	       now.st_ino == was->st_ino && now.st_dev == was->st_dev;
}

static int local_dirop(struct io_dir *dir, enum io_dirop op, const char *from, const char *to,
		       unsigned mode)
{
	static const char *const names[] = { "cannot make directory", "cannot rename",
					     "cannot rename",         "cannot exchange",
					     "cannot remove",         "cannot remove directory",
					     "cannot sync directory" };
	bool interrupted = false;
	unsigned tries = 0;
	struct stat was;
	int r;

	if (op == IO_SYNC_DIR && dir->io->is_scratch)
		return 0;
	if ((!to && op != IO_MKDIR) || fstatat(dir->fd, from, &was, AT_SYMLINK_NOFOLLOW) < 0)
		was.st_ino = 0;
	if (op == IO_MKDIR)
		io_owner_enter(dir);
	do {
		r = dir->io->ops->dirop(dir->io, op, dir->fd, from, to, mode);
		interrupted |= r == -EINTR;
		if (r < 0 && interrupted && was_done(dir, op, r, to, &was))
			r = 0;
	} while (ask_again(r, &tries));
	if (op == IO_MKDIR)
		io_owner_leave(dir);
	if (op == IO_SYNC_DIR)
		atomic_fetch_add_explicit(&dir->io->stats->syncs, 1, memory_order_relaxed);
	if (op == IO_SYNC_DIR && r < 0)
		atomic_fetch_add_explicit(&dir->io->stats->failed_dir_syncs, 1,
					  memory_order_relaxed);
	if (r >= 0)
		return 0;
	if (to)
		return fail(lasting(r), "%s '%s' to '%s': %s", names[op], from, to, strerror(-r));
	return fail(lasting(r), "%s '%s': %s", names[op], from, strerror(-r));
}

/* Some file systems report no type, so that it takes a stat. False: the entry is gone. */
static bool find_type(DIR *d, struct dirent *e)
{
	struct stat st;

	if (e->d_type != DT_UNKNOWN)
		return true;
	if (fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno != ENOENT;
	e->d_type = IFTODT(st.st_mode);
	return true;
}

static int local_list(struct io_dir *dir, const char *rel, io_list_fn *each, void *arg)
{
	int fd = io_open_in(dir->io, dir, rel, O_RDONLY | O_DIRECTORY, 0), r = 0;
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	unsigned tries = 0;

	if (fd < 0)
		return io_open_failed(fd, dir, "cannot list", rel);
	if (!d) {
		close(fd);
		return fail(-ENOMEM, "cannot list '%s'", io_shown(dir, rel));
	}
	while (r == 0) {
		struct dirent *e;

		errno = 0;
		e = readdir(d);
		if (!e && ask_again(-errno, &tries))
			continue;
		if (!e) {
			r = errno ? err_code(lasting(-errno), "cannot list", io_shown(dir, rel)) :
				    0;
			break;
		}
		if (strcmp(e->d_name, ".") && strcmp(e->d_name, "..") && find_type(d, e))
			r = each(arg, e->d_name, e->d_type);
	}
	closedir(d);
	return r;
}

/* ---- the operations of a directory ---- */

const struct io_dir_ops io_local_dir = {
	.sub = local_sub,
	.open = local_open,
	.temp = local_temp,
	.dirop = local_dirop,
	.list = local_list,
	.stat = io_local_stat,
	.stat_acl = io_local_stat_acl,
};
