/* SPDX-License-Identifier: Apache-2.0 */
/*
 * copy_hints.c - hints for the plan from files that a program copied, besides names and contents.
 *
 * Programs that copy an item also write its `_METADATA`, and programs that copy a step write its
 * `_CHECKPOINT_METADATA`. The draft always generates its own files. But if a program does not copy
 * xattrs, the copied files are the only record of which directory is a list, of the key of a
 * shortened name, and of custom metadata. A leaf that is copied within the mount keeps its dtype if
 * its bytes do not name one. Names, contents and xattrs always take precedence;
 * handlers/plan/README.md has the rule for copied directories.
 *
 * Invariants: a text that is invalid, or that describes another tree, has no effect. Other steps
 * are never consulted.
 */
#include "core/base/err.h"
#include "core/base/lock.h"
#include "core/base/log.h"
#include "core/step/step_meta.h"
#include "core/tree/digests.h"
#include "handlers/draft/commit_driver.h"
#include "handlers/leaf/leaf.h"
#include "handlers/plan/copy_hints.h"

#define TEXTS_MAX (16 * MiB) /* largest sum of the shardings of a draft; others are ignored */

void copy_hint_text(struct draft_node *dir, uint64_t off, const void *p, size_t n)
{
	auto_unlock pthread_mutex_t *held = lock_hold(&dir->draft->lock);
	struct copied *c = draft_copied_new(dir);
	int r = c ? 0 : -ENOMEM;

	if (off == 0)
		dir->hint_lost = false;
	if (c && off == 0) {
		buf_release(&c->document);
		c->document.metered = true;
	}
	/* Programs that copy write from front to back; anything else is not a hint. */
	if (c && off != c->document.n)
		buf_release(&c->document);
	else if (c)
		r = off + n > LIMIT_JSON_BYTES ? -EFBIG : buf_add(&c->document, p, n);
	if (r < 0)
		dir->hint_lost = true;
	if (c && r < 0)
		buf_release(&c->document);
	err_clear();
}

void copy_hint_file(struct draft_node *dir, struct draft_file *f)
{
	uint64_t size = draft_file_size(f);
	auto_buf text = { .metered = true };
	int r = size > LIMIT_JSON_BYTES ? -EFBIG : draft_file_read_whole(f, size, &text);

	if (r < 0) {
		pthread_mutex_lock(&dir->draft->lock);
		dir->hint_lost = true;
		pthread_mutex_unlock(&dir->draft->lock);
	} else {
		copy_hint_text(dir, 0, text.p, size);
	}
	copy_hint_written(dir);
	err_clear();
}

/* A copied text that did not fit in memory may say what nothing else does. */
static int check_text(const struct draft_node *dir, const char *name)
{
	return dir->hint_lost ?
		       fail(-ENOMEM,
			    "the '%s' that was copied does not fit in memory, and what it says "
			    "would be lost: a larger cache= has room for it",
			    name) :
		       0;
}

static void keep_format(struct draft_node *dir, bool ocdbt, bool zarr3)
{
	struct copied *c = dir && !dir->item.store ? draft_copied_new(dir) : NULL;

	if (c && !c->format.known)
		c->format = (struct copied_format){ true, ocdbt, zarr3 };
}

void copy_hint_format(struct draft_node *n, bool ocdbt, bool zarr3)
{
	struct draft *d = n->draft;
	auto_unlock pthread_mutex_t *held = lock_hold(&d->lock);

	keep_format(draft_item_of(n), ocdbt, zarr3);
	keep_format(d->root, ocdbt, zarr3);
}

void copy_hint_format_of_source(struct draft_node *n, bool ocdbt, bool zarr3)
{
	/* Options say the format to all ranks of a job. */
	if (!n->draft->env->driver->plans_part)
		copy_hint_format(n, ocdbt, zarr3);
}

static void take_format(struct draft_node *item, const struct tree *t)
{
	if (t->has_use_ocdbt)
		copy_hint_format_of_source(item, t->use_ocdbt, t->use_zarr3);
}

/* Leaves of a tree have few different shardings, each of which may be long. Called with the lock
 * held. */
static struct span share_text(struct draft *d, struct span s)
{
	struct draft_text *t = d->texts;

