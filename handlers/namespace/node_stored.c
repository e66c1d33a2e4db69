/* SPDX-License-Identifier: Apache-2.0 */
/*
 * node_stored.c - files and directories as they are stored: items that are not trees, metadata
 * files, and `.pytreefs/stored`.
 *
 * Each use resolves the path beneath SOURCE, so a link that leads out of SOURCE is an error
 * whenever it appears. An item that is not a tree shows every file but its own marker, whatever
 * Orbax uses its name for elsewhere; `.pytreefs/stored` hides what is not committed.
 */
#include <dirent.h>
#include <fcntl.h>

#include "core/base/err.h"
#include "core/base/path.h"
#include "core/step/children.h"
#include "core/step/step.h"
#include "core/step/step_name.h"
#include "handlers/namespace/node_tree.h"

static const struct node_ops stored_ops;

struct node_stored {
	struct node node;
	char *path; /* below SOURCE */
	bool is_dir;
	enum stored_role role;
	struct timespec mtime; /* the commit time of the step; unused for STORED_BACKUP */
	struct file_id id;     /* of the file or directory that was looked up */
};

struct stored_file {
	struct file file;
	struct io_file *io;
	bool is_counted; /* in others_read of the drafts */
};

static struct node_stored *stored_of(struct node *n)
{
	return container_of(n, struct node_stored, node);
}

static int stored_stat(struct node *n, struct stat *ret)
{
	struct node_stored *s = stored_of(n);
	struct access a;
	struct stat st;
	int r = io_stat(n->ns->ckpt->source, s->path, &st);

	if (r < 0)
		return r;
	r = access_of(n->ns->ckpt->source, s->path, &a);
	if (r < 0)
		return r;
	/* Other programs may change the rest after the commit, even without changing the size. */
	if (s->role == STORED_DOCUMENT || s->role == STORED_LEAF)
		st.st_mtim = s->mtime;
	if (S_ISDIR(st.st_mode))
		ns_stat_dir(n->ns, &a, &st.st_mtim, ret);
	else
		ns_stat_file(n->ns, &a, &st.st_mtim, (uint64_t)st.st_size,
			     (uint64_t)st.st_blocks * 512, ret);
	/* A backup restores these modes. Nothing can be changed here whatever they say. */
	if (s->role == STORED_BACKUP)
		ret->st_mode = (ret->st_mode & S_IFMT) | (a.mode & 0777) |
			       (S_ISDIR(st.st_mode) ? st.st_mode & (S_ISGID | S_ISVTX) : 0);
	return 0;
}

/* Whether it is an item that is not a tree. */
static bool is_opaque_item(struct node *n)
{
	const struct node_stored *s = stored_of(n);

	return s->role == STORED_OPAQUE && s->is_dir && n->parent && n->parent->ops != n->ops;
}

/*
 * Whether the directory is a step, in which another program or mount may be writing an item.
 * Elsewhere in a step, a leaf may have a name like that of a temporary directory.
 */
static int holds_items(struct node_stored *s)
{
	const struct ckpt *c = s->node.ns->ckpt;
	enum shape shape;
	int r;

	if (c->shape != SHAPE_ROOT)
		return c->shape == SHAPE_STEP && !strcmp(s->path, ".");
	if (strchr(s->path, '/'))
		return 0;
	r = detect_step(c->source, s->path, &shape);
	return r < 0 ? r : shape == SHAPE_STEP;
}

static int is_shown(struct node_stored *s, struct span name)
{
	const struct ckpt *c = s->node.ns->ckpt;
	bool marker = ckpt_needs_marker(c);
	struct stat st;

	/* Of a file SOURCE, its neighbours are not part. */
	if (ckpt_is_file(c))
		return span_eq(name, span_str(c->only_item));
	if (s->role != STORED_BACKUP)
		return !is_opaque_item(&s->node) || !span_eq(name, span_str("commit_success.txt"));
	if (!strcmp(s->path, ".") && c->shape == SHAPE_ROOT)
		return span_eq(name, span_str("metadata")) ||
		       step_find(c->source, name, marker, false, &st);
	if (step_name_is_tmp(name)) {
		int r = holds_items(s);

		return r < 0 ? r : !r;
	}
	return 1;
}

