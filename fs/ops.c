/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ops.c - the fuse_lowlevel_ops table, and the trivial operations.
 */
#include <errno.h>
#include <fcntl.h>
#include <sys/statvfs.h>

#include "core/base/err.h"
#include "core/base/log.h"
#include "fs/fs.h"
#include "fs/mount_log.h"

struct node *fs_node(struct fs *fs, fuse_ino_t ino)
{
	return ino == FUSE_ROOT_ID ? fs->ns->root : (struct node *)(uintptr_t)ino;
}

void fs_entry_take(struct fs *fs, struct node *n, const struct stat *st,
		   struct fuse_entry_param *ret)
{
	*ret = (struct fuse_entry_param){
		.ino = n == fs->ns->root ? FUSE_ROOT_ID : (fuse_ino_t)(uintptr_t)n,
		.attr = *st,
		.attr_timeout = node_attr_ttl(n),
		.entry_timeout = n->ttl,
	};
}

static void fs_init(void *userdata, struct fuse_conn_info *conn)
{
	struct fs *fs = userdata;

	/*
	 * Always list with attributes: those of a tree are in memory, so separate lookups would
	 * cost more.
	 */
	conn->want &= ~(unsigned)FUSE_CAP_READDIRPLUS_AUTO;
	conn->want |= conn->capable &
		      (FUSE_CAP_READDIRPLUS | FUSE_CAP_SPLICE_WRITE | FUSE_CAP_SPLICE_MOVE |
		       FUSE_CAP_ASYNC_READ | FUSE_CAP_PARALLEL_DIROPS | FUSE_CAP_ASYNC_DIO |
		       FUSE_CAP_ATOMIC_O_TRUNC);
	conn->max_write = 1 << 20;
	conn->max_read = (unsigned)fs->options->max_read;
	conn->max_readahead = 16 << 20;
	conn->max_background = 64;
	conn->congestion_threshold = 48;
	conn->time_gran = 1;
	if (fs->ready_fd >= 0) {
		static const char ok = 0;

		fs_detach(fs);
		if (write(fs->ready_fd, &ok, 1) != 1)
			log_warn("nobody waits for the mount any more");
		close(fs->ready_fd);
		fs->ready_fd = -1;
	}
	mount_log_start(fs);
	trace(TRACE_FS, "init protocol %u.%u", conn->proto_major, conn->proto_minor);
}

static void fs_forget(fuse_req_t req, fuse_ino_t ino, uint64_t nlookup)
{
	if (ino != FUSE_ROOT_ID)
		node_unref((struct node *)(uintptr_t)ino, nlookup);
	reply_none(req);
}

static void fs_forget_multi(fuse_req_t req, size_t count, struct fuse_forget_data *forgets)
{
	for (size_t i = 0; i < count; i++)
		if (forgets[i].ino != FUSE_ROOT_ID)
			node_unref((struct node *)(uintptr_t)forgets[i].ino, forgets[i].nlookup);
	reply_none(req);
}

static void fs_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct node *n = fs_node(fuse_req_userdata(req), ino);

	dir_note_stat(req, n);
	reply_attr(req, n, "stat");
}

/*
 * access(2), which the kernel sends unless it checks modes itself. The reply depends on the mode
 * only, not on the owner, since the kernel lets no other user access the mount.
 */
static void fs_access(fuse_req_t req, fuse_ino_t ino, int mask)
{
	struct node *n = fs_node(fuse_req_userdata(req), ino);
	struct stat st = { 0 };
	int r = node_stat(n, &st);

	if (r >= 0 && S_ISREG(st.st_mode)) {
		if (mask & W_OK && (n->ops->is_immutable || !(st.st_mode & 0222)))
			r = -EROFS;
		else if (mask & X_OK && !(st.st_mode & 0111))
			r = -EACCES;
	}
	reply_code(req, r, "check", n);
}

static void fs_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *st, int to_set,
		       struct fuse_file_info *fi)
{
	struct node *n = fs_node(fuse_req_userdata(req), ino);
	unsigned which = 0;
	int r;

