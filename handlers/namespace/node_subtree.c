/* SPDX-License-Identifier: Apache-2.0 */
/*
 * node_subtree.c - `D.safetensors`, `D.json` and `D.html` beside a directory, item or step D.
 *
 * Inside D, the names are `.safetensors`, `@bfloat16.safetensors` and so on, since the top of a
 * mount has nothing beside it. subtree_file.c makes the bytes of these files; this file has their
 * names and nodes. A file is made when its name is looked up, since the reply has its size, and is
 * kept in the cache.
 */
#include <fcntl.h>
#include <pthread.h>

#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/refusal.h"
#include "core/step/step_name.h"
#include "handlers/namespace/node_parts.h"
#include "handlers/namespace/node_tree.h"
#include "handlers/namespace/readahead.h"
#include "handlers/subtree/subtree_file.h"

struct node_subtree {
	struct node node;
	struct subtree st;
	enum name_ext ext;
	enum dtype cast;
	char *title;
	uint64_t owner; /* owner of the file's entry in the cache */
	/* For a step of a root, which may be replaced by another one; path is NULL for others. */
	char *path;
	struct file_id id;
	char *link; /* name of the step to which `latest` pointed, or NULL */
	struct node_subtree *next,
		**at; /* list of all nodes that have a path; protected by ns->drafts.lock */
	struct timed_access access; /* for all of the contents; protected by ns->drafts.lock */
	bool has_size;              /* set by the first stat */
	uint64_t size;
};

struct view_file {
	struct file file;
	struct cache_entry *pin; /* holds the subtree_file in the cache */
	struct subtree_reader *rd;
	struct readahead ahead;
};

static struct node_subtree *subtree_of(struct node *n)
{
	return container_of(n, struct node_subtree, node);
}

static void free_file(void *value)
{
	subtree_file_free(value);
}

/* A new file, or the error of another attempt that is remembered for the same documents. */
static int new_or_refused_file(struct ns *ns, const struct subtree *st,
			       const struct subtree_want *want, struct subtree_file **ret)
{
	int64_t began = clock_ns();
	uint64_t mark = 1;
	struct refusal_key key;
	auto_buf name = { 0 };
	int r = buf_addf(&name, "%d %d %s", (int)want->ext, (int)want->cast, want->name);

	for (size_t i = 0; i < st->n && r >= 0; i++) {
		const struct subtree_part *p = &st->part[i];

		mark = mark * 31 + ns_item_mark(ns, p->source, NULL);
		r = buf_addf(&name, " %s:%u", p->source, p->tree ? p->tree->id : 0);
	}
	if (r < 0)
		return r;
	key = refusal_key(ns->ckpt->owner, buf_span(&name), 1);
	r = refusal_ask(key, mark);
	if (r < 0)
		return r;
	r = subtree_file_new(st, want, ret);
	return refusal_keep(key, mark, began, r);
}

/* Get the file from the cache, or make it. The caller owns the pin. */
static int pin_file(struct node_subtree *s, struct cache_entry **ret)
{
	const struct options *o = s->node.ns->options;
	struct subtree_want want = { s->ext, s->cast, s->title, o->safetensors_separator,
				     (enum dtype)o->restore_dtype };
	struct cache *cache = s->node.ns->ckpt->cache;
	struct cache_key key = { .owner = s->owner };
	struct subtree_file *f = NULL;
	struct cache_entry *e;
	int r = cache_begin(cache, &key, &e);

	if (r < 0)
		return r;
	if (r == CACHE_MINE) {
		r = new_or_refused_file(s->node.ns, &s->st, &want, &f);
		if (r < 0)
			cache_fail(cache, e, r);
		else
			cache_fill(cache, e, f, subtree_file_memory(f), free_file);
	} else if (r == CACHE_BUSY) {
		r = cache_wait(cache, e);
	}
	if (r < 0) {
		cache_put(cache, e);
		return r;
	}
	*ret = e;
	return 0;
}

