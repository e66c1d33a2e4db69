/* SPDX-License-Identifier: Apache-2.0 */
/*
 * spill.c - temporary files of our own, outside the checkpoint.
 *
 * They bypass the I/O engine, since they are not part of a checkpoint, are not
 * durable, and do not count as reads of one.
 */
#include "core/zarr/spill.h"

#include <fcntl.h>
#include <stdio.h>

#include "core/base/err.h"
#include "core/base/limits.h"
#include "core/base/mem.h"

struct spill {
	int fd;
};

static int open_unlinked(const char *dir)
{
	char path[LIMIT_PATH_BYTES + 1];
	int fd = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);

	if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL))
		return fd;
	/* The file system does not have O_TMPFILE. */
	if (snprintf(path, sizeof(path), "%s/pytreefs-spill.XXXXXX", dir) >= (int)sizeof(path)) {
		errno = ENAMETOOLONG;
		return -1;
	}
	fd = mkostemp(path, O_CLOEXEC);
	if (fd >= 0)
		unlink(path);
	return fd;
}

int spill_open(const char *dir, struct spill **ret)
{
	struct spill *s = calloc(1, sizeof(*s));

	if (!s)
		return fail(-ENOMEM, "cannot make a spill file");
	s->fd = open_unlinked(dir);
	if (s->fd < 0) {
		int r = err_sys("cannot make a spill file in", dir);

		free(s);
		return r;
	}
	*ret = s;
	return 0;
}

int spill_write(struct spill *s, const void *p, size_t n, uint64_t off)
{
	const char *at = p;

	while (n > 0) {
		ssize_t w = pwrite(s->fd, at, n, (off_t)off);

		if (w < 0 && errno == EINTR)
			continue;
		if (w <= 0)
			return err_code(w < 0 ? -errno : -EIO, "cannot write", "spill file");
		at += w;
		off += (uint64_t)w;
		n -= (size_t)w;
	}
	return 0;
}

int spill_read(struct spill *s, void *p, size_t n, uint64_t off)
{
	char *at = p;

	while (n > 0) {
		ssize_t r = pread(s->fd, at, n, (off_t)off);

		if (r < 0 && errno == EINTR)
			continue;
		if (r <= 0)
			return err_code(r < 0 ? -errno : -EIO, "cannot read", "spill file");
		at += r;
		off += (uint64_t)r;
		n -= (size_t)r;
	}
	return 0;
}

void spill_close(struct spill *s)
{
	if (!s)
		return;
	close(s->fd);
	free(s);
}
