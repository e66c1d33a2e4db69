/* SPDX-License-Identifier: Apache-2.0 */
/*
 * io_plain.c - the system calls that both real engines share.
 *
 * Paths are resolved beneath their directory by openat2(). Where the kernel or a container's filter
 * lacks it, the path is opened component by component without following any symbolic link, which is
 * stricter, never weaker.
 */
#include <fcntl.h>
#include <linux/fs.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>

#include "core/base/err.h"
#include "core/base/limits.h"
#include "core/base/thread.h"
#include "core/io/io_engine.h"

static atomic_uint fork_generation;

static void io_plain_forked(void)
{
	atomic_fetch_add(&fork_generation, 1);
}
AT_FORK_CHILD(io_plain_forked);

unsigned io_fork_generation(void)
{
	return atomic_load_explicit(&fork_generation, memory_order_relaxed);
}

void io_plain_run(struct io_req *req)
{
	void *p = io_remaining(req);
	size_t n = req->n - req->done;
	off_t off = (off_t)(req->off + req->done);
	ssize_t r;

	if (req->op == IO_READ)
		r = pread(req->file->fd, p, n, off);
	else if (req->op == IO_WRITE)
		r = pwrite(req->file->fd, p, n, off);
	else
		r = fdatasync(req->file->fd);
	req->result = r < 0 ? -errno : r;
}

/* Open component by component without following any link; for kernels without openat2. */
static int open_by_walk(int dirfd, const char *path, int flags, unsigned mode)
{
	auto_close int at = -1;
	char part[LIMIT_NAME_BYTES + 1];

	while (*path) {
		size_t n = strcspn(path, "/");
		const char *rest = path + n + strspn(path + n, "/");
		struct stat st;
		int fd;

		if (n == 0 || n > LIMIT_NAME_BYTES || (n == 2 && path[0] == '.' && path[1] == '.'))
			return n > LIMIT_NAME_BYTES ? -ENAMETOOLONG : -EXDEV;
		memcpy(part, path, n);
		part[n] = '\0';
		if (*rest)
			fd = openat(at >= 0 ? at : dirfd, part,
				    O_PATH | O_NOFOLLOW | O_DIRECTORY | O_CLOEXEC);
		else
			fd = openat(at >= 0 ? at : dirfd, part, flags | O_NOFOLLOW | O_CLOEXEC,
				    mode);
		if (fd < 0)
			return errno == ELOOP ? -EXDEV : -errno;
		/* O_PATH opens a symbolic link itself. */
		if (!*rest && flags & O_PATH && !(flags & O_NOFOLLOW) && fstat(fd, &st) == 0 &&
		    S_ISLNK(st.st_mode)) {
			close(fd);
			return -EXDEV;
		}
		if (!*rest)
			return fd;
		mem_close_cleanup(&at);
		at = fd;
		path = rest;
	}
	return -ENOENT;
}

void io_follow_no_links(struct io_engine *io)
{
	for (; io; io = io->below)
		io->no_links = true;
}

int io_plain_open(struct io_engine *io, int dirfd, const char *path, int flags, unsigned mode)
{
	struct open_how how = {
		.flags = (uint64_t)(flags | O_CLOEXEC),
		.mode = flags & O_CREAT ? mode : 0,
		.resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS |
			   (io->no_links ? RESOLVE_NO_SYMLINKS : 0),
	};
	long fd;

	/*
	 * -EAGAIN means that a rename raced with the resolution, or that someone holds a lease;
	 * io.c repeats the call.
	 */
	fd = syscall(SYS_openat2, dirfd, path, &how, sizeof(how));
	if (fd >= 0)
		return (int)fd;
	if (errno == ENOSYS || errno == EPERM)
		return open_by_walk(dirfd, path, flags, mode);
	return errno == ELOOP ? -EXDEV : -errno;
}

int io_plain_parent(struct io_engine *io, int dirfd, const char *path, const char **ret_last)
{
	const char *slash = strrchr(path, '/');
	char parent[LIMIT_PATH_BYTES + 1];

	if (!slash) {
		*ret_last = path;
		return io_plain_open(io, dirfd, ".", O_PATH | O_DIRECTORY, 0);
	}
	if ((size_t)(slash - path) > LIMIT_PATH_BYTES)
		return -ENAMETOOLONG;
	*ret_last = slash + 1;
	snprintf(parent, sizeof(parent), "%.*s", (int)(slash - path), path);
	return io_plain_open(io, dirfd, parent, O_PATH | O_DIRECTORY, 0);
}

static int plain_rename(struct io_engine *io, enum io_dirop op, int dirfd, const char *from,
			const char *to)
{
	unsigned flags = op == IO_RENAME_NEW ? RENAME_NOREPLACE :
			 op == IO_EXCHANGE   ? RENAME_EXCHANGE :
					       0;
	const char *from_last, *to_last;
	auto_close int from_fd = io_plain_parent(io, dirfd, from, &from_last);
	auto_close int to_fd = io_plain_parent(io, dirfd, to, &to_last);

	if (from_fd < 0 || to_fd < 0)
		return from_fd < 0 ? from_fd : to_fd;
	if (renameat2(from_fd, from_last, to_fd, to_last, flags) == 0)
		return 0;
	if (errno != EINVAL || op != IO_RENAME_NEW)
		return -errno;
	/*
	 * Without RENAME_NOREPLACE in the file system, looking first is the best that is possible.
	 */
	if (faccessat(to_fd, to_last, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
		return -EEXIST;
	return renameat(from_fd, from_last, to_fd, to_last) == 0 ? 0 : -errno;
}

int io_plain_unlinked(const char *dir)
{
	char path[LIMIT_PATH_BYTES + 1];
	int fd;

	if (snprintf(path, sizeof(path), "%s/pytreefs.XXXXXX", dir) >= (int)sizeof(path))
		return -ENAMETOOLONG;
	fd = mkostemp(path, O_CLOEXEC);
	if (fd < 0)
		return -errno;
	unlink(path);
	return fd;
}

int io_plain_dirop(struct io_engine *io, enum io_dirop op, int dirfd, const char *from,
		   const char *to, unsigned mode)
{
	const char *last;
	auto_close int fd = -1;

	if (op == IO_RENAME || op == IO_RENAME_NEW || op == IO_EXCHANGE)
		return plain_rename(io, op, dirfd, from, to);
	if (op == IO_SYNC_DIR) {
		fd = io_plain_open(io, dirfd, from, O_RDONLY | O_DIRECTORY, 0);
		if (fd < 0)
			return fd;
		return fsync(fd) == 0 ? 0 : -errno;
	}
	fd = io_plain_parent(io, dirfd, from, &last);
	if (fd < 0)
		return fd;
	if (op == IO_MKDIR)
		return mkdirat(fd, last, mode) == 0 ? 0 : -errno;
	return unlinkat(fd, last, op == IO_RMDIR ? AT_REMOVEDIR : 0) == 0 ? 0 : -errno;
}

int io_plain_truncate(struct io_engine *io, struct io_file *file, uint64_t size)
{
	(void)io;
	return ftruncate(file->fd, (off_t)size) == 0 ? 0 : -errno;
}

int64_t io_plain_splice(struct io_engine *io, struct io_file *file, uint64_t off, size_t n,
			int pipe)
{
	off_t at = (off_t)off;
	ssize_t r = splice(file->fd, &at, pipe, NULL, n, SPLICE_F_NONBLOCK);

	(void)io;
	return r < 0 ? -errno : r;
}