static int subtree_access(struct node_subtree *s, struct access *ret)
{
	struct ns *ns = s->node.ns;
	int64_t now = clock_ns();
	struct timed_access a;
	int r;

	pthread_mutex_lock(&ns->drafts.lock);
	a = s->access;
	pthread_mutex_unlock(&ns->drafts.lock);
	if (!timed_access_is_fresh(&a, now)) {
		r = node_parts_access(ns->ckpt->source, s->path, &s->st, &a.access);
		if (r < 0)
			return r;
		a.at = clock_ns();
		a.took = a.at - now;
		pthread_mutex_lock(&ns->drafts.lock);
		s->access = a;
		pthread_mutex_unlock(&ns->drafts.lock);
	}
	*ret = a.access;
	return 0;
}

static int subtree_stat(struct node *n, struct stat *ret)
{
	struct node_subtree *s = subtree_of(n);
	struct access a;
	int r = subtree_access(s, &a);

	if (r < 0)
		return r;

	/* Threads may compute it at once, with the same result. */
	if (!__atomic_load_n(&s->has_size, __ATOMIC_ACQUIRE)) {
		struct cache_entry *e;

		r = pin_file(s, &e);
		if (r < 0)
			return r;
		s->size = subtree_file_size(e->value);
		cache_put(n->ns->ckpt->cache, e);
		__atomic_store_n(&s->has_size, true, __ATOMIC_RELEASE);
	}
	ns_stat_file(n->ns, &a, &s->st.mtime, s->size, s->size, ret);
	return 0;
}

/* ---- reading ---- */

static void view_prefetch(struct file *f, uint64_t off, uint64_t n, struct zarr_guess *guess)
{
	subtree_prefetch(container_of(f, struct view_file, file)->rd, off, n, guess);
}

static void view_drop_behind(struct file *f, uint64_t from, uint64_t to)
{
	subtree_drop_behind(container_of(f, struct view_file, file)->rd, from, to);
}

static void view_end_ahead(struct file *f)
{
	subtree_end_ahead(container_of(f, struct view_file, file)->rd);
}

static const struct readahead_ops view_ahead_ops = { .prefetch = view_prefetch,
						     .drop_behind = view_drop_behind,
						     .end_ahead = view_end_ahead };

static int view_read(struct file *f, uint64_t off, size_t n, struct segments *g)
{
	struct view_file *vf = container_of(f, struct view_file, file);
	uint64_t size = subtree_file_size(vf->pin->value), end = MIN(off + n, size);
	int r;

	if (off >= size)
		return 0;
	/* A program that reads the header has yet to choose the data that it reads. */
	if (off < subtree_file_head(vf->pin->value))
		return subtree_read(vf->rd, off, n, g);
	readahead_request(&vf->ahead, off, end);
	r = subtree_read(vf->rd, off, n, g);
	if (r >= 0)
		readahead_answered(&vf->ahead, end);
	return r;
}

static int view_seek(struct file *f, uint64_t off, int whence, uint64_t *ret)
{
	struct view_file *vf = container_of(f, struct view_file, file);

	if (off >= subtree_file_size(vf->pin->value))
		return -ENXIO;
	return subtree_seek(vf->rd, off, whence, ret);
}

static void view_close(struct file *f)
{
	struct view_file *vf = container_of(f, struct view_file, file);

	readahead_release(&vf->ahead);
	subtree_reader_free(vf->rd);
	cache_put(f->node->ns->ckpt->cache, vf->pin);
	free(vf);
}

static const struct file_ops view_file_ops = { .read = view_read,
					       .seek = view_seek,
					       .free = view_close };

static int subtree_node_open(struct node *n, int flags, struct file **ret)
{
	struct node_subtree *s = subtree_of(n);
	struct view_file *vf;
	int r;

	if (open_changes(flags))
		return fail(-EROFS, "'%s' cannot be written: it is a view", n->name);
	r = file_new(&view_file_ops, n, sizeof(*vf), &vf);
	if (r < 0)
		return r;
	vf->file.keep_cache = true;
	r = pin_file(s, &vf->pin);
	if (r >= 0)
		r = subtree_reader_new(&s->st, vf->pin->value, &vf->rd);
	if (r < 0) {
		file_close(&vf->file);
		return r;
	}
	readahead_init(&vf->ahead, &view_ahead_ops, &vf->file, subtree_file_size(vf->pin->value));
	*ret = &vf->file;
	return 0;
}

/* ---- nodes ---- */

