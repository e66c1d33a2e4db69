/* SPDX-License-Identifier: Apache-2.0 */
/*
 * io_crash.c - wrapper: the power goes at the nth change.
 *
 *     fault(crash:MODE@N)
 *
 *     keep    what was written and renamed had reached the disk, synced or not
 *     drop    nothing had that was not synced
 *     tear    some of it had: sectors and names by chance, seeded by N; the Nth
 *             change itself, too
 *     lose    the Nth change, when it is a sync, fails (EIO), and what it was to
 *             write never becomes durable by another one; the power goes at the end
 *
 * Changes are writes, syncs, truncations, and all that makes, moves or removes a
 * name; they are counted from 1. From the moment on when the power is gone every
 * call fails, reads too, and the files are what the disk would have. It goes at
 * the latest when the engine is closed. The real syncs are not made: only this
 * engine's model (crash_model.h) counts, and it takes its time already.
 *
 * Invariants: the model changes after the change that it records was made, under one lock of all
 * such engines.
 */
#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>

#include "core/base/err.h"
#include "core/base/log.h"
#include "core/io/io_engine.h"
#include "tests/engine/crash_model.h"
#include "tests/engine/io_crash.h"

/*
 * Protects all engines of this kind, and is held during each call. Ranks that are threads of a test
 * have one engine each, and all others stop while the power of one goes.
 */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned failures;

struct io_crash {
	struct io_engine base;
	enum crash_mode mode;
	uint64_t at, count;
	bool is_off;
	struct crash_model model;
};

static struct io_crash *crash_of(struct io_engine *io)
{
	return container_of(io, struct io_crash, base);
}

static int power_off(struct io_crash *c)
{
	int r = crash_disk(&c->model, c->mode, c->at, c->base.below);

	if (r < 0) {
		failures++;
		log_error("the power loss at change %llu could not be acted out: %s",
			  (unsigned long long)c->at, err_text(r));
	}
	c->is_off = true;
	crash_model_release(&c->model);
	return -EIO;
}

/* Called before each change, with the lock held: whether it may be made. */
static int before(struct io_crash *c)
{
	if (c->is_off)
		return -EIO;
	c->count++;
	if (c->count == c->at && (c->mode == CRASH_KEEP || c->mode == CRASH_DROP))
		return power_off(c);
	return 0;
}

/* Called after each change that was made, with its result r. */
static int after(struct io_crash *c, int r)
{
	return c->count == c->at && c->mode == CRASH_TEAR ? power_off(c) : r;
}

/* ---- files ---- */

static int do_write(struct io_crash *c, struct io_req *req)
{
	struct io_engine *below = c->base.below;
	struct crash_node *n;
	int r = crash_node_of(&c->model, req->file->fd, false, &n);

	if (r >= 0)
		r = crash_touch(n);
	if (r >= 0)
		r = below->ops->submit(below, req, 1);
	if (r >= 0)
		r = below->ops->wait(below, req, 1);
	if (r < 0 || req->result <= 0)
		return r;
	return crash_wrote(n, req->off + req->done, (uint64_t)req->result);
}

static int do_sync(struct io_crash *c, int fd)
{
	struct crash_node *n = crash_find(&c->model, fd);

	if (c->count == c->at && c->mode == CRASH_LOSE) {
		crash_sync_lost(n);
		return -EIO;
	}
	/* It was interrupted before its end, so its effect is random. */
	if (c->count == c->at && c->mode == CRASH_TEAR)
		return 0;
	return crash_synced(n);
}

static void one_request(struct io_crash *c, struct io_req *req)
{
	struct io_engine *below = c->base.below;
	int r;

	if (req->op == IO_READ) {
		r = c->is_off ? -EIO : below->ops->submit(below, req, 1);
		if (r >= 0)
			r = below->ops->wait(below, req, 1);
	} else {
		r = before(c);
		if (r >= 0 && req->op == IO_SYNC) {
			r = do_sync(c, req->file->fd);
			req->result = r;
		} else if (r >= 0) {
			r = do_write(c, req);
		}
		r = after(c, r);
	}
	if (r < 0)
		req->result = r;
}

static int crash_submit(struct io_engine *io, struct io_req *req, size_t n)
{
	struct io_crash *c = crash_of(io);

	pthread_mutex_lock(&lock);
	for (size_t i = 0; i < n; i++)
		one_request(c, &req[i]);
	pthread_mutex_unlock(&lock);
	return 0;
}

