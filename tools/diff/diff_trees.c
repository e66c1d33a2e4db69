/* SPDX-License-Identifier: Apache-2.0 */
/*
 * diff_trees.c - pairs the leaves of two checkpoints, and finds those on one side only.
 */
#include <dirent.h>
#include <stdio.h>

#include "core/base/err.h"
#include "handlers/namespace/node_parts.h"
#include "handlers/namespace/node_tree.h"
#include "tools/diff/diff.h"

/* ---- output ---- */

void diff_say(struct diff *d, const char *path, const char *what, const char *more)
{
	progress_clear(&d->t.progress);
	if (d->json) {
		auto_buf out = { 0 };

		json_put_str(&out, span_str(path), JSON_PRETTY);
		printf("%s\n{\"path\": %s, \"what\": \"%s\"%s%s}", d->differences ? "," : "",
		       buf_str(&out), what, *more ? ", " : "", more);
	} else {
		print_name(stdout, *path ? path : ".");
		printf(": %s%s%s\n", what, *more ? ": " : "", more);
	}
	d->differences++;
}

/* Report a node on one side only; unlike subtree_path(), also a container. */
static void say_one_side(struct diff *d, const char *prefix, const struct subtree_part *part,
			 const struct tree_node *node, bool in_a)
{
	auto_buf path = { 0 };

	if (d->t.only && !select_leaf(d->t.only, prefix, part, node))
		return;
	if (buf_add_str(&path, prefix) >= 0 && subtree_path(part, node, &path) >= 0)
		diff_say(d, buf_str(&path), in_a ? "only in A" : "only in B", "");
}

/* ---- pairing ---- */

struct pairing {
	struct diff *d;
	const char *prefix;
	const struct subtree_part *a, *b;
	const struct tree_node **partner; /* indexed by the nodes of A */
};

/* Report two texts that differ at a container. */
static void diff_trees_say_both(const struct pairing *p, const struct tree_node *a,
				const char *what, struct span text_a, struct span text_b)
{
	auto_buf path = { 0 }, text = { 0 };

	if (p->d->t.only)
		return;
	buf_add_str(&path, p->prefix);
	subtree_path(p->a, a, &path);
	if (!p->d->json) {
		buf_addf(&text, "%.*s, and %.*s", SPAN_ARG(text_a), SPAN_ARG(text_b));
	} else {
		buf_add_str(&text, "\"a\": ");
		json_put_str(&text, text_a, JSON_PRETTY);
		buf_add_str(&text, ", \"b\": ");
		json_put_str(&text, text_b, JSON_PRETTY);
	}
	diff_say(p->d, buf_str(&path), what, buf_str(&text));
}

static const char *kind_name(const struct tree_node *n)
{
	return n->kind == TREE_LEAF ? "leaf" : tree_kind_text(n->kind);
}

/*
 * Whether the tree has kinds: if there are only names, as in a safetensors file, lists and numbers
 * are unknown.
 */
static bool says_kinds(const struct subtree_part *p)
{
	return p->item->tree->has_metadata || p->item->tree->has_manifest || p->item->is_aggregate;
}

/* The kind of a node as a tree without rich types records it. */
static enum tree_kind plain_kind(const struct tree_node *n)
{
	if (n->kind == TREE_TUPLE)
		return TREE_LIST;
	return n->kind == TREE_NAMEDTUPLE || n->kind == TREE_CUSTOM ? TREE_DICT : n->kind;
}

/* Compare only what both trees record: only rich types distinguish a list from a tuple. */
static bool kinds_differ(const struct pairing *p, const struct tree_node *a,
			 const struct tree_node *b)
{
	const struct tree *ta = p->a->item->tree, *tb = p->b->item->tree;

	if ((a->kind == TREE_LEAF) != (b->kind == TREE_LEAF))
		return true;
	if (!says_kinds(p->a) || !says_kinds(p->b))
		return false;
	/* A manifest has the kinds of the exported tree; that of an empty container is in any. */
	if ((ta->rich == tb->rich && ta->has_manifest == tb->has_manifest) ||
	    (!a->n_children && !b->n_children))
		return a->kind != b->kind;
	return plain_kind(a) != plain_kind(b);
}

static void compare_classes(const struct pairing *p, const struct tree_node *a,
			    const struct tree_node *b)
{
	auto_buf name_a = { 0 }, name_b = { 0 };

	if (a->kind != TREE_NAMEDTUPLE || b->kind != TREE_NAMEDTUPLE || !a->type || !b->type)
		return;
	buf_addf(&name_a, "%.*s.%.*s", SPAN_ARG(a->type->module), SPAN_ARG(a->type->clazz));
	buf_addf(&name_b, "%.*s.%.*s", SPAN_ARG(b->type->module), SPAN_ARG(b->type->clazz));
	if (!span_eq(buf_span(&name_a), buf_span(&name_b)))
		diff_trees_say_both(p, a, "type", buf_span(&name_a), buf_span(&name_b));
}

