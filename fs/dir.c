/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dir.c - directories: lookup, readdir and readdirplus; creation, removal and renames of names.
 *
 * A listing is made when a directory is opened (when it is first read, for a directory that never
 * changes), and again after rewinddir(3). So offsets remain valid whatever happens to the directory
 * meanwhile.
 */
#include <dirent.h>
#include <errno.h>
#include <string.h>

#include "core/base/buf.h"
#include "core/base/err.h"
#include "core/base/limits.h"
#include "core/base/log.h"
#include "fs/fs.h"

/*
 * The kernel caches names of a directory that never changes: a program that lists it again (find,
 * or a shell that expands a pattern) gets them without a request. It does not cache attributes: for
 * a program that wants them, too (ls -l), a listing with attributes is cheaper than a request for
 * each name. A caller does not say what it wants, but one that has requested attributes of one file
 * will request those of the others, and of the next directory. Records about callers are hints: a
 * race, or a reused thread number, costs a little speed.
 */
static _Atomic uint32_t *stat_slot(fuse_req_t req, uint32_t *ret_caller)
{
	struct fs *fs = fuse_req_userdata(req);

	*ret_caller = (uint32_t)fuse_req_ctx(req)->pid;
	return &fs->stat_caller[*ret_caller % STAT_CALLERS];
}

void dir_note_stat(fuse_req_t req, const struct node *n)
{
	uint32_t caller;
	_Atomic uint32_t *slot = stat_slot(req, &caller);

	/* find(1) requests the attributes of directories, too. */
	if (!n->ops->list)
		atomic_store_explicit(slot, caller, memory_order_relaxed);
}

/* The kernel passes names that are longer than statfs(2) allows. */
static int dir_check_name(const char *name)
{
	if (strlen(name) > LIMIT_NAME_BYTES)
		return fail(-ENAMETOOLONG, "a name of %zu bytes, the limit is %d", strlen(name),
			    LIMIT_NAME_BYTES);
	return 0;
}

static int look_up_for_caller(fuse_req_t req, struct node *dir, const char *name, struct node **ret)
{
	struct fs *fs = fuse_req_userdata(req);
	auto_node *n = NULL;
	int r;

	/* For the helper, names that the kernel is to forget do not exist. */
	if (dir == fs->ns->root && forget_asks(&fs->forget, fuse_req_ctx(req)->pid))
		return -ENOENT;
	r = dir_check_name(name);
	if (r < 0)
		return r;
	r = node_lookup(dir, span_str(name), &n);
	if (r < 0)
		return r;
	if (n->generated && caller_creates(req))
		return -ENOENT;
	*ret = take(n);
	return 0;
}

void fs_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct node *dir = fs_node(fuse_req_userdata(req), parent), *n;
	auto_buf path = { 0 };
	int r;

	trace(TRACE_FS, "lookup '%s'", name);
	r = look_up_for_caller(req, dir, name, &n);
	if (r >= 0) {
		dir_note_stat(req, n);
		reply_entry(req, n, "stat");
		return;
	}
	/*
	 * Log why a name that looks like a view does not exist, with step and leaf. Programs look a
	 * name up before they create it, so a name that is too long is refused here.
	 */
	if ((r == -ENOENT || strlen(name) > LIMIT_NAME_BYTES) && *err_where(r)) {
		node_path(dir, &path);
		log_info("no '%s%s%s': %s", path.n ? buf_str(&path) : "", path.n ? "/" : "", name,
			 err_text(r));
		err_clear();
	}
	reply_code(req, r, "look up in", dir);
}

static void open_dir_free(struct fs *fs, struct dir_handle *h)
{
	pthread_mutex_lock(&fs->lock);
	*h->at = h->next;
	if (h->next)
		h->next->at = h->at;
	pthread_mutex_unlock(&fs->lock);
	listing_release(&h->list);
	free(h);
}

void fs_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct fs *fs = fuse_req_userdata(req);
	struct node *n = fs_node(fs, ino);
	struct dir_handle *h = calloc(1, sizeof(*h));
	int r = h ? 0 : -ENOMEM;
	uint32_t caller;
	_Atomic uint32_t *slot = stat_slot(req, &caller);
	/* A caller in another namespace, whose thread number is unknown, may want attributes. */
	bool wants_attributes = !caller ||
				atomic_load_explicit(slot, memory_order_relaxed) == caller;

	fi->keep_cache = n->ops->list_is_fixed && n->ops->list_is_fixed(n);
	fi->cache_readdir = fi->keep_cache && !wants_attributes;
	trace(TRACE_FS, "opendir '%s'%s", n->name, fi->cache_readdir ? ", to be kept" : "");
	/* The kernel does not request names that it has cached. */
	if (r >= 0 && !fi->keep_cache) {
		r = node_list(n, &h->list);
		h->is_listed = true;
	}
	if (r < 0) {
		if (h)
			listing_release(&h->list);
		free(h);
		reply_code(req, r, "list", n);
		return;
	}
	pthread_mutex_lock(&fs->lock);
	h->at = &fs->dirs;
	h->next = fs->dirs;
	if (h->next)
		h->next->at = &h->next;
	fs->dirs = h;
	pthread_mutex_unlock(&fs->lock);
	fi->fh = (uint64_t)(uintptr_t)h;
	if (!reply_open(req, fi))
		open_dir_free(fs, h);
}

void dirs_free(struct fs *fs)
{
	while (fs->dirs)
		open_dir_free(fs, fs->dirs);
}

/*
 * Write one entry, with attributes when plus is set. Returns its size, which is larger than the
 * space when it does not fit. *ret_node: the node that gets a lookup count of the kernel, or NULL.
 */