static int crash_wait(struct io_engine *io, struct io_req *req, size_t n)
{
	(void)io, (void)req, (void)n;
	return 0;
}

static int do_truncate(struct io_crash *c, struct io_file *file, uint64_t size)
{
	struct crash_node *n;
	int r = crash_node_of(&c->model, file->fd, false, &n);

	if (r >= 0)
		r = crash_touch(n);
	if (r >= 0)
		r = c->base.below->ops->truncate(c->base.below, file, size);
	if (r >= 0)
		crash_truncated(n);
	return r;
}

static int crash_truncate(struct io_engine *io, struct io_file *file, uint64_t size)
{
	struct io_crash *c = crash_of(io);
	int r;

	pthread_mutex_lock(&lock);
	r = before(c);
	if (r >= 0)
		r = after(c, do_truncate(c, file, size));
	pthread_mutex_unlock(&lock);
	return r;
}

static int64_t crash_splice(struct io_engine *io, struct io_file *file, uint64_t off, size_t n,
			    int pipe)
{
	struct io_crash *c = crash_of(io);
	int64_t r;

	pthread_mutex_lock(&lock);
	r = c->is_off ? -EIO : io->below->ops->splice(io->below, file, off, n, pipe);
	pthread_mutex_unlock(&lock);
	return r;
}

/* ---- names ---- */

/* Get the node of the directory that contains path; ret_last is the last component. */
static int parent_of(struct io_crash *c, int dirfd, const char *path, struct crash_node **ret,
		     const char **ret_last)
{
	auto_close int fd = io_plain_parent(c->base.below, dirfd, path, ret_last);

	return fd < 0 ? fd : crash_node_of(&c->model, fd, false, ret);
}

/* Get the node of a name, following links; NULL: it does not exist. */
static int node_at(struct io_crash *c, const struct crash_node *dir, const char *name,
		   struct crash_node **ret)
{
	auto_close int fd = openat(dir->fd, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);

	*ret = NULL;
	if (fd < 0)
		return errno == ENOENT ? 0 : -errno;
	return crash_node_of(&c->model, fd, false, ret);
}

