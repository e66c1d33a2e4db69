/* SPDX-License-Identifier: Apache-2.0 */
/*
 * io_store.c - directories and files of a store, and the engine that passes reads to it.
 *
 * The engine wraps a real one, which serves the local files of the same process: spill files, and
 * copies of documents.
 */
#include "core/io/io_store.h"

#include <dirent.h>
#include <fcntl.h>

#include "core/base/digest.h"
#include "core/base/err.h"
#include "core/io/io_engine.h"

struct io_remote {
	struct io_engine base;
	struct io_store *store;
};

static struct io_store *store_of(struct io_engine *io)
{
	return container_of(io, struct io_remote, base)->store;
}

static bool is_in_store(const struct io_req *q)
{
	return q->file->key != NULL;
}

/* The number of requests from the first on that go to the same engine. */
static size_t run_of(const struct io_req *req, size_t n)
{
	size_t i = 1;

	while (i < n && is_in_store(&req[i]) == is_in_store(&req[0]))
		i++;
	return i;
}

static int remote_wait(struct io_engine *io, struct io_req *req, size_t n)
{
	struct io_store *s = store_of(io);
	int r = 0;

	for (size_t at = 0, run; at < n && r >= 0; at += run) {
		run = run_of(req + at, n - at);
		r = is_in_store(&req[at]) ? s->ops->wait(s, req + at, run) :
					    io->below->ops->wait(io->below, req + at, run);
	}
	return r;
}

static int remote_submit(struct io_engine *io, struct io_req *req, size_t n)
{
	struct io_store *s = store_of(io);

	for (size_t at = 0, run; at < n; at += run) {
		int r;

		run = run_of(req + at, n - at);
		r = is_in_store(&req[at]) ? s->ops->submit(s, req + at, run) :
					    io->below->ops->submit(io->below, req + at, run);
		if (r < 0) {
			struct err_note why;

			/* The runs before this one are in flight. */
			err_save(r, &why);
			remote_wait(io, req, at);
			return err_restore(&why);
		}
	}
	return 0;
}

static int remote_open(struct io_engine *io, int dirfd, const char *path, int flags, unsigned mode)
{
	return io->below->ops->open(io->below, dirfd, path, flags, mode);
}

static int remote_dirop(struct io_engine *io, enum io_dirop op, int dirfd, const char *from,
			const char *to, unsigned mode)
{
	return io->below->ops->dirop(io->below, op, dirfd, from, to, mode);
}

static int remote_truncate(struct io_engine *io, struct io_file *file, uint64_t size)
{
	return io->below->ops->truncate(io->below, file, size);
}

static int64_t remote_splice(struct io_engine *io, struct io_file *file, uint64_t off, size_t n,
			     int pipe)
{
	return file->key ? -EINVAL : io->below->ops->splice(io->below, file, off, n, pipe);
}

static int remote_lookup(struct io_engine *io, const char *path, const struct io_want *want,
			 struct io_object *ret)
{
	struct io_store *s = store_of(io);

	return s->ops->lookup(s, path, want, ret);
}

static int remote_list(struct io_engine *io, const char *path, io_store_fn *each, void *arg)
{
	struct io_store *s = store_of(io);

	return s->ops->list(s, path, each, arg);
}

static void remote_quiesce(struct io_engine *io)
{
	struct io_store *s = store_of(io);

	s->ops->quiesce(s);
}

static void remote_free(struct io_engine *io)
{
	struct io_remote *m = container_of(io, struct io_remote, base);

	m->store->ops->free(m->store);
	io->below->ops->free(io->below);
	free(m);
}

static const struct io_engine_ops remote_ops = {
	.name = "store",
	.submit = remote_submit,
	.wait = remote_wait,
	.open = remote_open,
	.dirop = remote_dirop,
	.truncate = remote_truncate,
	.splice = remote_splice,
	.lookup = remote_lookup,
	.list = remote_list,
	.quiesce = remote_quiesce,
	.free = remote_free,
};

