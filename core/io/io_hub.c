/* SPDX-License-Identifier: Apache-2.0 */
/*
 * io_hub.c - files in the cache of the Hugging Face hub, which are links out of their directory.
 *
 * The cache has a directory for each repository:
 *
 *     models--ORG--NAME/blobs/HASH                     the files
 *     models--ORG--NAME/snapshots/REVISION/DIR/FILE    links to them: "../../../blobs/HASH"
 *
 * In a directory at or below `snapshots`, a link is followed if its text has this form, leads to
 * the `blobs` beside that very `snapshots`, and what has the name there is a regular file. So a
 * stranger who made all of the directory can show what is in `blobs`, and nothing else: no other
 * link is followed on the way, and none from there.
 */
#include <fcntl.h>
#include <stdio.h>
#include <sys/xattr.h>

#include "core/base/err.h"
#include "core/base/limits.h"
#include "core/io/io_engine.h"

#define SNAPSHOTS "/snapshots"

struct io_hub {
	int fd; /* of `blobs` */
	dev_t dev;
	ino_t ino;
	atomic_uint refs;
};

static int open_directory(int at, const char *name)
{
	int fd = openat(at, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	return fd < 0 ? -errno : fd;
}

/*
 * The offset of the last "/snapshots" that begins before `end` and is a whole component; SIZE_MAX:
 * there is none.
 */
static size_t last_snapshots(const char *path, size_t end)
{
	const size_t n = strlen(SNAPSHOTS);

	while (end-- > 0)
		if (!strncmp(path + end, SNAPSHOTS, n) && (path[end + n] == '/' || !path[end + n]))
			return end;
	return SIZE_MAX;
}

struct io_hub *io_hub_find(const char *path)
{
	auto_free char *real = realpath(path, NULL);
	auto_close int fd = -1;
	struct io_hub *hub;
	struct stat st;

	/* A repository may have a directory of that name, too. */
	for (size_t n = real ? strlen(real) : 0; fd < 0 && n > 0;) {
		auto_free char *blobs = NULL;

		n = last_snapshots(real, n);
		if (n == SIZE_MAX)
			return NULL;
		blobs = str_fmt("%.*s/blobs", (int)n, real);
		fd = blobs ? open_directory(AT_FDCWD, blobs) : -ENOMEM;
	}
	if (fd < 0 || fstat(fd, &st) < 0)
		return NULL;
	hub = calloc(1, sizeof(*hub));
	if (!hub)
		return NULL;
	hub->fd = fd;
	hub->dev = st.st_dev;
	hub->ino = st.st_ino;
	atomic_init(&hub->refs, 1);
	fd = -1;
	return hub;
}

struct io_hub *io_hub_ref(struct io_hub *hub)
{
	if (hub)
		atomic_fetch_add_explicit(&hub->refs, 1, memory_order_relaxed);
	return hub;
}

void io_hub_unref(struct io_hub *hub)
{
	if (!hub || atomic_fetch_sub_explicit(&hub->refs, 1, memory_order_acq_rel) != 1)
		return;
	close(hub->fd);
	free(hub);
}

int io_dir_blobs(const struct io_dir *dir)
{
	return dir->hub ? dir->hub->fd : -1;
}

/* Whether "../" n times, from a directory, is where the cache's `blobs` is. */
static bool leads_to_blobs(const struct io_hub *hub, int from, size_t n)
{
	auto_close int at = open_directory(from, ".");
	struct stat st;

	for (; at >= 0 && n > 0; n--) {
		int up = open_directory(at, "..");

		close(at);
		at = up;
	}
	if (at >= 0) {
		int blobs = open_directory(at, "blobs");

		close(at);
		at = blobs;
	}
	return at >= 0 && fstat(at, &st) == 0 && st.st_dev == hub->dev && st.st_ino == hub->ino;
}

/*
 * The name in "../../blobs/NAME", the text of a link in the directory `above`; NULL: the link is
 * another one.
 */
static const char *blob_of(const struct io_hub *hub, int above, const char *text)
{
	size_t n = 0;

	for (; !strncmp(text, "../", 3); n++)
		text += 3;
	if (n == 0 || strncmp(text, "blobs/", 6) || !leads_to_blobs(hub, above, n))
		return NULL;
	text += 6;
	return *text && !strchr(text, '/') && strcmp(text, ".") && strcmp(text, "..") ? text : NULL;
}

/*
 * Whether a blob may be read on behalf of other users. Who made the link could otherwise show a
 * file that only the user of the mount may read. The mode of the file itself is checked as that of
 * any.
 */
static bool is_for_others(const struct io_hub *hub, const struct stat *link,
			  const struct stat *blob)
{
	char path[32];
	struct stat st;

	if (link->st_uid != blob->st_uid || fstat(hub->fd, &st) < 0 || (st.st_mode & 011) != 011)
		return false;
	/* An access control list may close it to somebody. */
	snprintf(path, sizeof(path), "/proc/self/fd/%d", hub->fd);
	return getxattr(path, "system.posix_acl_access", NULL, 0) < 0 &&
	       (errno == ENODATA || errno == EOPNOTSUPP);
}

/*
 * Open the blob that a link in dir leads to. -EXDEV: there is no such link, or it must not be
 * followed.
 */
static int open_blob(struct io_engine *io, struct io_dir *dir, const char *rel, int flags)
{
	char text[LIMIT_PATH_BYTES + 1];
	const char *last, *name;
	struct stat own, st;
	auto_close int above = io_plain_parent(io, dir->fd, rel, &last), link = -1;
	int fd;
	ssize_t n;

	if (above < 0)
		return -EXDEV;
	link = openat(above, last, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	n = link < 0 ? -1 : readlinkat(link, "", text, sizeof(text) - 1);
	if (n <= 0 || fstat(link, &own) < 0)
		return -EXDEV;
	text[n] = '\0';
	name = blob_of(dir->hub, above, text);
	if (!name)
		return -EXDEV;
	fd = io_open_at(io, dir->hub->fd, name, flags | O_NOFOLLOW, 0);
	if (fd < 0)
		return fd;
	if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) &&
	    (!io->no_links || is_for_others(dir->hub, &own, &st)))
		return fd;
	close(fd);
	return -EXDEV;
}

int io_open_in(struct io_engine *io, struct io_dir *dir, const char *rel, int flags, unsigned mode)
{
	int fd = io_open_at(io, dir->fd, rel, flags, mode);
	bool reads = (flags & O_ACCMODE) == O_RDONLY && !(flags & (O_CREAT | O_TRUNC));

	return fd == -EXDEV && dir->hub && reads ? open_blob(io, dir, rel, flags) : fd;
}