static int make_name(struct io_crash *c, struct crash_node *dir, const char *name)
{
	auto_close int fd = openat(dir->fd, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	struct crash_node *n;
	int r = fd < 0 ? -errno : crash_node_of(&c->model, fd, true, &n);

	return r < 0 ? r : crash_renamed(dir, name, NULL, n, NULL, NULL, NULL);
}

static int do_open(struct io_crash *c, int dirfd, const char *path, int flags, unsigned mode)
{
	struct io_engine *below = c->base.below;
	struct crash_node *dir, *was;
	const char *last;
	int r, fd;

	/* A file without a name does not survive a power loss. */
	if (flags & (O_TMPFILE & ~O_DIRECTORY))
		return below->ops->open(below, dirfd, path, flags, mode);
	r = parent_of(c, dirfd, path, &dir, &last);
	if (r >= 0)
		r = node_at(c, dir, last, &was);
	if (r >= 0 && was && !was->is_dir && (flags & O_TRUNC))
		r = crash_touch(was);
	if (r < 0)
		return r;
	fd = below->ops->open(below, dirfd, path, flags, mode);
	if (fd < 0)
		return fd;
	if (!was)
		r = make_name(c, dir, last);
	else if (flags & O_TRUNC)
		crash_truncated(was);
	if (r < 0)
		close(fd);
	return r < 0 ? r : fd;
}

static int crash_open(struct io_engine *io, int dirfd, const char *path, int flags, unsigned mode)
{
	struct io_crash *c = crash_of(io);
	int r;

	pthread_mutex_lock(&lock);
	if (flags & (O_CREAT | O_TRUNC | (O_TMPFILE & ~O_DIRECTORY))) {
		r = before(c);
		if (r >= 0) {
			int fd = do_open(c, dirfd, path, flags, mode);

			r = after(c, fd);
			if (r < 0 && fd >= 0)
				close(fd);
		}
	} else {
		r = c->is_off ? -EIO : io->below->ops->open(io->below, dirfd, path, flags, mode);
	}
	pthread_mutex_unlock(&lock);
	return r;
}

static int do_rename(struct io_crash *c, enum io_dirop op, int dirfd, const char *from,
		     const char *to)
{
	struct crash_node *from_dir, *to_dir, *moved, *was, *left;
	const char *from_last, *to_last;
	int r = parent_of(c, dirfd, from, &from_dir, &from_last);

	if (r >= 0)
		r = parent_of(c, dirfd, to, &to_dir, &to_last);
	if (r >= 0)
		r = node_at(c, from_dir, from_last, &moved);
	if (r >= 0)
		r = node_at(c, to_dir, to_last, &was);
	if (r >= 0)
		r = c->base.below->ops->dirop(c->base.below, op, dirfd, from, to, 0);
	if (r < 0)
		return r;
	left = op == IO_EXCHANGE ? was : NULL;
	if (from_dir == to_dir)
		return crash_renamed(from_dir, from_last, moved, left, to_last, was, moved);
	r = crash_renamed(to_dir, to_last, was, moved, NULL, NULL, NULL);
	return r < 0 ? r : crash_renamed(from_dir, from_last, moved, left, NULL, NULL, NULL);
}

static int do_dirop(struct io_crash *c, enum io_dirop op, int dirfd, const char *from,
		    const char *to, unsigned mode)
{
	struct crash_node *dir, *was;
	const char *last;
	int r;

	if (op == IO_RENAME || op == IO_RENAME_NEW || op == IO_EXCHANGE)
		return do_rename(c, op, dirfd, from, to);
	if (op == IO_SYNC_DIR) {
		auto_close int fd =
			io_plain_open(c->base.below, dirfd, from, O_RDONLY | O_DIRECTORY, 0);

		return fd < 0 ? fd : do_sync(c, fd);
	}
	r = parent_of(c, dirfd, from, &dir, &last);
	if (r >= 0)
		r = node_at(c, dir, last, &was);
	if (r >= 0)
		r = c->base.below->ops->dirop(c->base.below, op, dirfd, from, to, mode);
	if (r < 0)
		return r;
	if (op == IO_MKDIR)
		return make_name(c, dir, last);
	return crash_renamed(dir, last, was, NULL, NULL, NULL, NULL);
}

static int crash_dirop(struct io_engine *io, enum io_dirop op, int dirfd, const char *from,
		       const char *to, unsigned mode)
{
	struct io_crash *c = crash_of(io);
	int r;

	pthread_mutex_lock(&lock);
	r = before(c);
	if (r >= 0)
		r = after(c, do_dirop(c, op, dirfd, from, to, mode));
	pthread_mutex_unlock(&lock);
	return r;
}

/* ---- the engine ---- */

unsigned io_crash_failures(void)
{
	unsigned n;

	pthread_mutex_lock(&lock);
	n = failures;
	pthread_mutex_unlock(&lock);
	return n;
}

static void crash_free(struct io_engine *io)
{
	struct io_crash *c = crash_of(io);

	pthread_mutex_lock(&lock);
	if (!c->is_off)
		power_off(c);
	pthread_mutex_unlock(&lock);
	io->below->ops->free(io->below);
	free(c);
}

static const struct io_engine_ops crash_ops = {
	.name = "crash",
	.submit = crash_submit,
	.wait = crash_wait,
	.open = crash_open,
	.dirop = crash_dirop,
	.truncate = crash_truncate,
	.splice = crash_splice,
	.free = crash_free,
};

static int crash_engine_open(const char *what, struct io_engine *below, struct io_engine **ret)
{
	static const char *const modes[] = { "keep@", "drop@", "tear@", "lose@" };
	struct io_crash *c;
	char *end;

	for (size_t i = 0; i < ARRAY_LEN(modes); i++) {
		if (strncmp(what, modes[i], 5) || what[5] < '0' || what[5] > '9')
			continue;
		c = calloc(1, sizeof(*c));
		if (!c)
			return fail(-ENOMEM, "cannot allocate an I/O engine");
		c->mode = (enum crash_mode)i;
		c->at = strtoull(what + 5, &end, 10);
		if (*end) {
			free(c);
			break;
		}
		c->base.ops = &crash_ops;
		c->base.below = below;
		*ret = &c->base;
		return 0;
	}
	return fail(
		-EINVAL,
		"'crash:%s' is not a power loss; it is crash:MODE@N, MODE one of keep, drop, tear, lose",
		what);
}

void io_crash_register(void)
{
	static struct io_engine_kind kind = { .name = "crash", .open = crash_engine_open };

	io_register_engine(&kind);
}
