/*
 * subtree.c - finding the PyTrees below a node, and naming what is in them.
 */
#include "handlers/subtree.h"

#include <dirent.h>

#include "core/base/err.h"
#include "handlers/node_tree.h"

#define MAX_NESTING 8			/* composite items inside composite items */

static void part_release(struct subtree_part *p)
{
	item_unref(p->item);
	free(p->path);
	free(p->source);
	free(p->note);
}

void subtree_release(struct subtree *st)
{
	for (size_t i = 0; i < st->n; i++)
		part_release(&st->part[i]);
	free(st->part);
	*st = (struct subtree){ 0 };
}

/* A part at the end, its strings copied. */
static int add_part(struct subtree *st, enum part_kind kind, const char *path, const char *source,
		    struct subtree_part **ret)
{
	struct subtree_part *more = reallocarray(st->part, st->n + 1, sizeof(*more)), *p;

	if (!more)
		return fail(-ENOMEM, "cannot list items");
	st->part = more;
	p = &more[st->n];
	*p = (struct subtree_part){ .kind = kind, .path = strdup(path), .source = strdup(source) };
	if (!p->path || !p->source) {
		part_release(p);
		return fail(-ENOMEM, "cannot list items");
	}
	st->n++;
	*ret = p;
	return 0;
}

static int add_tree(struct subtree *st, const char *path, struct item *item, const struct tree_node *tree)
{
	struct subtree_part *p;
	int r = add_part(st, PART_TREE, path, item->path, &p);

	if (r < 0)
		return r;
	p->id = item->id;
	p->item = item_ref(item);
	p->tree = tree;
	return 0;
}

/* An item that could not be opened, with the reason that it gave. */
static int add_broken(struct subtree *st, const char *path, const char *source, int code)
{
	struct subtree_part *p;
	struct err_note note;
	int r;

	err_save(code, &note);
	r = add_part(st, PART_BROKEN, path, source, &p);
	if (r < 0)
		return r;
	p->note = malloc(sizeof(*p->note));
	if (!p->note)
		return fail(-ENOMEM, "cannot list items");
	*p->note = note;
	return 0;
}

static int add_step(struct subtree *st, struct node *step, const char *path, unsigned depth);

/* One child of a step, by what kind of node it is. */
static int add_child(struct subtree *st, struct node *step, const char *name, const char *path, unsigned depth)
{
	auto_free char *below = NULL, *source = NULL;
	auto_node *n = NULL;
	struct subtree_part *p;
	struct stat attr;
	int r = ns_join(*path ? path : ".", span_str(name), &below);

	if (r >= 0)
		r = ns_join(node_step_path(step), span_str(name), &source);
	if (r < 0)
		return r;
	r = node_lookup(step, span_str(name), &n);
	if (r < 0)
		return r == -ENOMEM ? r : add_broken(st, below, source, r);
	if (n->ops == &node_dir_ops) {
		struct node_dir *d = container_of(n, struct node_dir, node);

		return add_tree(st, below, d->item, d->tree);
	}
	if (n->ops == &node_step_ops && depth < MAX_NESTING)
		return add_step(st, n, below, depth + 1);
	r = add_part(st, PART_FILES, below, source, &p);
	if (r >= 0 && io_stat(n->ns->ckpt->source, source, &attr) >= 0)
		p->id = (struct file_id){ attr.st_dev, attr.st_ino, attr.st_ctim };
	return r;
}

static int add_step(struct subtree *st, struct node *step, const char *path, unsigned depth)
{
	auto_listing l = { 0 };
	int r = node_list(step, &l);

	for (size_t i = 2; i < l.n && r >= 0; i++)
		if (l.entry[i].type == DT_DIR)
			r = add_child(st, step, listing_name(&l, i), path, depth);
	return r;
}

int subtree_of_item(struct item *item, const char *path, struct subtree *ret)
{
	auto_subtree st = { 0 };
	int r = add_tree(&st, path, item, item->tree->root);

	if (r < 0)
		return r;
	*ret = st;
	st = (struct subtree){ 0 };
	return 0;
}