	if (to_set & FUSE_SET_ATTR_SIZE)
		which |= NODE_SET_SIZE;
	if (to_set & FUSE_SET_ATTR_MODE)
		which |= NODE_SET_MODE;
	if (to_set & (FUSE_SET_ATTR_UID | FUSE_SET_ATTR_GID))
		which |= NODE_SET_OWNER;
	if (to_set & (FUSE_SET_ATTR_MTIME | FUSE_SET_ATTR_MTIME_NOW))
		which |= NODE_SET_TIMES;
	if (to_set & FUSE_SET_ATTR_MTIME_NOW)
		clock_gettime(CLOCK_REALTIME, &st->st_mtim);
	r = node_setattr(n, st, which, fi ? (struct file *)(uintptr_t)fi->fh : NULL);
	trace(TRACE_FS, "setattr '%s' %x", n->name, which);
	if (r < 0)
		reply_code(req, r, "change", n);
	else
		reply_attr(req, n, "stat");
}

static void fs_readlink(fuse_req_t req, fuse_ino_t ino)
{
	struct node *n = fs_node(fuse_req_userdata(req), ino);
	auto_buf target = { 0 };
	int r = node_readlink(n, &target);

	if (r >= 0 && !buf_str(&target))
		r = -ENOMEM;
	if (r < 0)
		reply_code(req, r, "read link", n);
	else
		reply_link(req, (const char *)target.p);
}

/* Refuse objects that checkpoints do not have: hard links, device nodes, symbolic links. */
static int ops_refuse(const struct node *dir, const char *name, const char *what)
{
	if (!dir->ops->create)
		return fail(-EROFS, "'%s' cannot be made: committed steps are immutable", name);
	return fail(-EPERM, "'%s': a checkpoint has no %s", name, what);
}

static void fs_refuse_link(fuse_req_t req, fuse_ino_t ino, fuse_ino_t parent, const char *name)
{
	struct node *dir = fs_node(fuse_req_userdata(req), parent);

	reply_code(req, ops_refuse(dir, name, "hard links"), "link in", dir);
}

static void fs_refuse_symlink(fuse_req_t req, const char *target, fuse_ino_t parent,
			      const char *name)
{
	struct node *dir = fs_node(fuse_req_userdata(req), parent);

	reply_code(req, ops_refuse(dir, name, "symbolic links"), "link in", dir);
}

static void fs_mknod(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, dev_t rdev)
{
	struct node *dir = fs_node(fuse_req_userdata(req), parent), *n;
	struct file *f;
	int r;

	if (!S_ISREG(mode) && (mode & S_IFMT)) {
		reply_code(req, ops_refuse(dir, name, "device nodes"), "create in", dir);
		return;
	}
	r = node_create(dir, span_str(name), O_WRONLY | O_EXCL, &n, &f);
	if (r < 0) {
		reply_code(req, r, "create a file in", dir);
		return;
	}
	/* No program has the file open, so a commit may follow the reply at once. */
	file_close(f);
	reply_entry(req, n, "stat");
}

/* Report the space of the source. */
static void fs_statfs(fuse_req_t req, fuse_ino_t ino)
{
	struct fs *fs = fuse_req_userdata(req);
	struct statvfs st = { .f_bsize = 4096, .f_frsize = 4096 };
	int fd = fs->ns->ckpt->source->fd;

	if (fd >= 0 && fstatvfs(fd, &st) < 0) {
		reply_code(req, -errno, "stat", fs->ns->root);
		return;
	}
	if (fs->ns->drafts.driver->space && !fs->is_read_only)
		fs->ns->drafts.driver->space(&st);
	st.f_namemax = LIMIT_NAME_BYTES;
	reply_statfs(req, &st);
}

const struct fuse_lowlevel_ops fs_ops = {
	.init = fs_init,
	.lookup = fs_lookup,
	.forget = fs_forget,
	.forget_multi = fs_forget_multi,
	.access = fs_access,
	.getattr = fs_getattr,
	.setattr = fs_setattr,
	.readlink = fs_readlink,
	.mknod = fs_mknod,
	.mkdir = fs_mkdir,
	.unlink = fs_unlink,
	.rmdir = fs_rmdir,
	.symlink = fs_refuse_symlink,
	.link = fs_refuse_link,
	.rename = fs_rename,
	.open = fs_open,
	.create = fs_create,
	.read = fs_read,
	.write_buf = fs_write_buf,
	.copy_file_range = fs_copy_file_range,
	.flush = fs_flush,
	.fsync = fs_fsync,
	.release = fs_release,
	.lseek = fs_lseek,
	.opendir = fs_opendir,
	.readdir = fs_readdir,
	.readdirplus = fs_readdirplus,
	.releasedir = fs_releasedir,
	.getxattr = fs_getxattr,
	.setxattr = fs_setxattr,
	.listxattr = fs_listxattr,
	.removexattr = fs_removexattr,
	.statfs = fs_statfs,
};
