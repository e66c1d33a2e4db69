/* SPDX-License-Identifier: Apache-2.0 */
/*
 * draft_node.c - the tree of names of a draft.
 *
 * Only the form of a name is checked when it is made. Its meaning (the kind of leaf, the key) is
 * determined at the commit, so programs may use temporary names until then.
 */
#include "handlers/draft/draft.h"

#include <time.h>

#include "core/base/array.h"
#include "core/base/digest.h"
#include "core/base/err.h"
#include "core/tree/name.h"
#include "handlers/draft/draft_array.h"
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

int draft_node_new(struct draft *d, struct draft_node *parent, struct span name, bool is_dir,
		   struct draft_node **ret)
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
	n->parent = parent;
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
static void draft_node_node_free(struct draft_node *n)
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
	draft_copied_free(n->copied);
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
		draft_node_node_free(n);
}

struct draft_node *draft_node_ref(struct draft_node *n)
{
	pthread_mutex_lock(&n->draft->lock);
	n->refs++;
	pthread_mutex_unlock(&n->draft->lock);
	return n;
}

static bool draft_node_drop(struct draft_node *n)
{
	return --n->refs == 0;
}

void draft_node_unref(struct draft_node *n)
{
	struct draft *d;
	bool last;

	if (!n)
		return;
	d = n->draft;
	pthread_mutex_lock(&d->lock);
	last = draft_node_drop(n);
	pthread_mutex_unlock(&d->lock);
	/* Without the lock, since the release of contents waits for jobs. */
	if (last)
		draft_node_node_free(n);
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
	pthread_mutex_lock(&n->draft->lock);
	touch(n);
	pthread_mutex_unlock(&n->draft->lock);
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
	if (r >= 0 && ret->n)
		r = buf_add_byte(ret, '/');
	return r < 0 ? r : buf_add_str(ret, n->name);
}

/* ---- valid names ---- */

/* Refuse names that Orbax reserves or hides, so they cannot name an item. */
int draft_check_item_name(struct span stem)
{
	static const char *const reserved[] = {
		"AUTO",      "_CHECKPOINT_DELETION", "_CHECKPOINT_METADATA",
		"_METADATA", "commit_success.txt",   "orbax.checkpoint"
	};

	for (size_t i = 0; i < ARRAY_LEN(reserved); i++)
		if (span_eq(stem, span_str(reserved[i])))
			return fail(-EINVAL, "'%.*s' is a name that Orbax keeps to itself",
				    SPAN_ARG(stem));
	if (span_eq(stem, span_str(".")) || span_eq(stem, span_str("..")))
		return fail(-EINVAL, "'%.*s' is not a name of an item", SPAN_ARG(stem));
	if (memmem(stem.p, stem.n, ".orbax-checkpoint-tmp", 21))
		return fail(-EINVAL,
			    "'%.*s' is not a name of an item: Orbax takes it for a temporary one",
			    SPAN_ARG(stem));
	return 0;
}

static struct span draft_node_stem_of(struct span name)
{
	enum name_ext ext = name_ext_of(name);

	name.n -= strlen(name_ext_text(ext));
	return name;
}

/*
 * The generated files that a directory can have, as bits of enum name_ours: `_METADATA` at the top
 * of an item.
 */
static unsigned draft_node_names_of_ours(struct draft_node *dir)
{
	return draft_item_of(dir) == dir ? NAME_OURS_METADATA : 0;
}

/* Whether a file is known to be stored as it is: it is marked, or a copy of such a file. */
static bool is_as_it_is(const struct draft_node *n)
{
	return !n->is_dir && (n->from_other || n->from_opaque ||
			      span_eq(draft_xattr_word(n, "kind"), span_str("opaque")));
}

/*
 * Check the name of a file or directory: its escapes must be valid, and only a part may have the
 * form of a view.
 */