	while (t && !span_eq(span_of(t->text, t->n), s))
		t = t->next;
	if (!t && s.n && d->text_bytes + s.n <= TEXTS_MAX) {
		t = malloc(sizeof(*t) + s.n);
		if (!t)
			return span_of(NULL, 0);
		*t = (struct draft_text){ .next = d->texts, .n = s.n };
		memcpy(t->text, s.p, s.n);
		d->texts = t;
		d->text_bytes += s.n;
	}
	return t ? span_of(t->text, t->n) : span_of(NULL, 0);
}

void copy_hint_leaf(struct draft_node *n, const struct copied_leaf *from)
{
	auto_unlock pthread_mutex_t *held = lock_hold(&n->draft->lock);
	struct copied *c = draft_copied_new(n);

	if (!c)
		return;
	c->leaf = *from;
	c->leaf.sharding = share_text(n->draft, from->sharding);
	c->leaf.write_shape = share_text(n->draft, from->write_shape);
	c->leaf.prng_impl = share_text(n->draft, from->prng_impl);
}

void copy_hint_rewritten(struct draft_node *n)
{
	auto_unlock pthread_mutex_t *held = lock_hold(&n->draft->lock);

	if (n->copied) {
		n->copied->leaf.dtype = DTYPE_UNKNOWN;
		n->copied->leaf.prng_impl = span_of(NULL, 0);
		n->copied->leaf.has_sha256 = false;
	}
}

void copy_hint_stored(struct draft_node *n, bool beside_tree)
{
	auto_unlock pthread_mutex_t *held = lock_hold(&n->draft->lock);

	n->from_opaque = !beside_tree;
	n->from_other = beside_tree;
}

void copy_hint_sha256(struct draft_node *n, const uint8_t *sha256)
{
	auto_unlock pthread_mutex_t *held = lock_hold(&n->draft->lock);
	struct copied *c = sha256 ? draft_copied_new(n) : n->copied;

	if (c)
		c->leaf.has_sha256 = sha256;
	if (c && sha256)
		memcpy(c->leaf.sha256, sha256, sizeof(c->leaf.sha256));
}

static void keep_source(struct draft_node *dir, const char *path)
{
	struct copied *c = dir && path ? draft_copied_new(dir) : NULL;

	if (c && !c->from)
		c->from = strdup(path);
}

void copy_hint_source(struct draft_node *n, const char *item, const char *step)
{
	struct draft *d = n->draft;
	auto_unlock pthread_mutex_t *held = lock_hold(&d->lock);

	keep_source(d->root, step ? step : item);
	if (n->parent && n->parent != d->root)
		keep_source(draft_item_of(n), item);
}

int copy_hint_tree(struct draft_node *n, const char *path)
{
	struct draft *d = n->draft;
	auto_buf own = { 0 };
	auto_unlock pthread_mutex_t *held = lock_hold(&d->lock);
	int r = draft_node_path(n, &own);

	if (path)
		d->copied_tree |= r >= 0 && span_eq(buf_span(&own), span_str(path));
	else
		d->copied_item |= r >= 0;
	return r;
}

/* An invalid text has no effect; only a lack of memory is an error. */
static int ignore_invalid(int r, const char *name)
{
	if (r >= 0 || r == -ENOMEM)
		return r;
	trace(TRACE_LEAF, "a text copied to '%s' has no effect: %s", name, err_text(r));
	err_clear();
	return 0;
}

/* Parse the copied `_METADATA` of an item, or else `text`; *ret is NULL if there is none. */
static int hint_tree(struct draft_node *item, struct buf *text, struct tree **ret)
{
	int r = 0;

	pthread_mutex_lock(&item->draft->lock);
	if (!item->draft->is_tree && draft_copied(item)->document.n) {
		buf_clear(text);
		r = buf_add_span(text, buf_span(&draft_copied(item)->document));
	}
	pthread_mutex_unlock(&item->draft->lock);
	r = r < 0 || !text->n ? r : tree_parse_metadata(buf_span(text), "a copied _METADATA", ret);
	return ignore_invalid(r, item->name);
}

