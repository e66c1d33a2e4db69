/* SPDX-License-Identifier: Apache-2.0 */
/*
 * subtree.c - the list of PyTrees below a name, and the names of their leaves.
 */
#include "handlers/subtree/subtree.h"

#include "core/base/err.h"
#include "core/base/path.h"
#include "core/step/item_others.h"

static void part_release(struct subtree_part *p)
{
	item_unref(p->item);
	free(p->path);
	free(p->source);
	free(p->note);
}

static void other_release(struct subtree_other *o)
{
	free(o->path);
	free(o->source);
}

void subtree_release(struct subtree *st)
{
	for (size_t i = 0; i < st->n; i++)
		part_release(&st->part[i]);
	for (size_t i = 0; i < st->n_others; i++)
		other_release(&st->other[i]);
	free(st->part);
	free(st->other);
	free(st->custom);
	*st = (struct subtree){ 0 };
}

/* Append a part; its strings are copied. */
static int subtree_add_part(struct subtree *st, enum part_kind kind, const char *path,
			    const char *source, struct subtree_part **ret)
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

int subtree_add_tree(struct subtree *st, const char *path, struct item *item,
		     const struct tree_node *tree)
{
	struct subtree_part *p;
	int r = subtree_add_part(st, PART_TREE, path, item->path, &p);

	if (r < 0)
		return r;
	p->id = item->id;
	p->item = item_ref(item);
	p->tree = tree;
	return 0;
}

int subtree_add_broken(struct subtree *st, const char *path, const char *source, int code)
{
	struct subtree_part *p;
	struct err_note note;
	int r;

	err_save(code, &note);
	r = subtree_add_part(st, PART_BROKEN, path, source, &p);
	if (r < 0)
		return r;
	p->note = malloc(sizeof(*p->note));
	if (!p->note)
		return fail(-ENOMEM, "cannot list items");
	*p->note = note;
	return 0;
}

int subtree_add_files(struct subtree *st, const char *path, const char *source,
		      const struct file_id *id)
{
	struct subtree_part *p;
	int r = subtree_add_part(st, PART_FILES, path, source, &p);

	if (r < 0)
		return r;
	if (id)
		p->id = *id;
	return r;
}

int subtree_add_other(struct subtree *st, const char *path, const char *source, unsigned char type)
{
	struct subtree_other *more = reallocarray(st->other, st->n_others + 1, sizeof(*more)), *o;

	if (!more)
		return fail(-ENOMEM, "cannot list '%s'", source);
	st->other = more;
	o = &more[st->n_others];
	*o = (struct subtree_other){ strdup(path), strdup(source), type };
	if (!o->path || !o->source) {
		other_release(o);
		return fail(-ENOMEM, "cannot list '%s'", source);
	}
	st->n_others++;
	return 0;
}

struct each_of_item {
	const struct subtree_part *part;
	subtree_other_fn *each;
	void *arg;
};

static int each_of_item(void *arg, const char *name, unsigned char type)
{
	const struct each_of_item *e = arg;
	auto_free char *path = NULL, *source = NULL;
	int r = path_join(*e->part->path ? e->part->path : ".", span_str(name), &path);

	if (r < 0)
		return r;
	r = path_join(e->part->source, span_str(name), &source);
	return r < 0 ? r : e->each(e->arg, e->part, &(struct subtree_other){ path, source, type });
}

int subtree_each_other(const struct subtree *st, subtree_other_fn *each, void *arg)
{
	int r = 0;

	for (size_t i = 0; i < st->n && r >= 0; i++) {
		const struct subtree_part *p = &st->part[i];
		struct each_of_item e = { p, each, arg };

		/* A tree that is not the whole item has no files of its own. */
		if (p->kind == PART_TREE && !p->tree->parent)
			r = item_each_other(p->item, each_of_item, &e);
	}
	for (size_t i = 0; i < st->n_others && r >= 0; i++)
		r = each(arg, NULL, &st->other[i]);
	return MIN(r, 0);
}