/* The next child, from number *i on, that the other container has, too; or NULL. */
static const struct tree_node *next_common(const struct tree_node *n, const struct tree_node *other,
					   uint32_t *i)
{
	for (; *i < n->n_children; ++*i)
		if (tree_child_by_key(other, n->children[*i]->key))
			return n->children[(*i)++];
	return NULL;
}

/*
 * Whether the tree has the order of the fields of a namedtuple and of the keys of an OrderedDict.
 */
static bool says_orders(const struct subtree_part *p)
{
	return p->item->tree->has_metadata || p->item->tree->has_manifest;
}

static void compare_orders(const struct pairing *p, const struct tree_node *a,
			   const struct tree_node *b)
{
	const struct tree_node *next_a, *next_b;
	uint32_t i = 0, k = 0;

	if (plain_kind(a) != TREE_DICT || plain_kind(b) != TREE_DICT || !says_orders(p->a) ||
	    !says_orders(p->b))
		return;
	do {
		next_a = next_common(a, b, &i);
		next_b = next_common(b, a, &k);
	} while (next_a && next_b && span_eq(next_a->key, next_b->key));
	if (next_a && next_b)
		diff_trees_say_both(p, a, "order", next_a->key, next_b->key);
}

/* The recursion is at most LIMIT_TREE_DEPTH deep. */
static void pair_nodes(const struct pairing *p, const struct tree_node *a,
		       const struct tree_node *b)
{
	if (kinds_differ(p, a, b))
		diff_trees_say_both(p, a, "kind", span_str(kind_name(a)), span_str(kind_name(b)));
	compare_classes(p, a, b);
	compare_orders(p, a, b);
	if (a->kind == TREE_LEAF && b->kind == TREE_LEAF)
		p->partner[a->id] = b;
	if (a->kind == TREE_LEAF || b->kind == TREE_LEAF)
		return;
	for (uint32_t i = 0; i < a->n_children; i++) {
		const struct tree_node *other = tree_child_by_key(b, a->children[i]->key);

		if (other)
			pair_nodes(p, a->children[i], other);
		else
			say_one_side(p->d, p->prefix, p->a, a->children[i], true);
	}
	for (uint32_t i = 0; i < b->n_children; i++)
		if (!tree_child_by_key(a, b->children[i]->key))
			say_one_side(p->d, p->prefix, p->b, b->children[i], false);
}

static int pair_parts(struct diff *d, const char *prefix, size_t i, const struct subtree_part *b)
{
	const struct subtree_part *a = &d->a->part[i];
	const char *ca = a->item->tree->custom_metadata, *cb = b->item->tree->custom_metadata;
	struct pairing p = { d, prefix, a, b, NULL };
	auto_buf path = { 0 };
	int r;

	p.partner = calloc(a->item->tree->n_nodes, sizeof(*p.partner));
	if (!p.partner)
		return fail(-ENOMEM, "cannot compare %u nodes", a->item->tree->n_nodes);
	d->partner[i] = p.partner;
	d->part[i] = b;
	pair_nodes(&p, a->tree, b->tree);
	/* Files that have only names and values have no place for custom metadata either. */
	if (d->t.only || a->tree->parent || b->tree->parent || !says_kinds(a) || !says_kinds(b))
		return 0;
	r = buf_addf(&path, "%s%s", prefix, a->path);
	return r < 0 ? r :
		       diff_custom(d, buf_str(&path), span_str(ca ? ca : ""),
				   span_str(cb ? cb : ""));
}

const struct tree_node *diff_partner(const struct diff *d, const struct subtree_part *part,
				     const struct tree_node *leaf,
				     const struct subtree_part **ret_part)
{
	size_t i = (size_t)(part - d->a->part);

	*ret_part = d->part[i];
	return d->partner[i] ? d->partner[i][leaf->id] : NULL;
}

/* Find the part of the other side: the one of that name, or the only one if names do not matter. */
static const struct subtree_part *find_part(const struct subtree *st,
					    const struct subtree_part *part, bool single)
{
	for (size_t i = 0; i < st->n; i++)
		if (st->part[i].kind == part->kind &&
		    (single || !strcmp(st->part[i].path, part->path)))
			return &st->part[i];
	return NULL;
}

/* A part that cannot be read on the other side has been reported, and is not missing. */
static bool is_broken(const struct subtree *st, const struct subtree_part *part)
{
	for (size_t i = 0; i < st->n; i++)
		if (st->part[i].kind == PART_BROKEN && !strcmp(st->part[i].path, part->path))
			return true;
	return false;
}

static void say_part(struct diff *d, const char *prefix, const struct subtree_part *part, bool in_a)
{
	auto_buf path = { 0 };

	if (!d->t.only && !is_broken(in_a ? d->b : d->a, part) &&
	    buf_addf(&path, "%s%s", prefix, part->path) >= 0)
		diff_say(d, buf_str(&path), in_a ? "only in A" : "only in B", "");
}