static bool subtree_still_valid(struct node *n)
{
	struct node_subtree *s = subtree_of(n);
	auto_node *latest = NULL;
	auto_buf target = { 0 };

	if (s->link && (node_lookup(n->parent, span_str(STEP_LATEST), &latest) < 0 ||
			node_readlink(latest, &target) < 0 ||
			!span_eq(buf_span(&target), span_str(s->link)))) {
		err_clear();
		return false;
	}
	for (size_t i = 0; i < s->st.n; i++)
		if (!ns_is_same(n->ns, s->st.part[i].source, &s->st.part[i].id))
			return false;
	return !s->path || ns_is_same(n->ns, s->path, &s->id);
}

static void subtree_node_free(struct node *n)
{
	struct node_subtree *s = subtree_of(n);

	if (s->path) {
		pthread_mutex_lock(&n->ns->drafts.lock);
		*s->at = s->next;
		if (s->next)
			s->next->at = s->at;
		pthread_mutex_unlock(&n->ns->drafts.lock);
	}
	cache_drop(n->ns->ckpt->cache, s->owner);
	subtree_release(&s->st);
	free(s->title);
	free(s->path);
	free(s->link);
	free(s);
}

static const struct node_ops subtree_ops = {
	.name = "subtree",
	.stat = subtree_stat,
	.open = subtree_node_open,
	.still_valid = subtree_still_valid,
	.free = subtree_node_free,
};

/* ---- names ---- */

struct wanted {
	struct span stem; /* empty: the directory itself */
	enum name_ext ext;
	enum dtype cast;
};

static int bad_name(struct span name, const char *why)
{
	return fail(-ENOENT, "'%.*s': %s", SPAN_ARG(name), why);
}

/* Parse a name. Quietly returns -ENOENT for a name that is not such a view. */
static int parse_name(struct span name, struct wanted *ret)
{
	struct name_view v;
	auto_buf whole = { 0 };
	bool inside = name.n && (name.p[0] == '.' || name.p[0] == '@');
	int r;

	ret->ext = name_ext_of(name);
	if (ret->ext != NAME_EXT_SAFETENSORS && ret->ext != NAME_EXT_JSON &&
	    ret->ext != NAME_EXT_HTML)
		return -ENOENT;
	/* The grammar requires a stem. */
	r = inside ? buf_add_byte(&whole, 'D') : 0;
	if (r < 0)
		return r;
	r = buf_add_span(&whole, name);
	if (r < 0)
		return r;
	r = name_view_parse(buf_span(&whole), &v);
	if (r < 0)
		return node_view_absent(name, r);
	/* "D/.json" is D itself, whereas "D/.d.json" is its child ".d". */
	ret->stem = span_of(name.p, v.stem.n - inside);
	ret->cast = DTYPE_UNKNOWN;
	if (v.has_box || v.has_shape)
		return bad_name(name, "only .npy, .bin and .json of arrays have boxes and shapes");
	if (!v.has_cast)
		return 0;
	if (ret->ext != NAME_EXT_SAFETENSORS)
		return bad_name(name, "a description has no cast");
	ret->cast = dtype_by_user(v.cast);
	return ret->cast == DTYPE_UNKNOWN ? bad_name(name, "the cast is not a dtype") : 0;
}

/* Get the leaf with that stem as a node, since a single leaf can be a file of one tensor. */
static int lookup_leaf(struct node *dir, struct span stem, struct node **ret)
{
	const struct node_dir *d = container_of(dir, struct node_dir, node);
	const struct tree_node *leaf;

	if (dir->ops != &node_dir_ops)
		return -ENOENT;
	leaf = tree_child_by_stem(d->tree, stem);
	if (d->tree->kind == TREE_LEAF)
		leaf = span_starts(d->tree->name, stem) && d->tree->name.n > stem.n &&
				       d->tree->name.p[stem.n] == '.' ?
			       d->tree :
			       NULL;
	if (!leaf || leaf->kind != TREE_LEAF)
		return -ENOENT;
	return node_lookup(dir, leaf->name, ret);
}

/* Get the node that the view shows; link gets the target's name when the name is that of a link. */
static int lookup_target(struct node *dir, const struct wanted *w, struct node **ret,
			 struct buf *link)
{
	auto_node *n = NULL;
	int r;