int io_store_new(struct io_store *store, struct io_engine *below, struct io_engine **ret)
{
	struct io_remote *m = calloc(1, sizeof(*m));

	if (!m)
		return fail(-ENOMEM, "cannot allocate an I/O engine");
	m->base.ops = &remote_ops;
	m->base.below = below;
	m->store = store;
	*ret = &m->base;
	return 0;
}

/* ---- directories ---- */

static const struct io_dir_ops store_dir;

static int dir_of_prefix(struct io_engine *io, const char *prefix, const char *url,
			 struct io_dir **ret)
{
	struct io_dir *d = calloc(1, sizeof(*d));

	if (d) {
		d->ops = &store_dir;
		d->io = io;
		d->fd = -1;
		d->prefix = strdup(prefix);
		d->path = strdup(url);
	}
	if (!d || !d->prefix || !d->path) {
		io_dir_close(d);
		return fail(-ENOMEM, "cannot open directory '%s'", url);
	}
	*ret = d;
	return 0;
}

static struct io_engine *remote_of(struct io_engine *io)
{
	while (io && io->ops != &remote_ops)
		io = io->below;
	return io;
}

const char *io_store_file(struct io_engine *io, size_t i)
{
	struct io_engine *at = remote_of(io);

	return at ? store_of(at)->ops->file(store_of(at), i) : NULL;
}

bool io_store_stats(struct io_engine *io, struct io_store_stats *ret)
{
	struct io_engine *at = remote_of(io);

	if (!at || !store_of(at)->ops->stats)
		return false;
	store_of(at)->ops->stats(store_of(at), ret);
	return true;
}

bool io_dir_can_list(const struct io_dir *dir)
{
	return !io_dir_in_store(dir) || !store_of(remote_of(dir->io))->no_list;
}

void io_store_refresh(struct io_engine *io)
{
	struct io_engine *at = remote_of(io);

	if (at)
		store_of(at)->ops->refresh(store_of(at));
}

int io_store_root(struct io_engine *io, struct io_dir **ret)
{
	struct io_engine *at = remote_of(io);
	auto_free char *url = NULL;
	const char *top;
	struct io_object o;
	int r;

	if (!at)
		return fail(-EINVAL, "this engine has no store");
	top = store_of(at)->top ? store_of(at)->top : "";
	url = str_fmt("%s%s%s", store_of(at)->url, *top ? "/" : "", top);
	if (!url)
		return fail(-ENOMEM, "cannot open '%s'", store_of(at)->url);
	r = io->ops->lookup(io, top, NULL, &o);
	if (r < 0)
		return r;
	if (!o.is_dir)
		return fail(-ENOTDIR, "'%s' is not a directory", url);
	return dir_of_prefix(io, top, url, ret);
}

/* The path of rel from the store's root; rel is beneath dir. */
static int path_in_store(const struct io_dir *dir, const char *rel, char **ret)
{
	char *path;
	int r = strcmp(rel, ".") ? io_path_check(span_str(rel), dir->path) : 0;

	if (r < 0)
		return r;
	if (!strcmp(rel, "."))
		path = strdup(dir->prefix);
	else
		path = str_fmt("%s%s%s", dir->prefix, *dir->prefix ? "/" : "", rel);
	if (!path)
		return fail(-ENOMEM, "cannot open '%s'", rel);
	*ret = path;
	return 0;
}

static int look(struct io_dir *dir, const char *rel, const struct io_want *want, char **ret_path,
		struct io_object *ret)
{
	auto_free char *path = NULL;
	int r = path_in_store(dir, rel, &path);

	if (r < 0)
		return r;
	r = dir->io->ops->lookup(dir->io, path, want, ret);
	if (r < 0)
		return r;
	*ret_path = take(path);
	return r;
}

static int store_sub(struct io_dir *dir, const char *rel, struct io_dir **ret)
{
	auto_free char *path = NULL, *url = NULL;
	struct io_object o = { .is_dir = true };
	int r;

	if (!strcmp(rel, "."))
		return dir_of_prefix(dir->io, dir->prefix, dir->path, ret);
	r = look(dir, rel, NULL, &path, &o);
	if (r < 0)
		return r;
	if (!o.is_dir)
		return fail(-ENOTDIR, "cannot open directory '%s': it is an object", rel);
	url = str_fmt("%s/%s", dir->path, rel);
	if (!url)
		return fail(-ENOMEM, "cannot open directory '%s'", rel);
	return dir_of_prefix(dir->io, path, url, ret);
}