int subtree_open(struct node *n, struct subtree *ret)
{
	auto_subtree st = { 0 };
	struct stat attr;
	int r = node_stat(n, &attr);

	if (r < 0)
		return r;
	st.mtime = attr.st_mtim;
	if (n->ops == &node_dir_ops) {
		struct node_dir *d = container_of(n, struct node_dir, node);

		r = add_tree(&st, "", d->item, d->tree);
	} else if (n->ops == &node_leaf_ops) {
		struct node_leaf *l = container_of(n, struct node_leaf, node);
		struct name_view name;

		/* A part of a leaf is none: nobody shall take the whole for it. */
		if (l->is_view && (name_view_parse(span_str(n->name), &name) < 0 || !name_view_is_plain(&name)))
			return fail(-EINVAL, "'%s' is a view: a leaf is wanted as it is listed", n->name);
		r = add_tree(&st, "", l->item, l->tree);
	} else if (n->ops == &node_step_ops) {
		r = add_step(&st, n, "", 0);
	} else {
		r = fail(-EINVAL, "'%s' is no step, item, directory or leaf of a tree",
			 *n->name ? n->name : n->ns->ckpt->opts.source);
	}
	if (r < 0)
		return r;
	*ret = st;
	st = (struct subtree){ 0 };
	return 0;
}

uint32_t subtree_end(const struct tree_node *t)
{
	/* Depth first: the last one below is the last child's last child's ... */
	while (t->kind != TREE_LEAF && t->n_children)
		t = t->children[t->n_children - 1];
	return t->id + 1;
}

bool subtree_is_leaf(const struct tree_node *t)
{
	return t->kind == TREE_LEAF && t->value != TREE_VALUE_NONE && t->value != TREE_VALUE_PLACEHOLDER;
}

/* The nodes from below part->tree down to the leaf; the leaf alone when it is the tree. */
static unsigned steps_to(const struct subtree_part *part, const struct tree_node *leaf,
			 const struct tree_node *ret[LIMIT_TREE_DEPTH + 1])
{
	unsigned n = 0, depth = 0;

	for (const struct tree_node *t = leaf; t != part->tree; t = t->parent)
		depth++;
	for (const struct tree_node *t = leaf; t != part->tree; t = t->parent)
		ret[depth - ++n] = t;
	if (depth == 0)
		ret[n++] = leaf;
	return n;
}

int subtree_path(const struct subtree_part *part, const struct tree_node *leaf, struct buf *ret)
{
	const struct tree_node *steps[LIMIT_TREE_DEPTH + 1];
	unsigned n = steps_to(part, leaf, steps);
	int r = buf_add_str(ret, part->path);

	for (unsigned i = 0; i < n && r >= 0; i++) {
		if (i || *part->path)
			r = buf_add_byte(ret, '/');
		if (r >= 0)
			r = buf_add_span(ret, steps[i]->name);
	}
	return r;
}

static int add_item_name(const char *path, const char *separator, struct buf *ret)
{
	int r = 0;

	for (; *path && r >= 0; path++)
		r = *path == '/' ? buf_add_str(ret, separator) : buf_add_byte(ret, (uint8_t)*path);
	return r;
}

int subtree_key(const struct subtree_part *part, const struct tree_node *leaf, const char *separator,
		struct buf *ret)
{
	const struct tree_node *steps[LIMIT_TREE_DEPTH + 1];
	unsigned n = steps_to(part, leaf, steps);
	bool bare = n == 1 && steps[0]->key.n == 0 && !steps[0]->parent;
	int r = add_item_name(part->path, separator, ret);

	/* A tree that is one bare leaf has no key: the item's name is all there is. */
	for (unsigned i = 0; i < n && r >= 0 && !bare; i++) {
		if (i || *part->path)
			r = buf_add_str(ret, separator);
		if (r >= 0)
			r = buf_add_span(ret, steps[i]->key);
	}
	return r;
}
