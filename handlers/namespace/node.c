/* SPDX-License-Identifier: Apache-2.0 */
/*
 * node.c - the table of nodes, and the only caller of node and file ops.
 *
 * Invariants: a node in the table is found by (parent, name); a node holds its parent, so a path
 * never dangles; a node leaves the table before it is freed.
 *
 * The kernel does not release everything when a mount ends, so the table knows all objects that are
 * held: nodes with their names, nodes that lost theirs, and open files.
 */
#include "handlers/namespace/node.h"

#include <dirent.h>
#include <pthread.h>

#include "core/base/digest.h"
#include "core/base/err.h"
#include "core/base/log.h"
#include "handlers/namespace/ns.h"

/*
 * st_blksize: with large buffers programs copy faster; but np.load() fills one for the header, and
 * numpy then reads the array past it, so what is in it is read twice: at most a sixteenth.
 */
#define BUFFER_MIN (64 * KiB)

/* A name. Any thread may read the current one without a lock, so a rename keeps the old one. */
struct node_name {
	struct node_name *older;
	char text[];
};

struct node_table {
	/* protects all below, and refs, names and links of all nodes */
	pthread_mutex_t lock;
	struct node **slot;
	size_t n_slots, n;
	struct node *lost; /* linked by hash_next */
	struct file *files;
};

int node_table_new(struct node_table **ret)
{
	struct node_table *t = calloc(1, sizeof(*t));

	if (t) {
		t->n_slots = 1024;
		t->slot = calloc(t->n_slots, sizeof(*t->slot));
	}
	if (!t || !t->slot) {
		free(t);
		return fail(-ENOMEM, "cannot allocate the table of nodes");
	}
	pthread_mutex_init(&t->lock, NULL);
	*ret = t;
	return 0;
}

static void node_destroy(struct node *n)
{
	struct node_name *names = n->names;

	n->ops->free(n);
	while (names) {
		struct node_name *older = names->older;

		free(names);
		names = older;
	}
}

void node_table_free(struct node_table *t)
{
	if (!t)
		return;
	while (t->files)
		file_close(t->files);
	/* Release the nodes that the kernel had not forgotten when the mount ended. */
	while (t->lost) {
		struct node *n = t->lost;

		t->lost = n->hash_next;
		node_destroy(n);
	}
	for (size_t i = 0; i < t->n_slots; i++)
		while (t->slot[i]) {
			struct node *n = t->slot[i];

			t->slot[i] = n->hash_next;
			node_destroy(n);
		}
	pthread_mutex_destroy(&t->lock);
	free(t->slot);
	free(t);
}

uint64_t node_table_count(struct node_table *t)
{
	uint64_t n;

	pthread_mutex_lock(&t->lock);
	n = t->n;
	pthread_mutex_unlock(&t->lock);
	return n;
}

static struct node **node_slot_of(struct node_table *t, const struct node *parent, struct span name)
{
	return &t->slot[hash64(name, (uint64_t)(uintptr_t)parent) & (t->n_slots - 1)];
}

static struct node *node_find(struct node_table *t, const struct node *parent, struct span name)
{
	for (struct node *n = *node_slot_of(t, parent, name); n; n = n->hash_next)
		if (n->parent == parent && span_eq(span_str(n->name), name))
			return n;
	return NULL;
}

static void node_grow(struct node_table *t)
{
	size_t old_n = t->n_slots;
	struct node **old = t->slot, **fresh = calloc(2 * old_n, sizeof(struct node *));

	if (!fresh)
		return;
	t->slot = fresh;
	t->n_slots = 2 * old_n;
	for (size_t i = 0; i < old_n; i++)
		while (old[i]) {
			struct node *n = old[i],
				    **slot = node_slot_of(t, n->parent, span_str(n->name));

			old[i] = n->hash_next;
			n->hash_next = *slot;
			*slot = n;
		}
	free(old);
}

static void hash_in(struct node_table *t, struct node *n)
{
	struct node **slot;

	if (2 * t->n >= t->n_slots)
		node_grow(t);
	slot = node_slot_of(t, n->parent, span_str(n->name));
	n->hash_next = *slot;
	*slot = n;
	n->hashed = true;
	t->n++;
}