static int store_read_only(const struct io_dir *dir, const char *rel)
{
	return fail(-EROFS, "cannot write '%s' in '%s': a source with a URL is only read", rel,
		    dir->path);
}

static int store_open_file(struct io_dir *dir, const char *rel, int flags, unsigned mode,
			   const struct io_want *want, struct io_file **ret)
{
	auto_free char *path = NULL;
	struct io_object o;
	struct io_file *f;
	int r;

	atomic_fetch_add_explicit(&dir->io->stats->opens, 1, memory_order_relaxed);
	if ((flags & O_ACCMODE) != O_RDONLY || flags & (O_CREAT | O_TRUNC))
		return store_read_only(dir, rel);
	r = look(dir, rel, want, &path, &o);
	if (r < 0)
		return r;
	if (o.is_dir)
		return fail(-EISDIR, "'%s' is not a regular file", rel);
	f = calloc(1, sizeof(*f));
	if (f) {
		f->io = dir->io;
		f->fd = -1;
		f->key = take(path);
		f->tag = strdup(o.tag);
		f->name = strdup(rel);
		f->size = o.size;
		f->mtime = o.mtime;
		atomic_init(&f->refs, 1);
	}
	if (!f || !f->name || !f->tag) {
		io_file_unref(f);
		return fail(-ENOMEM, "cannot open '%s'", rel);
	}
	f->ino = hash64(span_str(f->tag), hash64(span_str(f->key), 0));
	*ret = f;
	return 0;
}

static int store_stat(struct io_dir *dir, const char *rel, struct stat *ret)
{
	auto_free char *path = NULL;
	struct io_object o;
	int r = look(dir, rel, NULL, &path, &o);

	if (r < 0)
		return r;
	/* Everyone who may use the mount may read what its credentials allow. */
	*ret = (struct stat){ .st_mode = o.is_dir ? S_IFDIR | 0555 : S_IFREG | 0444,
			      .st_nlink = 1,
			      .st_uid = geteuid(),
			      .st_gid = getegid(),
			      .st_ino = hash64(span_str(o.tag), hash64(span_str(path), 0)),
			      .st_size = (off_t)o.size,
			      .st_blocks = (blkcnt_t)div_up(o.size, 512),
			      .st_blksize = 4096,
			      .st_mtim = o.mtime,
			      /* The ctime of a directory does not change with its contents. */
			      .st_ctim = o.is_dir ? (struct timespec){ 0 } : o.mtime,
			      .st_atim = o.mtime };
	return 0;
}

struct listing_store {
	io_list_fn *each;
	void *arg;
};

static int list_one(void *arg, const char *name, const struct io_object *o)
{
	struct listing_store *l = arg;

	return l->each(l->arg, name, o->is_dir ? DT_DIR : DT_REG);
}

static int store_list(struct io_dir *dir, const char *rel, io_list_fn *each, void *arg)
{
	struct listing_store l = { each, arg };
	auto_free char *path = NULL;
	int r = path_in_store(dir, rel, &path);

	return r < 0 ? r : dir->io->ops->list(dir->io, path, list_one, &l);
}

static int store_temp(struct io_engine *io, struct io_dir *dir, struct io_file **ret)
{
	return store_read_only(dir, "a temporary file");
}

static int store_dirop(struct io_dir *dir, enum io_dirop op, const char *from, const char *to,
		       unsigned mode)
{
	return store_read_only(dir, from);
}

static int store_stat_acl(struct io_dir *dir, const char *rel, struct stat *ret,
			  unsigned *ret_group, unsigned *ret_other)
{
	int r = store_stat(dir, rel, ret);

	*ret_group = *ret_other = r < 0 ? 0 : ret->st_mode & 7;
	return r;
}

static const struct io_dir_ops store_dir = {
	.sub = store_sub,
	.open = store_open_file,
	.temp = store_temp,
	.dirop = store_dirop,
	.list = store_list,
	.stat = store_stat,
	.stat_acl = store_stat_acl,
};