static int stored_lookup(struct node *n, struct span name, struct node **ret)
{
	struct node_stored *s = stored_of(n);
	auto_free char *path = NULL;
	struct stat st;
	int r;

	if (!s->is_dir)
		return fail(-ENOTDIR, "'%s' is not a directory", s->path);
	r = is_shown(s, name);
	if (r <= 0)
		return r < 0 ? r : -ENOENT;
	r = path_join(s->path, name, &path);
	if (r < 0)
		return r;
	r = io_stat(n->ns->ckpt->source, path, &st);
	if (r == -ENOENT || r == -ENOTDIR) {
		err_clear();
		return -ENOENT;
	}
	return r < 0 ? r : node_stored_new(n, name, path, &st, s->role, ret);
}

struct listing_stored {
	struct node_stored *s;
	struct listing *list;
};

static int add_stored(void *arg, const char *name, unsigned char type)
{
	struct listing_stored *ls = arg;
	auto_free char *path = NULL;
	int r = is_shown(ls->s, span_str(name));

	if (r > 0)
		r = path_join(ls->s->path, span_str(name), &path);
	if (!path)
		return MIN(r, 0);
	/* A link to nowhere is listed, and an error when it is looked up. */
	type = child_type(ls->s->node.ns->ckpt->source, path, type);
	return listing_add(ls->list, &ls->s->node, span_str(name),
			   type == DT_DIR ? DT_DIR : DT_REG);
}

static int stored_list(struct node *n, struct listing *ret)
{
	struct listing_stored ls = { stored_of(n), ret };
	int r;

	if (!ls.s->is_dir)
		return fail(-ENOTDIR, "'%s' is not a directory", ls.s->path);
	r = listing_add_dots(ret, n);
	if (r < 0)
		return r;
	/* The sandbox lets a mount of a file read that alone. */
	if (ckpt_is_file(n->ns->ckpt))
		r = add_stored(&ls, n->ns->ckpt->only_item, DT_REG);
	else
		r = io_list(n->ns->ckpt->source, ls.s->path, add_stored, &ls);
	if (r < 0)
		return r;
	if (ret->n == 2)
		r = ns_check_there(n->ns);
	if (r < 0)
		return r;
	listing_sort(ret, 2);
	return r;
}

static int stored_read(struct file *f, uint64_t off, size_t n, struct segments *g)
{
	struct stored_file *sf = container_of(f, struct stored_file, file);

	if (off >= sf->io->size)
		return 0;
	return segments_add_file(g, io_file_ref(sf->io), off,
				 (size_t)MIN((uint64_t)n, sf->io->size - off));
}

static int stored_seek(struct file *f, uint64_t off, int whence, uint64_t *ret)
{
	struct stored_file *sf = container_of(f, struct stored_file, file);
	off_t at = lseek(sf->io->fd, (off_t)off, whence);

	if (at < 0)
		return -errno;
	*ret = (uint64_t)at;
	return 0;
}

static void stored_close(struct file *f)
{
	struct stored_file *sf = container_of(f, struct stored_file, file);

	if (sf->is_counted)
		atomic_fetch_sub(&f->node->ns->drafts.others_read, 1);
	io_file_unref(sf->io);
	free(sf);
}

/* Not when an engine is to see every read (`io=trace:...`, `io=fault(...):...`). */
static int stored_fd(struct file *f)
{
	struct stored_file *sf = container_of(f, struct stored_file, file);

	return io_is_wrapped(f->node->ns->ckpt->io) ? -1 : sf->io->fd;
}

static const struct file_ops stored_file_ops = {
	.read = stored_read,
	.seek = stored_seek,
	.stored = stored_fd,
	.free = stored_close,
};

