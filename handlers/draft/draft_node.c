/* SPDX-License-Identifier: Apache-2.0 */
/* draft_node.c - the tree of names of a draft. The names that are accepted are in draft_name.c. */
#include "handlers/draft/draft.h"

#include <time.h>

#include "core/base/array.h"
#include "core/base/digest.h"
#include "core/base/err.h"
#include "core/base/lock.h"
#include "core/tree/name.h"
#include "handlers/draft/draft_file.h"

static struct draft_name *name_new(struct span name)
{
	struct draft_name *dn = malloc(sizeof(*dn) + name.n + 1);

	if (!dn)
		return NULL;
	memcpy(dn->text, name.p, name.n);
	dn->text[name.n] = '\0';
	dn->older = NULL;
	return dn;
}

static void set_name(struct draft_node *n, struct draft_name *name)
{
	name->older = n->names;
	n->names = name;
	n->name = name->text;
}

static void names_free(struct draft_node *n)
{
	for (struct draft_name *older; n->names; n->names = older) {
		older = n->names->older;
		free(n->names);
	}
}

int draft_node_new(struct draft *d, struct span name, bool is_dir, struct draft_node **ret)
{
	struct draft_node *n = calloc(1, sizeof(*n));
	struct draft_name *first = n ? name_new(name) : NULL;
	int r = 0;

	if (!first) {
		free(n);
		return fail(-ENOMEM, "cannot make '%.*s'", SPAN_ARG(name));
	}
	set_name(n, first);
	n->draft = d;
	n->is_dir = is_dir;
	n->refs = 1;
	d->next_ino++;
	/* Numbers of drafts are their own, distinct from those made from paths. */
	n->ino = hash64(span_of(&d->next_ino, sizeof(d->next_ino)), hash64(span_str(d->name), 1)) |
		 1;
	clock_gettime(CLOCK_REALTIME, &n->mtime);
	if (!is_dir)
		r = draft_file_new(n, &n->file);
	if (r < 0) {
		names_free(n);
		free(n);
		return r;
	}
	*ret = n;
	return 0;
}

/* Called with the lock held. A node without references has no children that are still in use. */
static void node_free_one(struct draft_node *n)
{
	for (struct draft_xattr *x = n->xattrs, *next; x; x = next) {
		next = x->next;
		buf_release(&x->value);
		free(x->name);
		free(x);
	}
	draft_file_free(n->file);
	item_store_free(n->item.store);
	item_store_free(n->replicas.store);
	if (n->copied) {
		buf_release(&n->copied->document);
		free(n->copied->from);
		free(n->copied);
	}
	free(n->item.dir);
	free(n->replicas.dir);
	free(n->child);
	names_free(n);
	free(n);
}

void draft_nodes_free(struct draft_node *n)
{
	for (size_t i = 0; n && i < n->n_children; i++)
		draft_nodes_free(n->child[i]);
	if (n)
		node_free_one(n);
}

const struct copied *draft_copied(const struct draft_node *n)
{
	static const struct copied nothing;

	return n->copied ? n->copied : &nothing;
}

struct copied *draft_copied_new(struct draft_node *n)
{
	if (!n->copied)
		n->copied = calloc(1, sizeof(*n->copied));
	return n->copied;
}

struct draft_node *draft_node_ref(struct draft_node *n)
{
	auto_unlock pthread_mutex_t *held = lock_hold(&n->draft->lock);

	n->refs++;
	return n;
}

void draft_node_unref(struct draft_node *n)
{
	struct draft *d;
	bool last;

	if (!n)
		return;
	d = n->draft;
	pthread_mutex_lock(&d->lock);
	last = --n->refs == 0;
	pthread_mutex_unlock(&d->lock);
	/* Without the lock, since the release of contents waits for jobs. */
	if (last)
		node_free_one(n);
}

/* ---- with the lock held ---- */