static void hash_out(struct node_table *t, struct node *n)
{
	struct node **at = n->lost ? &t->lost : node_slot_of(t, n->parent, span_str(n->name));

	if (!n->hashed && !n->lost)
		return;
	while (*at != n)
		at = &(*at)->hash_next;
	*at = n->hash_next;
	t->n -= n->hashed;
	n->hashed = n->lost = false;
}

/* Mark a node that is held, but not found by its name any more. */
static void node_lose(struct node_table *t, struct node *n)
{
	hash_out(t, n);
	n->hash_next = t->lost;
	t->lost = n;
	n->lost = true;
}

static int name_add(struct node *n, struct span name)
{
	struct node_name *nn = malloc(sizeof(*nn) + name.n + 1);

	if (!nn)
		return fail(-ENOMEM, "cannot name '%.*s'", SPAN_ARG(name));
	memcpy(nn->text, name.p, name.n);
	nn->text[name.n] = '\0';
	nn->older = n->names;
	n->names = nn;
	n->name = nn->text;
	return 0;
}

int node_new(const struct node_ops *ops, struct ns *ns, struct node *dir, struct span name,
	     size_t size, void *ret)
{
	struct node *n = calloc(1, size);

	if (!n || name_add(n, name) < 0) {
		free(n);
		return fail(-ENOMEM, "cannot look up '%.*s'", SPAN_ARG(name));
	}
	n->ops = ops;
	n->ns = ns;
	n->refs = 1;
	n->ino = 1;
	if (dir) {
		n->parent = node_ref(dir);
		n->ino = node_ino(dir, name);
		n->ttl = n->child_ttl = dir->child_ttl;
	}
	*(struct node **)ret = n;
	return 0;
}

struct node *node_ref(struct node *n)
{
	pthread_mutex_lock(&n->ns->nodes->lock);
	n->refs++;
	pthread_mutex_unlock(&n->ns->nodes->lock);
	return n;
}

void node_unref(struct node *n, uint64_t count)
{
	while (n) {
		struct node_table *t = n->ns->nodes;
		struct node *parent;
		bool last;

		pthread_mutex_lock(&t->lock);
		n->refs -= count;
		last = n->refs == 0;
		if (last)
			hash_out(t, n);
		pthread_mutex_unlock(&t->lock);
		if (!last)
			return;
		parent = n->parent;
		node_destroy(n);
		n = parent;
		count = 1;
	}
}

void node_forget_name(struct node *n)
{
	struct node_table *t = n->ns->nodes;

	pthread_mutex_lock(&t->lock);
	node_lose(t, n);
	pthread_mutex_unlock(&t->lock);
}

int node_moved(struct node *n, struct node *to_dir, struct span to_name)
{
	struct node_table *t = n->ns->nodes;
	struct node *old_parent, *replaced;
	int r;

	node_ref(to_dir);
	pthread_mutex_lock(&t->lock);
	old_parent = n->parent;
	hash_out(t, n);
	r = name_add(n, to_name);
	if (r >= 0) {
		replaced = node_find(t, to_dir, to_name);
		if (replaced)
			node_lose(t, replaced);
		n->parent = to_dir;
	} else {
		old_parent = to_dir;
	}
	hash_in(t, n);
	pthread_mutex_unlock(&t->lock);
	node_unref(old_parent, 1);
	return r;
}

/* Returns the node from the table, with a reference, or NULL. */
static struct node *in_table(struct node_table *t, struct node *dir, struct span name)
{
	struct node *n;

	pthread_mutex_lock(&t->lock);
	n = node_find(t, dir, name);
	if (n)
		n->refs++;
	pthread_mutex_unlock(&t->lock);
	return n;
}

static bool is_valid(struct node *n)
{
	return !n->ops->still_valid || n->ops->still_valid(n);
}

int node_check_name(struct node *dir, struct span name)
{
	auto_node *n = in_table(dir->ns->nodes, dir, name);

	if (!n)
		return 0;
	return is_valid(n) ? 1 : -ESTALE;
}

/* Of a SOURCE that was removed nothing is there. */
static int check_absent(const struct node *n, int r)
{
	int gone = r == -ENOENT ? ns_check_there(n->ns) : 0;

	return gone < 0 ? gone : r;
}