/* ---- two trees or steps ---- */

static int pair_all(struct diff *d, const char *prefix, struct node *na, struct node *nb)
{
	/* Two single trees are compared whatever the names of their items are. */
	bool single = d->a->n == 1 && d->b->n == 1 && d->a->part[0].kind == PART_TREE &&
		      d->b->part[0].kind == PART_TREE;
	int r = 0;

	for (size_t i = 0; i < d->a->n && r >= 0; i++) {
		const struct subtree_part *a = &d->a->part[i], *b = find_part(d->b, a, single);

		if (a->kind == PART_BROKEN)
			continue;
		if (!b)
			say_part(d, prefix, a, true);
		else if (a->kind == PART_TREE)
			r = pair_parts(d, prefix, i, b);
		else if (!d->t.only)
			r = diff_file_part(d, prefix, na, nb, a);
	}
	for (size_t i = 0; i < d->b->n && r >= 0; i++)
		if (d->b->part[i].kind != PART_BROKEN && !find_part(d->a, &d->b->part[i], single))
			say_part(d, prefix, &d->b->part[i], false);
	return r < 0 || d->t.only ? r : diff_others(d, prefix, na, nb, single);
}

/* Damaged documents are reported: nothing is said to be equal to them. */
static int custom_of(struct diff *d, const char *path, int (*get)(struct node *, struct buf *),
		     struct node *na, struct node *nb)
{
	auto_buf a = { 0 }, b = { 0 };
	int r;

	if (d->t.only)
		return 0;
	r = get(na, &a);
	if (r >= 0)
		r = get(nb, &b);
	if (r == -EUCLEAN || r == -EACCES) {
		struct err_note why;

		err_save(r, &why);
		selection_failed(&d->t, *path ? path : ".", &why);
		return 0;
	}
	return r < 0 ? r : diff_custom(d, path, buf_span(&a), buf_span(&b));
}

static int compare_nodes(struct diff *d, const char *prefix, struct node *na, struct node *nb)
{
	int r = 0;

	if (!d->partner || !d->part)
		return fail(-ENOMEM, "cannot compare %zu items", d->a->n);
	if (na->ops == &node_step_ops && nb->ops == &node_step_ops)
		r = custom_of(d, prefix, node_step_custom, na, nb);
	if (r < 0)
		return r;
	r = pair_all(d, prefix, na, nb);
	return r < 0 ? r : diff_values(d, d->a, prefix);
}

static int diff_nodes(struct diff *d, const char *prefix, struct node *na, struct node *nb)
{
	auto_subtree a = { 0 }, b = { 0 };
	int r = node_open_subtree(na, &a);

	if (r < 0)
		return r;
	r = node_open_subtree(nb, &b);
	if (r < 0)
		return r;
	r = selection_broken(&d->t, &a, prefix);
	if (r < 0)
		return r;
	r = selection_broken(&d->t, &b, prefix);
	if (r < 0)
		return r;
	d->a = &a;
	d->b = &b;
	d->partner = calloc(a.n + 1, sizeof(*d->partner));
	d->part = calloc(a.n + 1, sizeof(*d->part));
	r = compare_nodes(d, prefix, na, nb);
	for (size_t i = 0; d->partner && i < a.n; i++)
		free(d->partner[i]);
	free(take(d->partner));
	free(take(d->part));
	return r;
}

/* ---- roots ---- */

int diff_sources(struct diff *d, struct source *a, struct source *b)
{
	auto_listing la = { 0 }, lb = { 0 };
	bool is_root = node_is_root(a->node);
	int r;

	if (is_root != node_is_root(b->node))
		return fail(-EINVAL,
			    "'%s' is a directory of steps and '%s' is not: name one of its steps",
			    is_root ? d->name_a : d->name_b, is_root ? d->name_b : d->name_a);
	if (!is_root)
		return diff_nodes(d, "", a->node, b->node);
	r = custom_of(d, "", node_root_custom, a->node, b->node);
	if (r < 0)
		return r;
	r = node_list(a->node, &la);
	if (r < 0)
		return r;
	r = node_list(b->node, &lb);
	for (size_t i = 2; i < la.n && r >= 0; i++) {
		const char *name = listing_name(&la, i);
		auto_node *na = NULL, *nb = NULL;
		auto_buf prefix = { 0 };

		if (diff_type_of(&lb, name) < 0) {
			diff_say(d, name, "only in A", "");
			continue;
		}
		r = buf_addf(&prefix, "%s/", name);
		if (r < 0)
			return r;
		r = node_lookup(a->node, span_str(name), &na);
		if (r < 0)
			return r;
		r = node_lookup(b->node, span_str(name), &nb);
		if (r < 0)
			return r;
		r = diff_nodes(d, buf_str(&prefix), na, nb);
	}
	if (r < 0)
		return r;
	diff_only_in_b(d, "", &la, &lb);
	return r;
}
