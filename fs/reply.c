/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reply.c - the only caller of fuse_reply_*: errno mapping, one line per failure.
 *
 * Ordinary failures (a name that does not exist, an xattr that a file does not have) are not
 * logged.
 */
#include <errno.h>
#include <linux/fuse.h>
#include <string.h>
#include <unistd.h>

#include "core/base/blocks.h"
#include "core/base/err.h"
#include "core/base/log.h"
#include "fs/fs.h"
#include "fs/operations.h"
#include "fs/pipes.h"

/* Some failures are never logged, and some only if they have a note. */
static bool is_silent(int code)
{
	switch (code) {
	case -ENODATA:
	case -ERANGE:
	case -ENXIO:
	case -ENOSYS:
	case -EINTR:
		return true;
	case -ENOENT:
	case -EOPNOTSUPP:
	case -EROFS:
	case -EACCES:
	case -ENAMETOOLONG:
		return !*err_where(code);
	default:
		return code >= 0;
	}
}

/*
 * Programs that write may exceed a limit themselves. For others, an exceeded limit means that the
 * checkpoint is damaged, perhaps on purpose.
 */
static int errno_of(int code, const char *op)
{
	static const char *const changes[] = {
		"write",
		"copy to",
		"change",
		"close",
		"sync",
		"create",
		"create a file in",
		"make a directory in",
		"rename in",
		"set an attribute of",
	};

	if (code == -EFBIG) {
		for (size_t i = 0; i < ARRAY_LEN(changes); i++)
			if (!strcmp(op, changes[i]))
				return EFBIG;
		return EIO;
	}
	return code < 0 ? err_errno(code) : 0;
}

void reply_code(fuse_req_t req, int code, const char *op, const struct node *n)
{
	if (!is_silent(code)) {
		struct fs *fs = fuse_req_userdata(req);
		auto_buf path = { 0 };

		if (n)
			node_path(n, &path);
		log_error("cannot %s '%s': %s", op, path.n ? buf_str(&path) : "/", err_text(code));
		operation_failed(fs->ns);
	}
	err_clear();
	fuse_reply_err(req, errno_of(code, op));
}

/* Every reply clears the thread's note, so that it cannot explain a later failure. */

/* Fill in a new name's node and attributes, or else reply that it failed. */
static bool entry_begin(fuse_req_t req, struct node *n, const char *op,
			struct fuse_entry_param *ret)
{
	struct stat st;
	int r = node_stat(n, &st);

	if (r < 0) {
		reply_code(req, r, op, n);
		node_unref(n, 1);
		return false;
	}
	err_clear();
	fs_entry_take(fuse_req_userdata(req), n, &st, ret);
	return true;
}

/* Returns false if the caller is gone: the kernel has dropped its lookup count. */
static bool entry_end(int r, struct node *n)
{
	if (r == -ENOENT)
		node_unref(n, 1);
	return r != -ENOENT;
}

void reply_entry(fuse_req_t req, struct node *n, const char *op)
{
	struct fuse_entry_param e;

	if (entry_begin(req, n, op, &e))
		entry_end(fuse_reply_entry(req, &e), n);
}

bool reply_create(fuse_req_t req, struct node *n, const struct fuse_file_info *fi)
{
	struct fuse_entry_param e;

	if (!entry_begin(req, n, "create", &e))
		return false;
	/*
	 * Programs stat a file right after they create it. The kernel drops these attributes at the
	 * first write.
	 */
	e.attr_timeout = NS_ROOT_TTL;
	return entry_end(fuse_reply_create(req, &e, fi), n);
}

void reply_attr(fuse_req_t req, struct node *n, const char *op)
{
	struct stat st;
	int r = node_stat(n, &st);

	if (r < 0) {
		reply_code(req, r, op, n);
		return;
	}
	err_clear();
	fuse_reply_attr(req, &st, node_attr_ttl(n));
}

/*
 * The kernel takes at most IOV_MAX segments. It would refuse a longer reply, and the reader would
 * wait for ever. Far below this limit, a copy is already cheaper than the list.
 */
#define SEGMENTS_MAX 256

static int reply_copy(fuse_req_t req, const struct segments *g)
{
	char *to = queue_buffer(g->bytes), *p = to ? to : block_alloc(g->bytes);
	int r = p ? segments_copy(g, p) :
		    fail(-ENOMEM, "cannot answer with %llu bytes", (unsigned long long)g->bytes);

	if (r >= 0)
		fuse_reply_buf(req, p, g->bytes);
	if (!to)
		block_free(p, g->bytes);
	return r;
}