static int draft_node_check_name(struct draft_node *dir, struct span name, bool is_dir,
				 bool any_name)
{
	bool of_draft = dir == dir->draft->root && !dir->draft->is_item;
	struct draft_part part;
	auto_buf key = { 0 };
	int r;

	if (name.n > LIMIT_NAME_BYTES)
		return fail(-ENAMETOOLONG, "a name of %zu bytes", name.n);
	if (draft_is_opaque(dir))
		return 0;
	if (!utf8_valid(name))
		return fail(-EINVAL, "'%.*s' is not UTF-8, and keys are text", SPAN_ARG(name));
	if (any_name)
		return 0;
	/* The name of an item is not a key: it is used literally, in a committed step as well. */
	if (of_draft && is_dir)
		return draft_check_item_name(name);
	if (is_dir)
		return name_is_hashed(name) ? 0 :
					      name_unescape(name, NAME_CONTAINER,
							    draft_node_names_of_ours(dir), &key);
	/*
	 * rsync writes to ".NAME.XXXXXX" and renames. Escapes of NAME may be shifted or truncated
	 * there, so only the final name is checked as a key.
	 */
	if (name.n > 1 && name.p[0] == '.' && name_ext_of(name) == NAME_EXT_NONE)
		return 0;
	/* The leaf of an item that is one bare leaf. */
	if (span_starts(name, span_str("%.")) && name_ext_of(name) != NAME_EXT_NONE &&
	    draft_node_stem_of(name).n == 1)
		return 0;
	r = draft_part_of(name, &part);
	if (r != 0)
		return r < 0 ? r : 0;
	/* Escapes of other temporary names must be valid as well, but the key does not matter. */
	if (name_is_hashed(draft_node_stem_of(name)))
		return 0;
	r = name_unescape(draft_node_stem_of(name), NAME_LEAF, 0, &key);
	if (r == -EINVAL && name_ext_of(name) == NAME_EXT_NONE)
		r = name_unescape(name, NAME_CONTAINER, 0, &key);
	return r;
}

/*
 * The name of the item that a child of the draft is, or will be; empty for other names, such as a
 * temporary name of a copy.
 */
static struct span item_name_of(struct span name, bool is_dir)
{
	enum name_ext ext = name_ext_of(name);

	if (is_dir)
		return name;
	if (span_ends(name, span_str(".pbtxt")))
		return span_of(name.p, name.n - strlen(".pbtxt"));
	return ext == NAME_EXT_JSON || ext == NAME_EXT_SAFETENSORS ? draft_node_stem_of(name) :
								     span_of(NULL, 0);
}

/*
 * Refuse "metrics.json" beside an item "metrics", and the reverse: both are the same item. `self`
 * is the node that is being renamed, which does not count.
 */
static int check_item_twice(const struct draft_node *dir, struct span name, bool is_dir,
			    const struct draft_node *self)
{
	struct span item = item_name_of(name, is_dir);

	if (dir != dir->draft->root || dir->draft->is_item || !item.n)
		return 0;
	for (size_t i = 0; i < dir->n_children; i++) {
		const struct draft_node *c = dir->child[i];

		/* Whether a new file is an item is known after cp(1) has set its attributes: the
		 * commit checks it. */
		if (c != self && !is_as_it_is(c) && (self || is_dir || !c->is_dir) &&
		    span_eq(item_name_of(span_str(c->name), c->is_dir), item))
			return fail(-EEXIST, "'%.*s': there is an item '%.*s' already, '%s'",
				    SPAN_ARG(name), SPAN_ARG(item), c->name);
	}
	return 0;
}

/* The number of nested directories, including this one. */
static unsigned height(const struct draft_node *n)
{
	unsigned most = 0;

	for (size_t i = 0; i < n->n_children; i++)
		most = MAX(most, height(n->child[i]));
	return most + n->is_dir;
}

/*
 * Functions recurse as deep as the directories of a draft, and no deeper tree could be committed.
 */
static int check_depth(const struct draft_node *dir, struct span name, unsigned n)
{
	for (; dir->parent; dir = dir->parent)
		n++;
	/* The item counts as a level besides the keys of its tree. */
	return n <= 1 + LIMIT_TREE_DEPTH ?
		       0 :
		       fail(-EFBIG, "'%.*s': more than %d directories inside each other",
			    SPAN_ARG(name), LIMIT_TREE_DEPTH);
}

/*
 * Check the name of a new file or directory (self NULL), or of one that is renamed, in place of old
 * or NULL. The name of a file that is stored as it is need not be one of a leaf or item, which the
 * commit checks, since nobody says of a new file that it is one.
 */
static int draft_node_check_new(const struct draft_node *self, struct draft_node *dir,
				struct span name, bool is_dir, const struct draft_node *old)
{
	bool any_name = self ? is_as_it_is(self) :
			       !is_dir && atomic_load(&dir->draft->env->others_read);
	int r = draft_node_check_name(dir, name, is_dir, any_name);