static int read_copied_metadata(struct draft_file *f, struct buf *ret)
{
	uint64_t size = draft_file_size(f);

	if (size > LIMIT_JSON_BYTES)
		return fail(-EFBIG, "'_METADATA' has %llu bytes, the limit is %llu",
			    (unsigned long long)size, (unsigned long long)LIMIT_JSON_BYTES);
	return size ? draft_file_read_whole(f, size, ret) : 0;
}

int plan_hints_read(struct plan *p)
{
	auto_buf text = { .metered = true };
	struct draft_node *document = NULL;
	int r = p->strict ? check_text(p->item, "_METADATA") : 0;

	if (r < 0)
		return r;
	/*
	 * The copied `_METADATA` of an item inside another, or of a tree that is a step, is a file
	 * like any other, since only the items of a step have a generated one.
	 */
	if ((p->item->draft->is_tree || plan_is_nested(p)) &&
	    draft_lookup(p->item, span_str("_METADATA"), &document) >= 0) {
		r = document->is_dir ? 0 : read_copied_metadata(document->file, &text);
		draft_node_unref(document);
	}
	if (r < 0)
		return r;
	r = hint_tree(p->item, &text, &p->hint);
	if (r < 0)
		return r;
	if (p->hint)
		take_format(p->item, p->hint);
	return r;
}

void copy_hint_written(struct draft_node *item)
{
	auto_of(tree) struct tree *t = NULL;
	auto_buf text = { .metered = true };

	/* The text of a step has no format. */
	if ((item != item->draft->root || item->draft->is_item) &&
	    hint_tree(item, &text, &t) >= 0 && t)
		take_format(item, t);
}

/* Parse the copied `_CHECKPOINT_METADATA`; *ret is NULL if there is none. */
static int hints_hint_step(struct draft_node *root, bool is_strict, struct step_meta **ret)
{
	auto_buf text = { .metered = true };
	const char *name = root->draft->is_item ? "_METADATA" : "_CHECKPOINT_METADATA";
	int r = is_strict ? check_text(root, name) : 0;

	*ret = NULL;
	if (r < 0)
		return r;
	pthread_mutex_lock(&root->draft->lock);
	r = buf_add_span(&text, buf_span(&draft_copied(root)->document));
	pthread_mutex_unlock(&root->draft->lock);
	if (r >= 0 && text.n)
		r = step_meta_parse(buf_span(&text), "a copied _CHECKPOINT_METADATA", ret);
	return ignore_invalid(r, root->draft->name);
}

int plan_is_step_tree(struct draft_node *root)
{
	auto_of(step_meta) struct step_meta *m = NULL;
	struct draft_node *document = NULL;
	bool is_tree, is_item;
	int r = hints_hint_step(root, true, &m);

	if (r < 0 || (m && m->kind == STEP_ITEMS_MAP))
		return r;
	if (m && m->kind == STEP_ITEMS_ONE)
		return 1;
	pthread_mutex_lock(&root->draft->lock);
	is_tree = root->draft->copied_tree;
	is_item = root->draft->copied_item;
	pthread_mutex_unlock(&root->draft->lock);
	if (is_tree || is_item)
		return is_tree;
	if (draft_lookup(root, span_str("_METADATA"), &document) < 0)
		return 0;
	draft_node_unref(document);
	return 1;
}

int copy_hint_custom(struct draft_node *root, struct buf *ret)
{
	auto_of(step_meta) struct step_meta *m = NULL;
	int r = hints_hint_step(root, true, &m);

	return r < 0 || !m || !m->custom || !strcmp(m->custom, "{}") ? r :
								       buf_add_str(ret, m->custom);
}

int plan_hint_handler(struct plan *p)
{
	const struct draft *d = p->item->draft;
	const struct tree_node *top = p->tree ? p->tree->root : NULL;
	auto_of(step_meta) struct step_meta *m = NULL;
	struct span hint = { 0 };
	int r = hints_hint_step(d->root, p->strict, &m);

	if (r < 0 || !m)
		return r;
	if (d->is_item)
		hint = m->handler;
	else
		step_meta_handler(m, span_str(p->name), &hint);
	if (hint.p && memchr(hint.p, '\0', hint.n))
		return fail(-EINVAL,
			    "the copied _CHECKPOINT_METADATA has a NUL in the handler of '%s'",
			    p->name ? p->name : d->name);
	if (hint.p && !(p->copied_handler = span_dup_str(hint)))
		return fail(-ENOMEM, "cannot describe item '%s'", p->name);
	p->is_array = !d->is_item && hint.p && span_eq(hint, span_str(ARRAY_HANDLER)) &&
		      !p->partial && top && p->n_leaves == 1 && top->n_children == 1 &&
		      top->children[0]->kind == TREE_LEAF;
	return 0;
}