static int reply_memory(fuse_req_t req, const struct segments *g)
{
	struct iovec iov[SEGMENTS_MAX];
	int n = 0;

	for (size_t i = 0; i < g->n; i++) {
		if (g->seg[i].n == 0)
			continue;
		iov[n].iov_base = (void *)(uintptr_t)g->seg[i].p;
		iov[n++].iov_len = g->seg[i].n;
	}
	fuse_reply_iov(req, iov, n);
	return 0;
}

/*
 * The pages that libfuse reserves in the pipe through which it moves the reply. For fewer than two,
 * it would copy the data out of our pipe.
 */
static size_t pages_of_libfuse(const struct segments *g)
{
	const size_t page = (size_t)sysconf(_SC_PAGESIZE);
	size_t want = 3 + (g->bytes + sizeof(struct fuse_out_header) + page - 1) / page, pages = 16;

	while (pages < want)
		pages *= 2;
	return g->bytes < 2 * page ? 0 : pages;
}

/*
 * Move ranges of data files from the page cache into the kernel without a copy. All bytes are
 * collected in a pipe first, so the reply cannot be short. 1: not possible, and nothing was sent.
 */
static int reply_splice(fuse_req_t req, const struct segments *g)
{
	struct fuse_bufvec v = FUSE_BUFVEC_INIT(g->bytes);
	size_t pages = pages_of_libfuse(g);
	struct thread_pipe *p;
	int r;

	/* The header takes a page, too. Nothing is spliced into the buffer of a queue. */
	if (segments_pages(g) + 1 > pages || queue_buffer(0))
		return 1;
	p = pipe_of_thread(pages);
	if (!p)
		return 1;
	r = segments_splice(g, p->in);
	if (r != 0) {
		pipe_drop(p);
		return r;
	}
	v.buf[0].flags = FUSE_BUF_IS_FD | FUSE_BUF_FD_RETRY;
	v.buf[0].fd = p->out;
	r = fuse_reply_data(req, &v, FUSE_BUF_SPLICE_MOVE);
	/*
	 * -ENOENT: the caller is gone. For other errors, the kernel has reported EIO to it: for
	 * example, if a page was truncated meanwhile.
	 */
	if (r < 0 && r != -ENOENT)
		log_error("cannot answer with %llu bytes: %s", (unsigned long long)g->bytes,
			  strerror(-r));
	if (r < 0 || !pipe_is_empty(p))
		pipe_drop(p);
	return 0;
}

void reply_segments(fuse_req_t req, struct segments *g, struct node *n)
{
	bool files = false;
	int r = 1;

	/* libfuse would tell its stderr that the bytes were refused. */
	if (requests_is_abandoned()) {
		reply_code(req, -EINTR, "read", n);
		return;
	}
	for (size_t i = 0; i < g->n; i++)
		files |= g->seg[i].kind == SEGMENT_FILE && g->seg[i].n;
	if (files)
		r = reply_splice(req, g);
	else if (g->n <= SEGMENTS_MAX)
		r = reply_memory(req, g);
	if (r > 0)
		r = reply_copy(req, g);
	if (r < 0)
		reply_code(req, r, "read", n);
	else
		err_clear();
}

int reply_bytes(fuse_req_t req, const void *p, size_t n)
{
	err_clear();
	return fuse_reply_buf(req, p, n);
}

void reply_xattr(fuse_req_t req, struct span value, size_t size)
{
	err_clear();
	if (size == 0)
		fuse_reply_xattr(req, value.n);
	else if (value.n > size)
		reply_code(req, -ERANGE, "read attribute of", NULL);
	else
		fuse_reply_buf(req, (const char *)value.p, value.n);
}

bool reply_open(fuse_req_t req, const struct fuse_file_info *fi)
{
	err_clear();
	return fuse_reply_open(req, fi) != -ENOENT;
}

void reply_none(fuse_req_t req)
{
	err_clear();
	fuse_reply_none(req);
}

void reply_count(fuse_req_t req, size_t n)
{
	err_clear();
	fuse_reply_write(req, n);
}

void reply_offset(fuse_req_t req, uint64_t off)
{
	err_clear();
	fuse_reply_lseek(req, (off_t)off);
}

void reply_link(fuse_req_t req, const char *target)
{
	err_clear();
	fuse_reply_readlink(req, target);
}

void reply_statfs(fuse_req_t req, const struct statvfs *st)
{
	err_clear();
	fuse_reply_statfs(req, st);
}