int node_lookup(struct node *dir, struct span name, struct node **ret)
{
	struct node_table *t = dir->ns->nodes;
	struct node *n, *fresh = NULL;
	int r;

	if (!dir->ops->lookup)
		return fail(-ENOTDIR, "'%s' is not a directory", dir->name);
	n = in_table(t, dir, name);
	if (n && is_valid(n)) {
		*ret = n;
		return 0;
	}
	if (n) {
		node_forget_name(n);
		node_unref(n, 1);
	}
	r = dir->ops->lookup(dir, name, &fresh);
	if (r < 0)
		return check_absent(dir, r);
	pthread_mutex_lock(&t->lock);
	n = node_find(t, dir, name);
	if (n)
		n->refs++;
	else
		hash_in(t, fresh);
	pthread_mutex_unlock(&t->lock);
	if (n)
		node_unref(fresh, 1);
	*ret = n ? n : fresh;
	return 0;
}

struct node *node_parent(const struct node *n)
{
	struct node_table *t = n->ns->nodes;
	struct node *parent;

	pthread_mutex_lock(&t->lock);
	parent = n->parent;
	if (parent)
		parent->refs++;
	pthread_mutex_unlock(&t->lock);
	return parent;
}

static int node_add_path(const struct node *n, struct buf *ret)
{
	/* The recursion is at most LIMIT_TREE_DEPTH deep, plus the levels above a tree. */
	bool is_below = n->parent && n->parent->parent;
	int r = is_below ? node_add_path(n->parent, ret) : 0;

	return r < 0 ? r : buf_addf(ret, "%s%s", is_below ? "/" : "", n->name);
}

int node_path(const struct node *n, struct buf *ret)
{
	struct node_table *t = n->ns->nodes;
	int r;

	/* Lock, since a rename changes the parent of a node and may free the old one. */
	pthread_mutex_lock(&t->lock);
	r = node_add_path(n, ret);
	pthread_mutex_unlock(&t->lock);
	return r;
}

bool node_is_in_use(struct ns *ns, struct span name)
{
	struct node_table *t = ns->nodes;
	bool found = false;

	pthread_mutex_lock(&t->lock);
	for (const struct file *f = t->files; f && !found; f = f->next) {
		const struct node *n = f->node;

		while (n->parent && n->parent != ns->root)
			n = n->parent;
		found = span_eq(name, span_str(".")) ||
			(n->parent && span_eq(span_str(n->name), name));
	}
	pthread_mutex_unlock(&t->lock);
	return found;
}

/* ---- the wrappers ---- */

int node_stat(struct node *n, struct stat *ret)
{
	uint64_t size;
	int r;

	*ret = (struct stat){ .st_ino = n->ino, .st_nlink = 1 };
	r = check_absent(n, n->ops->stat(n, ret));
	size = (uint64_t)ret->st_size;
	ret->st_blksize = BUFFER_MIN;
	if (size >= 2 * MiB)
		ret->st_blksize = (blksize_t)MIN(MiB, 1ull << (59 - __builtin_clzll(size)));
	if (r >= 0 && atomic_load(&n->sources))
		ret->st_blocks = MAX(ret->st_blocks, (blkcnt_t)div_up(size, 512));
	return r;
}

int node_list(struct node *n, struct listing *ret)
{
	return n->ops->list ? check_absent(n, n->ops->list(n, ret)) :
			      fail(-ENOTDIR, "'%s' is not a directory", n->name);
}

/*
 * cp assumes that a file with fewer blocks than bytes is sparse, and then reads and writes instead
 * of requesting a copy. So while drafts exist, a leaf that is open reports the blocks of a plain
 * file. du opens no files, so it still gets the stored size.
 */
static void count_source(struct file *f)
{
	struct ns *ns = f->node->ns;

	if (!f->ops->array || !f->ops->array(f))
		return;
	pthread_mutex_lock(&ns->drafts.lock);
	f->is_source = ns->drafts.list != NULL;
	pthread_mutex_unlock(&ns->drafts.lock);
	if (f->is_source)
		atomic_fetch_add(&f->node->sources, 1);
}

int node_open(struct node *n, int flags, struct file **ret)
{
	int r;

	trace(TRACE_LEAF, "open %s '%s'", n->ops->name, n->name);
	if (!n->ops->open)
		return fail(-EISDIR, "'%s' is a directory",
			    *n->name ? n->name : n->ns->ckpt->opts.source);
	r = n->ops->open(n, flags, ret);
	if (r >= 0)
		count_source(*ret);
	return r;
}