const struct tree_node *plan_same_path(const struct tree *t, const struct tree_node *n)
{
	const struct tree_node *parent;

	if (!n->parent)
		return t->root;
	parent = plan_same_path(t, n->parent);
	return parent && parent->kind != TREE_LEAF ? tree_child_by_key(parent, n->key) : NULL;
}

const struct tree_node *plan_hint_node(const struct plan *p, const struct tree_node *n)
{
	return p->hint ? plan_same_path(p->hint, n) : NULL;
}

enum tree_kind plan_hint_kind(const struct plan *p, const struct tree_node *n)
{
	const struct tree_node *hint = plan_hint_node(p, n);

	return hint && tree_is_sequence(hint) ? hint->kind : TREE_DICT;
}

int plan_name_hint(struct plan *p)
{
	int r = p->hint_is_named ? 0 : tree_name(p->hint, NAME_OURS_METADATA, leaf_ext, NULL);

	if (r >= 0)
		p->hint_is_named = true;
	return r;
}

int plan_hint_key(struct plan *p, const struct tree_node *parent, struct span stem, struct buf *ret)
{
	const struct tree_node *dir, *n;
	int r;

	if (!p->hint || !parent)
		return 0;
	r = plan_name_hint(p);
	if (r < 0)
		return r;
	dir = plan_hint_node(p, parent);
	n = dir && dir->kind != TREE_LEAF ? tree_child_by_stem(dir, stem) : NULL;
	if (!n)
		return 0;
	r = buf_add_span(ret, n->key);
	return r < 0 ? r : 1;
}

/* ---- items inside an item ---- */

#define KEY_METADATA "_metadata"

/* The child that is the tree, if the directory has exactly that child and its metadata item. */
static struct draft_node *hints_key_of(struct draft_node *const *child, size_t n)
{
	struct draft_node *key = NULL, *other = NULL;
	size_t len;

	for (size_t i = 0; i < n; i++) {
		if (plan_is_metadata(child[i]))
			continue;
		if (!child[i]->is_dir || (key && other))
			return NULL;
		/* Names are sorted, so the longer one comes second. */
		*(key ? &other : &key) = child[i];
	}
	if (!other || (strcmp(key->name, "jax_random_key") && strcmp(key->name, "np_random_key")))
		return NULL;
	len = strlen(key->name);
	return !strncmp(other->name, key->name, len) && !strcmp(other->name + len, KEY_METADATA) ?
		       key :
		       NULL;
}

int draft_nested(struct draft_node *item, struct draft_node *ret[2])
{
	auto_draft_list child = { 0 };
	struct draft_node *key;
	size_t n_retained = 0;
	int r;

	if (!item->is_dir || item->draft->is_item)
		return 0;
	r = draft_children(item, &child);
	if (r < 0)
		return r;
	key = hints_key_of(child.node, child.n);
	/* The other is a JSON item, not a part of a tree with such keys. */
	for (size_t i = 0; i < child.n && key && r >= 0; i++)
		if (child.node[i]->is_dir && child.node[i] != key)
			r = draft_kind(child.node[i]) == KIND_OPAQUE ?
				    1 :
				    plan_looks_opaque(child.node[i]);
	if (r <= 0)
		return r;
	for (size_t i = 0; i < child.n; i++)
		if (child.node[i]->is_dir)
			ret[n_retained++] = take(child.node[i]);
	return 1;
}

bool plan_is_nested(const struct plan *p)
{
	return p->name && strchr(p->name, '/');
}

struct draft_node *plan_owner(const struct plan *p)
{
	return plan_is_nested(p) && p->kind == PLAN_TREE ? draft_item_of(p->item) : p->item;
}
