/*
 * reply.c - the only caller of fuse_reply_*: errno mapping, one line per failure.
 *
 * Failures that are part of ordinary life (a name that does not exist, an xattr
 * that a file does not have) are not logged.
 */
#include <errno.h>
#include <string.h>

#include "core/base/err.h"
#include "core/base/log.h"
#include "fs/fs.h"

static bool is_ordinary(int code)
{
	return code == -ENODATA || code == -ERANGE || code == -ENXIO || code == -ENOSYS ||
	       code == -EINTR || code == -ENAMETOOLONG;
}

/* Ordinary unless somebody left a note that says why. */
static bool is_plain(int code)
{
	return code == -ENOENT || code == -EOPNOTSUPP || code == -EROFS || code == -EACCES;
}

void reply_code(fuse_req_t req, int code, const char *op, const struct node *n)
{
	bool silent = is_ordinary(code) || (is_plain(code) && !*err_where(code));

	if (code < 0 && !silent) {
		auto_buf path = { 0 };

		if (n)
			node_path(n, &path);
		log_error("cannot %s '%s': %s", op, path.n ? buf_str(&path) : "/", err_text(code));
	}
	err_clear();
	fuse_reply_err(req, code < 0 ? err_errno(code) : 0);
}

/* A reply that could not be sent: the caller went away, and takes its lookup count along. */
static void take_back(int r, struct node *n)
{
	if (r == -ENOENT)
		node_unref(n, 1);
}

/* From here on: a note that nobody needed ends with its request. It must not explain the next one. */

void reply_entry(fuse_req_t req, struct node *n, const char *op)
{
	struct fs *fs = fuse_req_userdata(req);
	struct fuse_entry_param e;
	struct stat st;
	int r = node_stat(n, &st);

	if (r < 0) {
		reply_code(req, r, op, n);
		node_unref(n, 1);
		return;
	}
	err_clear();
	fs_entry(fs, n, &st, &e);
	take_back(fuse_reply_entry(req, &e), n);
}

bool reply_create(fuse_req_t req, struct node *n, const struct fuse_file_info *fi)
{
	struct fs *fs = fuse_req_userdata(req);
	struct fuse_entry_param e;
	struct stat st;
	int r = node_stat(n, &st);

	if (r < 0) {
		reply_code(req, r, "create", n);
		node_unref(n, 1);
		return false;
	}
	err_clear();
	fs_entry(fs, n, &st, &e);
	/* Programs look at what they have just created; the kernel forgets this at the first write. */
	e.attr_timeout = NS_ROOT_TTL;
	r = fuse_reply_create(req, &e, fi);
	take_back(r, n);
	return r != -ENOENT;
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
 * The kernel takes no more than IOV_MAX segments, and a reply that it refuses is lost for good: the
 * reader would wait for ever. Long before that one copy is cheaper than the list.
 */
#define SEGMENTS_MAX 256

static int reply_copy(fuse_req_t req, const struct gather *g)
{
	auto_free char *p = malloc(g->bytes);
	int r = p ? gather_copy(g, p) : fail(-ENOMEM, "cannot answer with %llu bytes", (unsigned long long)g->bytes);

	if (r >= 0)
		fuse_reply_buf(req, p, g->bytes);
	return r;
}

static int reply_memory(fuse_req_t req, const struct gather *g)
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
 * A file that was cut off since it was opened: the kernel would take a short answer for the end of
 * the file, and show zeros.
 */
static int check_files(const struct gather *g)
{
	for (size_t i = 0; i < g->n; i++) {
		const struct gather_seg *s = &g->seg[i];
		struct stat st;

		if (s->kind != GATHER_FILE || (i && s->file == g->seg[i - 1].file && s->off <= g->seg[i - 1].off))
			continue;
		if (fstat(s->file->fd, &st) < 0)
			return err_sys("cannot stat", s->file->name);
		if (s->off + s->n > (uint64_t)st.st_size)
			return fail(-EUCLEAN, "'%s' ends at byte %lld, %zu bytes at offset %llu were wanted",
				    s->file->name, (long long)st.st_size, s->n, (unsigned long long)s->off);
	}
	return 0;
}

/* Ranges of data files go from the page cache into the kernel's pipe without a copy here. */
static int reply_splice(fuse_req_t req, const struct gather *g)
{
	auto_free struct fuse_bufvec *v = NULL;
	size_t n = 0;
	int r = check_files(g);

	if (r < 0)
		return r;
	v = calloc(1, sizeof(*v) + g->n * sizeof(v->buf[0]));
	if (!v)
		return fail(-ENOMEM, "cannot answer with %zu segments", g->n);
	for (size_t i = 0; i < g->n; i++) {
		const struct gather_seg *s = &g->seg[i];

		if (s->n == 0)
			continue;
		v->buf[n].size = s->n;
		if (s->kind == GATHER_MEM) {
			v->buf[n].mem = (void *)(uintptr_t)s->p;
		} else {
			v->buf[n].flags = FUSE_BUF_IS_FD | FUSE_BUF_FD_SEEK | FUSE_BUF_FD_RETRY;
			v->buf[n].fd = s->file->fd;
			v->buf[n].pos = (off_t)s->off;
		}
		n++;
	}
	v->count = n;
	fuse_reply_data(req, v, FUSE_BUF_SPLICE_MOVE);
	return 0;
}

void reply_gather(fuse_req_t req, struct gather *g, struct node *n)
{
	bool files = false;
	int r;

	for (size_t i = 0; i < g->n; i++)
		files |= g->seg[i].kind == GATHER_FILE && g->seg[i].n;
	r = g->n > SEGMENTS_MAX ? reply_copy(req, g) : files ? reply_splice(req, g) : reply_memory(req, g);
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
