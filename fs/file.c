/* SPDX-License-Identifier: Apache-2.0 */
/*
 * file.c - open, create, read, write, flush, fsync, release and lseek on files.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "core/base/blocks.h"
#include "core/base/err.h"
#include "core/base/log.h"
#include "fs/fs.h"

static struct file *file_of(const struct fuse_file_info *fi)
{
	return (struct file *)(uintptr_t)fi->fh;
}

static void set_handle(struct fs *fs, fuse_req_t req, struct fuse_file_info *fi, struct file *f)
{
	f->reader = (uint32_t)fuse_req_ctx(req)->pid;
	fi->fh = (uint64_t)(uintptr_t)f;
	fi->keep_cache = f->keep_cache;
	fi->direct_io = f->direct || fs->options->direct_io;
	/* No data is written back at close. */
	fi->noflush = (fi->flags & O_ACCMODE) == O_RDONLY;
}

void fs_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct fs *fs = fuse_req_userdata(req);
	struct node *n = fs_node(fs, ino);
	struct file *f;
	int r;

	trace(TRACE_FS, "open '%s'", n->name);
	r = node_open(n, fi->flags, &f);
	if (r < 0) {
		reply_code(req, r, "open", n);
		return;
	}
	set_handle(fs, req, fi, f);
	/*
	 * The kernel has cached another number of blocks: handlers/namespace/node.c has the reason.
	 */
	if (f->is_source)
		fuse_lowlevel_notify_inval_inode(fs->se, ino, -1, 0);
	passthrough_open(fs, f, fi);
	if (!reply_open(req, fi)) {
		passthrough_close(fs, f);
		file_close(f);
	}
}

void fs_create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode,
	       struct fuse_file_info *fi)
{
	struct fs *fs = fuse_req_userdata(req);
	struct node *dir = fs_node(fs, parent), *n;
	struct file *f;
	int r;

	trace(TRACE_FS, "create '%s'", name);
	r = node_create(dir, span_str(name), fi->flags, &n, &f);
	if (r < 0) {
		reply_code(req, r, "create a file in", dir);
		return;
	}
	set_handle(fs, req, fi, f);
	if (!reply_create(req, n, fi))
		file_close(f);
}

void fs_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi)
{
	struct file *f = file_of(fi);
	struct segments g;
	int r;

	trace(TRACE_FS, "read '%s' %lld+%zu", f->node->name, (long long)off, size);
	segments_init(&g, f->node->ns->ckpt->cache);
	r = file_read(f, (uint64_t)off, size, &g);
	if (r < 0)
		reply_code(req, r, "read", f->node);
	else
		reply_segments(req, &g, f->node);
	segments_release(&g);
}

/* Write data that is in several pieces or in a pipe: it is copied into one first. */
static ssize_t write_joined(struct file *f, uint64_t off, struct fuse_bufvec *in, size_t n)
{
	struct fuse_bufvec out = FUSE_BUFVEC_INIT(n);
	void *copy = block_alloc(n);
	ssize_t r;

	if (!copy)
		return -ENOMEM;
	out.buf[0].mem = copy;
	r = fuse_buf_copy(&out, in, 0);
	if (r == (ssize_t)n)
		r = file_write(f, off, copy, n);
	else
		r = r < 0 ? r : -EIO;
	block_free(copy, n);
	return r;
}

void fs_write_buf(fuse_req_t req, fuse_ino_t ino, struct fuse_bufvec *in, off_t off,
		  struct fuse_file_info *fi)
{
	struct file *f = file_of(fi);
	size_t n = fuse_buf_size(in);
	const struct fuse_buf *b = &in->buf[in->idx];
	ssize_t r;

	trace(TRACE_FS, "write '%s' %lld+%zu", f->node->name, (long long)off, n);
	/* Data is usually one piece of memory; anything else is joined first. */
	if (in->count - in->idx == 1 && !(b->flags & FUSE_BUF_IS_FD)) {
		r = file_write(f, (uint64_t)off, (const char *)b->mem + in->off, n);
	} else {
		r = write_joined(f, (uint64_t)off, in, n);
	}
	/*
	 * The data is from pages of a map: the kernel has released them, regards part of them as
	 * written, and reports an error at most to fsync(2).
	 */
	if (fi->writepage && r != (ssize_t)n) {
		r = r < 0 ? r : -EIO;
		if (f->ops->lost)
			f->ops->lost(f, (int)r);
	}
	if (r < 0)
		reply_code(req, (int)r, "write", f->node);
	else
		reply_count(req, (size_t)r);
}

/* After -EOPNOTSUPP, the kernel copies through memory. */
void fs_copy_file_range(fuse_req_t req, fuse_ino_t ino, off_t off, struct fuse_file_info *fi,
			fuse_ino_t to_ino, off_t to_off, struct fuse_file_info *to_fi, size_t n,
			int flags)
{
	struct file *from = file_of(fi), *to = file_of(to_fi);
	ssize_t r = file_copy(from, (uint64_t)off, to, (uint64_t)to_off, n);

	trace(TRACE_FS, "copy '%s' %lld+%zu: %zd", from->node->name, (long long)off, n, r);
	if (r == -EOPNOTSUPP)
		reply_code(req, (int)r, "copy", NULL);
	else if (r < 0)
		reply_code(req, (int)r, "copy to", to->node);
	else
		reply_count(req, (size_t)r);
}

void fs_flush(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct file *f = file_of(fi);

	reply_code(req, file_flush(f), "close", f->node);
}

void fs_fsync(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi)
{
	struct file *f = file_of(fi);

	reply_code(req, file_sync(f), "sync", f->node);
}

void fs_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	trace(TRACE_FS, "release '%s'", file_of(fi)->node->name);
	passthrough_close(fuse_req_userdata(req), file_of(fi));
	file_close(file_of(fi));
	reply_code(req, 0, "close", NULL);
}

void fs_lseek(fuse_req_t req, fuse_ino_t ino, off_t off, int whence, struct fuse_file_info *fi)
{
	struct file *f = file_of(fi);
	uint64_t at;
	int r = file_seek(f, (uint64_t)off, whence, &at);

	if (r < 0)
		reply_code(req, r, "seek in", f->node);
	else
		reply_offset(req, at);
}