/* The index of a name among the children, or the index at which to insert it. */
static size_t draft_node_place_of(const struct draft_node *dir, struct span name, bool *ret_found)
{
	size_t lo = 0, hi = dir->n_children;

	*ret_found = false;
	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;
		int c = span_cmp(span_str(dir->child[mid]->name), name);

		if (c == 0) {
			*ret_found = true;
			return mid;
		}
		if (c < 0)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

static struct draft_node *child_of(const struct draft_node *dir, struct span name)
{
	bool found;
	size_t at = draft_node_place_of(dir, name, &found);

	return found ? dir->child[at] : NULL;
}

static void touch(struct draft_node *n)
{
	n->draft->changes++;
	clock_gettime(CLOCK_REALTIME, &n->mtime);
}

void draft_touch(struct draft_node *n)
{
	auto_unlock pthread_mutex_t *held = lock_hold(&n->draft->lock);

	touch(n);
}

/* Reserve space for one more child, so that attach() cannot fail. */
static int draft_node_reserve(struct draft_node *dir)
{
	return array_reserve(dir->child, dir->cap, dir->n_children + 1) ?
		       0 :
		       fail(-ENOMEM, "cannot add a name to '%s'", dir->name);
}

static void attach(struct draft_node *dir, struct draft_node *n)
{
	bool found;
	size_t at = draft_node_place_of(dir, span_str(n->name), &found);

	memmove(dir->child + at + 1, dir->child + at, (dir->n_children - at) * sizeof(*dir->child));
	dir->child[at] = n;
	dir->n_children++;
	n->parent = dir;
	touch(dir);
}

static void detach(struct draft_node *n)
{
	struct draft_node *dir = n->parent;
	bool found;
	size_t at = draft_node_place_of(dir, span_str(n->name), &found);

	dir->n_children--;
	memmove(dir->child + at, dir->child + at + 1, (dir->n_children - at) * sizeof(*dir->child));
	n->parent = NULL;
	dir->draft->removals += n->is_dir || name_ext_of(span_str(n->name)) != NAME_EXT_NONE;
	touch(dir);
}

static int check_open(const struct draft_node *dir)
{
	if (dir->draft->life == DRAFT_COMMITTING)
		return fail(-EBUSY, "draft '%s' is being committed", dir->draft->name);
	if (dir->draft->life == DRAFT_GONE || (!dir->parent && dir != dir->draft->root))
		return fail(-ENOENT, "'%s' is gone", dir->name);
	return 0;
}

struct draft_node *draft_item_of(struct draft_node *n)
{
	const struct draft_node *root = n->draft->root;

	if (n->draft->is_item)
		return n->draft->root;
	while (n && n->parent != root)
		n = n->parent;
	return n;
}

int draft_node_path(const struct draft_node *n, struct buf *ret)
{
	int r = 0;

	/*
	 * A draft of one item is a child of its step, like any other item; a tree that is a
	 * checkpoint is not.
	 */
	if (!n->parent)
		return n->draft->is_item && !n->draft->any_name && !n->draft->is_tree ?
			       buf_add_str(ret, n->draft->dir->final) :
			       0;
	r = draft_node_path(n->parent, ret);
	return r < 0 ? r : buf_addf(ret, "%s%s", ret->n ? "/" : "", n->name);
}

/* ---- changes ---- */

int draft_lookup(struct draft_node *dir, struct span name, struct draft_node **ret)
{
	auto_unlock pthread_mutex_t *held = lock_hold(&dir->draft->lock);
	struct draft_node *n = dir->is_dir ? child_of(dir, name) : NULL;

	if (!n)
		return -ENOENT;
	n->refs++;
	*ret = n;
	return 0;
}

void draft_list_release(struct draft_list *l)
{
	for (size_t i = 0; i < l->n; i++)
		draft_node_unref(l->node[i]);
	free(l->node);
	*l = (struct draft_list){ 0 };
}

int draft_children(struct draft_node *dir, struct draft_list *ret)
{
	auto_unlock pthread_mutex_t *held = lock_hold(&dir->draft->lock);

	ret->node = malloc((dir->n_children + 1) * sizeof(*ret->node));
	if (!ret->node)
		return fail(-ENOMEM, "cannot list '%s'", dir->name);
	ret->n = dir->n_children;
	for (size_t i = 0; i < ret->n; i++) {
		ret->node[i] = dir->child[i];
		ret->node[i]->refs++;
	}
	return 0;
}

static int draft_node_make(struct draft_node *dir, struct span name, bool is_dir,
			   struct draft_node **ret)
{
	auto_unlock pthread_mutex_t *held = lock_hold(&dir->draft->lock);
	int r = check_open(dir);

	if (r < 0)
		return r;
	if (child_of(dir, name))
		return -EEXIST;
	r = draft_check_name(NULL, dir, name, is_dir, NULL);
	if (r < 0)
		return r;
	r = draft_node_reserve(dir);
	if (r < 0)
		return r;
	r = draft_node_new(dir->draft, name, is_dir, ret);
	if (r < 0)
		return r;
	attach(dir, *ret);
	(*ret)->refs++;
	return 0;
}

int draft_mkdir(struct draft_node *dir, struct span name, struct draft_node **ret)
{
	return draft_node_make(dir, name, true, ret);
}

int draft_create(struct draft_node *dir, struct span name, struct draft_node **ret)
{
	return draft_node_make(dir, name, false, ret);
}

/* Called without the lock. Drops the reference that the former directory had. */
static void release_tree(struct draft_node *n)
{
	if (n && !n->is_dir)
		draft_file_unname(n->file);
	draft_node_unref(n);
}

/* Take a name away. *ret is the node, of which the caller has the directory's reference. */
static int take_away(struct draft_node *dir, struct span name, bool is_dir, struct draft_node **ret)
{
	auto_unlock pthread_mutex_t *held = lock_hold(&dir->draft->lock);
	struct draft_node *n = child_of(dir, name);
	int r = check_open(dir);

	if (r < 0)
		return r;
	if (!n)
		return -ENOENT;
	if (n->is_dir != is_dir)
		return is_dir ? -ENOTDIR : -EISDIR;
	if (n->n_children)
		return -ENOTEMPTY;
	detach(n);
	*ret = n;
	return 0;
}

int draft_unlink(struct draft_node *dir, struct span name)
{
	struct draft_node *n = NULL;
	int r = take_away(dir, name, false, &n);

	release_tree(n);
	return r;
}

int draft_rmdir(struct draft_node *dir, struct span name)
{
	struct draft_node *n = NULL;
	int r = take_away(dir, name, true, &n);

	draft_node_unref(n);
	return r;
}

/* Check whether n in `from`, or NULL, may become a name in `to`, in place of old or NULL. */
static int check_rename(const struct draft_node *from, const struct draft_node *n,
			struct draft_node *to, struct span to_name, const struct draft_node *old,
			bool no_replace)
{
	int r = check_open(from);

	if (r < 0)
		return r;
	r = check_open(to);
	if (r < 0)
		return r;
	if (!n)
		return -ENOENT;
	for (const struct draft_node *above = to; above; above = above->parent)
		if (above == n)
			return -EINVAL;
	if (old && old != n) {
		if (no_replace)
			return -EEXIST;
		if (old->is_dir != n->is_dir)
			return old->is_dir ? -EISDIR : -ENOTDIR;
		if (old->n_children)
			return -ENOTEMPTY;
	}
	return draft_check_name(n, to, to_name, n->is_dir, old);
}

int draft_rename(struct draft_node *from, struct span name, struct draft_node *to,
		 struct span to_name, bool no_replace)
{
	struct draft_node *n, *old, *replaced = NULL;
	auto_free struct draft_name *new_name = name_new(to_name);
	int r;

	if (from->draft != to->draft)
		return -EXDEV;
	if (!new_name)
		return -ENOMEM;
	pthread_mutex_lock(&from->draft->lock);
	n = child_of(from, name);
	old = child_of(to, to_name);
	r = check_rename(from, n, to, to_name, old, no_replace);
	r = r < 0 ? r : draft_node_reserve(to);
	if (r >= 0 && old != n) {
		if (old)
			detach(old);
		replaced = old;
		detach(n);
		set_name(n, take(new_name));
		attach(to, n);
	}
	pthread_mutex_unlock(&from->draft->lock);
	release_tree(replaced);
	return r;
}