	if (w->stem.n == 0) {
		*ret = node_ref(dir);
		return 0;
	}
	r = node_lookup(dir, w->stem, &n);
	if (r >= 0)
		r = node_follow(dir, &n, link);
	if (r == -ENOENT && w->ext == NAME_EXT_SAFETENSORS)
		r = lookup_leaf(dir, w->stem, &n);
	if (r < 0)
		return r;
	*ret = take(n);
	return 0;
}

/* A step of a root may be replaced by another one of the same name. */
static int remember_step(struct node_subtree *s, struct node *target)
{
	const struct file_id *id = NULL;
	struct ns *ns = s->node.ns;
	const char *path = NULL;

	if (s->node.parent != s->node.ns->root)
		return 0;
	if (target->ops == &node_step_ops) {
		path = node_step_path(target);
		id = node_step_id(target);
	} else if (target->ops == &node_dir_ops &&
		   container_of(target, struct node_dir, node)->is_item) {
		const struct item *item = container_of(target, struct node_dir, node)->item;

		path = item->path;
		id = &item->id;
	}
	if (!path)
		return 0;
	s->id = *id;
	s->path = strdup(path);
	if (!s->path)
		return -ENOMEM;
	pthread_mutex_lock(&ns->drafts.lock);
	s->at = &ns->views;
	s->next = ns->views;
	if (s->next)
		s->next->at = &s->next;
	ns->views = s;
	pthread_mutex_unlock(&ns->drafts.lock);
	return 0;
}

void ns_drop_changed_views(struct ns *ns)
{
	struct listed {
		char *name, *path;
		struct file_id id;
	} * all;
	size_t n = 0;

	pthread_mutex_lock(&ns->drafts.lock);
	for (const struct node_subtree *s = ns->views; s; s = s->next)
		n++;
	all = calloc(n + 1, sizeof(*all));
	n = 0;
	for (const struct node_subtree *s = ns->views; s && all; s = s->next)
		all[n++] = (struct listed){ strdup(s->node.name), strdup(s->path), s->id };
	pthread_mutex_unlock(&ns->drafts.lock);
	while (n-- > 0) {
		if (all[n].name && all[n].path && !ns_is_same(ns, all[n].path, &all[n].id))
			ns_changed(ns, all[n].name);
		free(all[n].name);
		free(all[n].path);
	}
	free(all);
}

static int make_node(struct node *dir, struct span name, const struct wanted *w,
		     struct node *target, struct buf *link, struct node **ret)
{
	const char *source = dir->ns->ckpt->opts.source, *slash = strrchr(source, '/');
	struct node_subtree *s;
	auto_node *made = NULL;
	int r = node_new(&subtree_ops, dir->ns, dir, name, sizeof(*s), &s);

	if (r < 0)
		return r;
	s->ext = w->ext;
	s->cast = w->cast;
	s->owner = cache_owner();
	if (w->stem.n)
		s->title = span_dup_str(w->stem);
	else
		s->title = strdup(*dir->name ? dir->name : slash && slash[1] ? slash + 1 : source);
	made = &s->node;
	if (!s->title || (link->n && !(s->link = span_dup_str(buf_span(link)))))
		return fail(-ENOMEM, "cannot look up '%.*s'", SPAN_ARG(name));
	r = node_open_subtree(target, &s->st);
	if (r < 0)
		return r;
	r = node_add_custom(target, &s->st);
	if (r < 0)
		return r;
	r = remember_step(s, target);
	if (r < 0)
		return r;
	*ret = take(made);
	return 0;
}

int node_subtree_lookup(struct node *dir, struct span name, struct node **ret)
{
	auto_node *target = NULL, *n = NULL;
	auto_buf link = { 0 };
	struct wanted w;
	struct stat st;
	int r = parse_name(name, &w);

	if (r < 0)
		return r;
	r = lookup_target(dir, &w, &target, &link);
	if (r < 0)
		return r;
	/* A root of steps is not a tree. */
	if (target->ops != &node_dir_ops && target->ops != &node_step_ops &&
	    !(target->ops == &node_leaf_ops && w.ext == NAME_EXT_SAFETENSORS))
		return -ENOENT;
	r = make_node(dir, name, &w, target, &link, &n);
	if (r < 0)
		return r;
	/* A name only exists if its file can be made. */
	r = node_stat(n, &st);
	if (r < 0)
		return r;
	*ret = take(n);
	return 0;
}