static size_t dir_put_entry(fuse_req_t req, struct node *dir, struct dir_handle *h, size_t i,
			    bool plus, char *p, size_t room, struct node **ret_node)
{
	struct fs *fs = fuse_req_userdata(req);
	const struct listing_entry *le = &h->list.entry[i];
	const char *name = listing_name(&h->list, i);
	struct fuse_entry_param e = { .attr = { .st_ino = le->ino, .st_mode = DTTOIF(le->type) } };
	struct node *n = NULL;
	struct stat st;
	size_t used;

	if (!plus)
		return fuse_add_direntry(req, p, room, name, &e.attr, (off_t)i + 1);
	/* A leaf that cannot be described is listed anyway; a lookup gives the error. */
	if (!dir->ops->lazy_list && strcmp(name, ".") && strcmp(name, "..") &&
	    node_lookup(dir, span_str(name), &n) >= 0) {
		if (node_stat(n, &st) >= 0) {
			fs_entry_take(fs, n, &st, &e);
		} else {
			node_unref(n, 1);
			n = NULL;
		}
	}
	used = fuse_add_direntry_plus(req, p, room, name, &e, (off_t)i + 1);
	if (used > room)
		node_unref(take(n), 1);
	*ret_node = n;
	return used;
}

/* The kernel allows no other read with this handle meanwhile. */
static int list_now(struct node *dir, struct dir_handle *h)
{
	struct listing fresh = { 0 };
	int r = node_list(dir, &fresh);

	if (r < 0) {
		listing_release(&fresh);
		return r;
	}
	listing_release(&h->list);
	h->list = fresh;
	h->is_listed = true;
	return 0;
}

static void dir_read_dir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
			 struct fuse_file_info *fi, bool plus)
{
	struct dir_handle *h = (struct dir_handle *)(uintptr_t)fi->fh;
	struct node *dir = fs_node(fuse_req_userdata(req), ino);
	auto_free char *p = malloc(size);
	/* An entry with attributes has more than a hundred bytes. */
	auto_free struct node **counted = calloc(size / 100 + 1, sizeof(struct node *));
	size_t at = 0, n = 0;
	int r = p && counted ? 0 : -ENOMEM;

	trace(TRACE_FS, "readdir%s '%s' %lld", plus ? "plus" : "", dir->name, (long long)off);
	if (r >= 0 && (!h->is_listed || (off == 0 && h->is_read)))
		r = list_now(dir, h);
	if (r < 0) {
		reply_code(req, r, "list", dir);
		return;
	}
	h->is_read = true;
	for (size_t i = (size_t)off; i < h->list.n; i++) {
		struct node *node = NULL;
		size_t used;

		/* The first two are the directory itself and the one above. */
		if (plus && i >= 2)
			listing_hold(&h->list, dir, i);
		used = dir_put_entry(req, dir, h, i, plus, p + at, size - at, &node);
		if (used > size - at)
			break;
		at += used;
		if (node)
			counted[n++] = node;
	}
	err_clear();
	/* The caller is gone, and the kernel has dropped its lookup counts. */
	if (reply_bytes(req, p, at) == -ENOENT)
		while (n > 0)
			node_unref(counted[--n], 1);
}

void fs_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi)
{
	dir_read_dir(req, ino, size, off, fi, false);
}

void fs_readdirplus(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
		    struct fuse_file_info *fi)
{
	dir_read_dir(req, ino, size, off, fi, true);
}

void fs_releasedir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct dir_handle *h = (struct dir_handle *)(uintptr_t)fi->fh;

	open_dir_free(fuse_req_userdata(req), h);
	reply_code(req, 0, "close", NULL);
}

void fs_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode)
{
	struct fs *fs = fuse_req_userdata(req);
	struct node *dir = fs_node(fs, parent), *n;
	struct user user;
	int r;

	trace(TRACE_FS, "mkdir '%s'", name);
	caller_enter(req, &user);
	r = dir_check_name(name);
	if (r >= 0)
		r = node_mkdir(dir, span_str(name), mode, &n);
	caller_leave();
	if (r < 0)
		reply_code(req, r, "make a directory in", dir);
	else
		reply_entry(req, n, "stat");
}

void fs_unlink(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct fs *fs = fuse_req_userdata(req);
	struct node *dir = fs_node(fs, parent);
	int r;

	trace(TRACE_FS, "unlink '%s'", name);
	r = node_unlink(dir, span_str(name));
	reply_code(req, r, "remove a file in", dir);
}

void fs_rmdir(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct fs *fs = fuse_req_userdata(req);
	struct node *dir = fs_node(fs, parent);
	struct user user;
	int r;

	trace(TRACE_FS, "rmdir '%s'", name);
	caller_enter(req, &user);
	r = node_rmdir(dir, span_str(name));
	caller_leave();
	reply_code(req, r, "remove a directory in", dir);
}

void fs_rename(fuse_req_t req, fuse_ino_t parent, const char *name, fuse_ino_t to_parent,
	       const char *to_name, unsigned flags)
{
	struct fs *fs = fuse_req_userdata(req);
	struct node *dir = fs_node(fs, parent);
	int r;

	trace(TRACE_FS, "rename '%s' to '%s'", name, to_name);
	r = node_rename(dir, span_str(name), fs_node(fs, to_parent), span_str(to_name), flags);
	if (r >= 0 && requests_is_abandoned())
		log_info("'%s' is '%s' now: the program that renamed it was interrupted, and did "
			 "not wait for that",
			 name, to_name);
	reply_code(req, r, "rename in", dir);
}