int node_readlink(struct node *n, struct buf *ret)
{
	if (!n->ops->readlink)
		return fail(-EINVAL, "'%s' is not a link", n->name);
	return n->ops->readlink(n, ret);
}

int node_xattr_list(struct node *n, struct buf *ret)
{
	return n->ops->xattr_list ? n->ops->xattr_list(n, ret) : 0;
}

int node_xattr_get(struct node *n, const char *name, struct buf *ret)
{
	if (!n->ops->xattr_get)
		return -ENODATA;
	return n->ops->xattr_get(n, name, ret);
}

const char *node_why_read_only(const struct node *n)
{
	return n->ns->ckpt->only_item ?
		       "files of tensors are only read; `pytreefs save` and `convert` make a "
		       "checkpoint of them" :
		       "committed steps are immutable";
}

static int read_only(const struct node *n)
{
	auto_buf path = { 0 };

	node_path(n, &path);
	return fail(-EROFS, "'%s' cannot be changed: %s", path.n ? buf_str(&path) : "/",
		    node_why_read_only(n));
}

int node_refuse_removal(const struct node *dir, struct span name)
{
	const struct ns *ns = dir->ns;
	auto_buf path = { 0 };

	node_path(dir, &path);
	if (ns->ckpt->shape != SHAPE_ROOT || !path.n ||
	    span_starts(buf_span(&path), span_str(".pytreefs")))
		return fail(-EROFS, "'%.*s' cannot be removed: %s", SPAN_ARG(name),
			    node_why_read_only(dir));
	return fail(-EROFS, "'%.*s/%.*s' cannot be removed: a step goes as a whole%s: rmdir '%.*s'",
		    SPAN_ARG(buf_span(&path)), SPAN_ARG(name),
		    ns->options->allow_delete ? "" : ", and only with -o allow_delete",
		    (int)strcspn(buf_str(&path), "/"), buf_str(&path));
}

int node_mkdir(struct node *dir, struct span name, unsigned mode, struct node **ret)
{
	return dir->ops->mkdir ? check_absent(dir, dir->ops->mkdir(dir, name, mode, ret)) :
				 read_only(dir);
}

int node_create(struct node *dir, struct span name, int flags, struct node **ret,
		struct file **ret_file)
{
	return dir->ops->create ? dir->ops->create(dir, name, flags, ret, ret_file) :
				  read_only(dir);
}

int node_unlink(struct node *dir, struct span name)
{
	return dir->ops->unlink ? dir->ops->unlink(dir, name) : node_refuse_removal(dir, name);
}

int node_rmdir(struct node *dir, struct span name)
{
	return dir->ops->rmdir ? dir->ops->rmdir(dir, name) : node_refuse_removal(dir, name);
}

int node_rename(struct node *dir, struct span name, struct node *to_dir, struct span to_name,
		unsigned flags)
{
	return dir->ops->rename ? dir->ops->rename(dir, name, to_dir, to_name, flags) :
				  read_only(dir);
}

int node_setattr(struct node *n, const struct stat *st, unsigned which, struct file *file)
{
	return n->ops->setattr ? n->ops->setattr(n, st, which, file) : read_only(n);
}

int node_xattr_set(struct node *n, const char *name, const struct span *value, int flags)
{
	return n->ops->xattr_set ? n->ops->xattr_set(n, name, value, flags) : read_only(n);
}

/* ---- files ---- */

int file_new(const struct file_ops *ops, struct node *n, size_t size, void *ret)
{
	struct file *f = calloc(1, size);

	if (!f)
		return fail(-ENOMEM, "cannot open '%s'", n->name);
	f->ops = ops;
	f->node = node_ref(n);
	pthread_mutex_lock(&n->ns->nodes->lock);
	f->at = &n->ns->nodes->files;
	f->next = *f->at;
	if (f->next)
		f->next->at = &f->next;
	*f->at = f;
	pthread_mutex_unlock(&n->ns->nodes->lock);
	*(struct file **)ret = f;
	return 0;
}

void file_close(struct file *f)
{
	struct node *n;

	if (!f)
		return;
	n = f->node;
	pthread_mutex_lock(&n->ns->nodes->lock);
	*f->at = f->next;
	if (f->next)
		f->next->at = f->at;
	pthread_mutex_unlock(&n->ns->nodes->lock);
	if (f->is_source)
		atomic_fetch_sub(&n->sources, 1);
	f->ops->free(f);
	node_unref(n, 1);
}