static int stored_open(struct node *n, int flags, struct file **ret)
{
	struct node_stored *s = stored_of(n);
	struct stored_file *sf;
	int r;

	if (s->is_dir)
		return fail(-EISDIR, "'%s' is a directory", s->path);
	if (open_changes(flags))
		return fail(-EROFS, "'%s' cannot be written: committed steps are immutable",
			    s->path);
	r = file_new(&stored_file_ops, n, sizeof(*sf), &sf);
	if (r < 0)
		return r;
	r = io_file_open(n->ns->ckpt->source, s->path, O_RDONLY, 0, &sf->io);
	if (r < 0) {
		file_close(&sf->file);
		return r;
	}
	sf->is_counted = s->role == STORED_OTHER || s->role == STORED_OPAQUE;
	sf->file.keep_cache = !sf->is_counted;
	if (sf->is_counted)
		atomic_fetch_add(&n->ns->drafts.others_read, 1);
	*ret = &sf->file;
	return 0;
}

bool node_is_stored(const struct node *n, bool *ret_is_dir)
{
	if (n->ops != &stored_ops)
		return false;
	*ret_is_dir = container_of(n, struct node_stored, node)->is_dir;
	return true;
}

int node_stored_role(const struct node *n, enum stored_role *ret)
{
	if (n->ops != &stored_ops)
		return 0;
	*ret = container_of(n, const struct node_stored, node)->role;
	return 1;
}

/* Whether its xattr says so, with which a copy is stored byte for byte, too. */
static bool is_marked(struct node *n)
{
	return is_opaque_item(n) ||
	       (stored_of(n)->role == STORED_OTHER && n->parent && n->parent->ops != n->ops);
}

static int stored_xattr_list(struct node *n, struct buf *ret)
{
	static const char name[] = "user.pytree.kind";

	return is_marked(n) ? buf_add(ret, name, sizeof(name)) : 0;
}

static int stored_xattr_get(struct node *n, const char *name, struct buf *ret)
{
	if (strcmp(name, "kind") || !is_marked(n))
		return -ENODATA;
	return buf_add_str(ret, "\"opaque\"");
}

/* Files that were added later may have made the item a tree. */
static bool stored_still_valid(struct node *n)
{
	const struct node_stored *s = stored_of(n);

	return !is_opaque_item(n) || ns_is_same(n->ns, s->path, &s->id);
}

static void stored_free(struct node *n)
{
	free(stored_of(n)->path);
	free(stored_of(n));
}

static const struct node_ops stored_ops = {
	.name = "stored",
	.is_immutable = true,
	.stat = stored_stat,
	.lookup = stored_lookup,
	.list = stored_list,
	.open = stored_open,
	.xattr_list = stored_xattr_list,
	.xattr_get = stored_xattr_get,
	.still_valid = stored_still_valid,
	.free = stored_free,
};

int node_stored_new(struct node *dir, struct span name, const char *path, const struct stat *st,
		    enum stored_role role, struct node **ret)
{
	struct node_stored *s;
	struct stat above;
	int r;

	if (!S_ISDIR(st->st_mode) && !S_ISREG(st->st_mode))
		return fail(-EIO, "'%s' is neither a file nor a directory", path);
	/* Everything in a step has the time of the step. */
	r = role != STORED_BACKUP ? node_stat(dir, &above) : 0;
	if (r < 0)
		return r;
	r = node_new(&stored_ops, dir->ns, dir, name, sizeof(*s), &s);
	if (r < 0)
		return r;
	if (role != STORED_BACKUP)
		s->mtime = above.st_mtim;
	s->is_dir = S_ISDIR(st->st_mode);
	s->role = role;
	s->id = file_id_of(st);
	s->path = strdup(path);
	if (!s->path) {
		node_unref(&s->node, 1);
		return fail(-ENOMEM, "cannot open '%s'", path);
	}
	*ret = &s->node;
	return 0;
}