	if (r >= 0 && !old && !any_name)
		r = check_item_twice(dir, name, is_dir, self);
	if (r < 0 || any_name)
		return r;
	return is_dir ? check_depth(dir, name, self ? height(self) : 1) :
			draft_check_stored_name(dir, name);
}

/* ---- changes ---- */

int draft_lookup(struct draft_node *dir, struct span name, struct draft_node **ret)
{
	struct draft_node *n;

	pthread_mutex_lock(&dir->draft->lock);
	n = dir->is_dir ? child_of(dir, name) : NULL;
	if (n)
		n->refs++;
	pthread_mutex_unlock(&dir->draft->lock);
	if (!n)
		return -ENOENT;
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
	pthread_mutex_lock(&dir->draft->lock);
	ret->node = malloc((dir->n_children + 1) * sizeof(*ret->node));
	ret->n = ret->node ? dir->n_children : 0;
	for (size_t i = 0; i < ret->n; i++) {
		ret->node[i] = dir->child[i];
		ret->node[i]->refs++;
	}
	pthread_mutex_unlock(&dir->draft->lock);
	return ret->node ? 0 : fail(-ENOMEM, "cannot list '%s'", dir->name);
}

static int make_locked(struct draft_node *dir, struct span name, bool is_dir,
		       struct draft_node **ret)
{
	int r = check_open(dir);

	if (r < 0)
		return r;
	if (child_of(dir, name))
		return -EEXIST;
	r = draft_node_check_new(NULL, dir, name, is_dir, NULL);
	if (r < 0)
		return r;
	r = draft_node_reserve(dir);
	if (r < 0)
		return r;
	r = draft_node_new(dir->draft, NULL, name, is_dir, ret);
	if (r < 0)
		return r;
	attach(dir, *ret);
	(*ret)->refs++;
	return 0;
}

static int draft_node_make(struct draft_node *dir, struct span name, bool is_dir,
			   struct draft_node **ret)
{
	int r;

	pthread_mutex_lock(&dir->draft->lock);
	r = make_locked(dir, name, is_dir, ret);
	pthread_mutex_unlock(&dir->draft->lock);
	return r;
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

static int take_away(struct draft_node *dir, struct span name, bool is_dir)
{
	struct draft_node *n;
	int r;

	pthread_mutex_lock(&dir->draft->lock);
	n = child_of(dir, name);
	r = check_open(dir);
	if (r >= 0 && !n)
		r = -ENOENT;
	if (r >= 0 && n->is_dir != is_dir)
		r = is_dir ? -ENOTDIR : -EISDIR;
	if (r >= 0 && n->n_children)
		r = -ENOTEMPTY;
	if (r >= 0)
		detach(n);
	pthread_mutex_unlock(&dir->draft->lock);
	if (r >= 0)
		release_tree(n);
	return r;
}

int draft_unlink(struct draft_node *dir, struct span name)
{
	return take_away(dir, name, false);
}

int draft_rmdir(struct draft_node *dir, struct span name)
{
	return take_away(dir, name, true);
}

static bool is_above(const struct draft_node *n, const struct draft_node *below)
{
	while (below && below != n)
		below = below->parent;
	return below == n;
}

/* Check whether the node at the new place may be replaced. */
static int check_replaced(const struct draft_node *n, const struct draft_node *old, bool no_replace)
{
	if (!old || old == n)
		return 0;
	if (no_replace)
		return -EEXIST;
	if (old->is_dir != n->is_dir)
		return old->is_dir ? -EISDIR : -ENOTDIR;
	return old->n_children ? -ENOTEMPTY : 0;
}

int draft_rename(struct draft_node *from, struct span name, struct draft_node *to,
		 struct span to_name, bool no_replace)
{
	struct draft_node *n, *old, *replaced = NULL;
	auto_free struct draft_name *new_name = name_new(to_name);
	int r = new_name ? 0 : -ENOMEM;

	if (from->draft != to->draft)
		return -EXDEV;
	pthread_mutex_lock(&from->draft->lock);
	n = child_of(from, name);
	old = child_of(to, to_name);
	if (r >= 0)
		r = check_open(from);
	if (r >= 0)
		r = check_open(to);
	if (r >= 0 && !n)
		r = -ENOENT;
	if (r >= 0 && is_above(n, to))
		r = -EINVAL;
	if (r >= 0)
		r = check_replaced(n, old, no_replace);
	if (r >= 0)
		r = draft_node_check_new(n, to, to_name, n->is_dir, old);
	if (r >= 0)
		r = draft_node_reserve(to);
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
