/* SPDX-License-Identifier: Apache-2.0 */
/*
 * io_look.c - determine the type of a file before it is opened.
 *
 * The author of a checkpoint may have put a device, a terminal or a FIFO where a file should be,
 * and opening one has effects: it rewinds a tape, acquires a controlling terminal, wakes the writer
 * of a FIFO. An open with O_PATH does none of this. The name may be changed between this look and
 * the open; so the open uses O_NONBLOCK and O_NOCTTY, and the opened file is examined again.
 */
#include <fcntl.h>
#include <sys/stat.h>

#include "core/base/err.h"
#include "core/io/bucket_mount.h"
#include "core/io/io_engine.h"

int io_not_regular(const char *name, mode_t mode)
{
	const char *kind = S_ISFIFO(mode) ? "a FIFO" :
			   S_ISCHR(mode)  ? "a character device" :
			   S_ISBLK(mode)  ? "a block device" :
			   S_ISSOCK(mode) ? "a socket" :
					    "of another kind";

	if (S_ISDIR(mode))
		return fail(-EISDIR, "'%s' is not a regular file, it is a directory", name);
	return fail(-EUCLEAN, "'%s' is not a regular file, it is %s", name, kind);
}

static int look_at(int fd, const char *name)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return err_sys("cannot stat", name);
	return S_ISREG(st.st_mode) ? 0 : io_not_regular(name, st.st_mode);
}

/* Make the note for an open that failed; it is the same for every use of the file. */
int io_open_failed(int r, const struct io_dir *dir, const char *what, const char *rel)
{
	rel = io_shown(dir, rel);
	if (r == -EXDEV)
		return fail(
			-EUCLEAN,
			"'%s' leads out of '%s'%s%s; `cp -rL` makes a copy with files in place of "
			"links",
			rel, dir->path,
			dir->io->no_links ?
				", or is a symbolic link, which a mount for other users "
				"(allow_other) does not follow" :
				"",
			dir->io->no_links && dir->hub ?
				" unless it leads to a file in blobs/ of the owner of the link, "
				"and all users may enter that directory (`chmod a+x blobs`)" :
				"");
	/* A socket. */
	if (r == -ENXIO)
		return fail(-EUCLEAN, "'%s' is not a regular file", rel);
	return fail(r, "%s '%s': %s%s", what, rel, strerror(-r),
		    bucket_mount_advice(dir->bucket, r, true));
}

int io_look_first(struct io_dir *dir, const char *rel)
{
	struct io_engine *io = dir->io;
	auto_close int fd = -1;

	/* Use the real engine: the wrappers trace, and fail, the open that follows. */
	while (io->below)
		io = io->below;
	fd = io_open_in(io, dir, rel, O_PATH, 0);
	return fd < 0 ? io_open_failed(fd, dir, "cannot open", rel) : look_at(fd, rel);
}

int io_open_regular(const char *path)
{
	auto_close int at = open(path, O_PATH | O_CLOEXEC);
	int fd, r = at < 0 ? err_sys("cannot open", path) : look_at(at, path);

	if (r < 0)
		return r;
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (fd < 0)
		return err_sys("cannot open", path);
	r = look_at(fd, path);
	/* With O_NONBLOCK some file systems would not wait for the disk. */
	if (r >= 0 && fcntl(fd, F_SETFL, 0) < 0)
		r = err_sys("cannot open", path);
	if (r < 0)
		close(fd);
	return r < 0 ? r : fd;
}