int subtree_of_item(struct item *item, const char *path, struct subtree *ret)
{
	auto_subtree st = { 0 };
	int r = subtree_add_tree(&st, path, item, item->tree->root);

	if (r < 0)
		return r;
	*ret = st;
	st = (struct subtree){ 0 };
	return 0;
}

uint32_t subtree_end(const struct tree_node *t)
{
	/* Ids are depth first, so the last one is that of the last child's last child and so on. */
	while (t->kind != TREE_LEAF && t->n_children)
		t = t->children[t->n_children - 1];
	return t->id + 1;
}

bool subtree_next(const struct subtree *st, struct subtree_place *at)
{
	const struct subtree_part *part = at->part ? at->part : st->part;

	for (; part < st->part + st->n; part++) {
		uint32_t next = part == at->part        ? at->node->id + 1 :
				part->kind == PART_TREE ? part->tree->id :
							  0;

		if (part->kind != PART_TREE || next >= subtree_end(part->tree))
			continue;
		*at = (struct subtree_place){ part, part->item->tree->nodes[next] };
		return true;
	}
	return false;
}

uint32_t subtree_leaves(const struct tree *tree, const struct tree_node *top)
{
	uint32_t end = subtree_end(top), n = 0;

	for (uint32_t i = top->id; i < end; i++)
		n += tree->nodes[i]->kind == TREE_LEAF;
	return n;
}

bool subtree_is_leaf(const struct tree_node *t)
{
	return t->kind == TREE_LEAF && t->value != TREE_VALUE_NONE &&
	       t->value != TREE_VALUE_PLACEHOLDER;
}

/*
 * Set ret to the nodes on the path from part->tree, exclusive, to the leaf; to the leaf alone when
 * it is the tree.
 */
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

	buf_add_str(ret, part->path);
	for (unsigned i = 0; i < n; i++) {
		if (i || *part->path)
			buf_add_byte(ret, '/');
		buf_add_span(ret, steps[i]->name);
	}
	return buf_failed(ret);
}

struct span subtree_item_name(const struct item *item)
{
	/* When the source is the item, its name is the last one of the source's path. */
	struct span path =
		span_str(strcmp(item->path, ".") ? item->path : item->ckpt->source->path);
	const uint8_t *slash;

	while (path.n > 1 && path.p[path.n - 1] == '/')
		path.n--;
	slash = path.n ? memrchr(path.p, '/', path.n) : NULL;
	if (slash)
		path = span_from(path, (size_t)(slash - path.p) + 1);
	return span_eq(path, span_str(".")) || span_eq(path, span_str("..")) ? span_of(NULL, 0) :
									       path;
}

int subtree_rule_path(const struct item *item, const struct tree_node *leaf, struct buf *ret,
		      unsigned *ret_skip)
{
	struct span name = subtree_item_name(item);
	int r = buf_add_span(ret, name);

	*ret_skip = name.n > 0;
	if (name.n && r >= 0)
		r = buf_add_byte(ret, '/');
	return r < 0 ? r : tree_path(leaf, ret);
}

int subtree_key(const struct subtree_part *part, const struct tree_node *leaf,
		const char *separator, struct buf *ret)
{
	const struct tree_node *steps[LIMIT_TREE_DEPTH + 1];
	unsigned n = steps_to(part, leaf, steps);
	bool bare = n == 1 && steps[0]->key.n == 0 && !steps[0]->parent;

	for (const char *at = part->path; *at; at++) {
		if (*at == '/')
			buf_add_str(ret, separator);
		else
			buf_add_byte(ret, (uint8_t)*at);
	}
	/* A tree that is a single leaf has an empty key, so the item's name is the whole name. */
	for (unsigned i = 0; i < n && !bare; i++) {
		if (i || *part->path)
			buf_add_str(ret, separator);
		buf_add_span(ret, steps[i]->key);
	}
	return buf_failed(ret);
}
