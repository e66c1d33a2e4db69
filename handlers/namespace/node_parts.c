/* SPDX-License-Identifier: Apache-2.0 */
/*
 * node_parts.c - finds the PyTrees below a node.
 */
#include "handlers/namespace/node_parts.h"

#include <dirent.h>

#include "core/base/err.h"
#include "core/base/log.h"
#include "core/base/path.h"
#include "core/step/item_others.h"
#include "handlers/namespace/node_tree.h"

#define MAX_NESTING 8 /* levels of composite items inside each other */

static int node_parts_add_step(struct subtree *st, struct node *step, const char *path,
			       unsigned depth);

/* Add a child of a step, according to the kind of its node; other: it lies beside the items. */
static int node_parts_add_child(struct subtree *st, struct node *step, const char *name,
				const char *path, unsigned depth, bool other, unsigned char type)
{
	auto_free char *below = NULL, *source = NULL;
	auto_node *n = NULL;
	struct file_id id;
	struct stat attr;
	int r = path_join(*path ? path : ".", span_str(name), &below);

	if (r < 0)
		return r;
	r = path_join(node_step_path(step), span_str(name), &source);
	if (r < 0 || other)
		return r < 0 ? r : subtree_add_other(st, below, source, type);
	r = node_lookup(step, span_str(name), &n);
	if (r < 0)
		return r == -ENOMEM ? r : subtree_add_broken(st, below, source, r);
	if (n->ops == &node_dir_ops) {
		struct node_dir *d = container_of(n, struct node_dir, node);

		return subtree_add_tree(st, below, d->item, d->tree);
	}
	if (n->ops == &node_step_ops && depth < MAX_NESTING)
		return node_parts_add_step(st, n, below, depth + 1);
	if (io_stat(n->ns->ckpt->source, source, &attr) < 0)
		return subtree_add_files(st, below, source, NULL);
	id = file_id_of(&attr);
	return subtree_add_files(st, below, source, &id);
}

static int node_parts_add_step(struct subtree *st, struct node *step, const char *path,
			       unsigned depth)
{
	auto_listing l = { 0 };
	int r = node_list(step, &l);

	for (size_t i = 2; i < l.n && r >= 0; i++) {
		const char *name = listing_name(&l, i);
		unsigned char type = l.entry[i].type;
		bool other = step_has_other(span_str(name), type);

		if (type == DT_DIR || other)
			r = node_parts_add_child(st, step, name, path, depth, other, type);
	}
	return r;
}

int node_open_subtree(struct node *n, struct subtree *ret)
{
	auto_subtree st = { 0 };
	struct stat attr;
	int r;

	/* node_stat() of an item or leaf also examines who may read it: that takes all files. */
	if (n->ops == &node_dir_ops) {
		struct node_dir *d = container_of(n, struct node_dir, node);

		st.mtime = d->mtime;
		r = subtree_add_tree(&st, "", d->item, d->tree);
	} else if (n->ops == &node_leaf_ops) {
		struct node_leaf *l = container_of(n, struct node_leaf, node);

		/* A view of a part is not accepted, since it would be treated as the whole leaf. */
		if (!node_leaf_is_whole(l))
			return fail(-EINVAL, "'%s' is a view: a leaf is wanted as it is listed",
				    n->name);
		st.mtime = l->mtime;
		r = subtree_add_tree(&st, "", l->item, l->tree);
	} else if (n->ops == &node_step_ops) {
		r = node_stat(n, &attr);
		if (r < 0)
			return r;
		st.mtime = attr.st_mtim;
		r = node_parts_add_step(&st, n, "", 0);
	} else {
		return fail(-EINVAL, "'%s' is not a step, item, directory or leaf of a tree",
			    *n->name ? n->name : n->ns->ckpt->opts.source);
	}
	if (r < 0)
		return r;
	*ret = st;
	st = (struct subtree){ 0 };
	return 0;
}

static int add_remark(struct buf *list, const struct subtree_part *part, const char *text)
{
	auto_free char *remark = part->item ? str_fmt("item '%s' %s", part->item->path, text) :
					      strdup(text);
	int r = remark ? buf_add_str(list, list->n ? ", " : "[") : -ENOMEM;

	return r < 0 ? r : json_put_str(list, span_str(remark), JSON_PYTHON);
}

int node_parts_remarks(struct node *n, const struct subtree *st, struct buf *ret)
{
	struct node *step = n->ops == &node_dir_ops && n->parent ? n->parent : n;
	struct stat attr;
	int r = 0;

	/* The custom metadata of the step, or of that of an item, may be a link out of SOURCE. */
	if (step->ops == &node_step_ops &&
	    io_stat(node_step_dir(step), "_CHECKPOINT_METADATA", &attr) == -EUCLEAN)
		r = add_remark(ret, &(struct subtree_part){ 0 }, err_text(-EUCLEAN));
	err_clear();
	for (size_t i = 0; i < st->n && r >= 0; i++) {
		const struct subtree_part *p = &st->part[i];
		bool is_known = true;

		if (p->kind == PART_FILES && n->ops == &node_step_ops && !strchr(p->path, '/')) {
			r = node_step_knows(n, span_str(p->path), p->source);
			if (r < 0)
				return r;
			is_known = r != 0;
		}
		if (!is_known)
			r = add_remark(ret, p, err_text(-EOPNOTSUPP));
		else if (p->item && p->item->remark)
			r = add_remark(ret, p, p->item->remark);
	}
	return r < 0 || !ret->n ? r : buf_add_byte(ret, ']');
}

int node_add_custom(struct node *n, struct subtree *st)
{
	auto_buf text = { 0 };
	int r = n->ops == &node_step_ops ? node_step_custom(n, &text) : 0;

	if (r == -EUCLEAN) {
		log_warn("'%s' is read without the custom metadata of the step: %s",
			 *n->name ? n->name : n->ns->ckpt->opts.source, err_text(r));
		err_clear();
		return 0;
	}
	if (r < 0 || !text.n)
		return r;
	st->custom = span_dup_str(buf_span(&text));
	return st->custom ? 0 : fail(-ENOMEM, "cannot list items");
}

/* The custom metadata of a step are in a file of their own. */
static int look_at_custom(struct io_dir *source, const char *step, struct access *ret)
{
	auto_free char *file = NULL;
	struct access a;
	int r = path_join(step, span_str("_CHECKPOINT_METADATA"), &file);

	if (r < 0)
		return r;
	r = access_of(source, file, &a);
	if (r < 0)
		return r;
	access_both(ret, &a);
	return r;
}

int node_parts_access(struct io_dir *source, const char *step, const struct subtree *st,
		      struct access *ret)
{
	struct stat at;
	int r = io_stat(source, step ? step : ".", &at);

	if (r < 0)
		return r;
	/* A step without items has no other permissions. SOURCE may be a file. */
	r = access_of(source, step ? step : ".", ret);
	if (r < 0)
		return r;
	access_readers(ret, S_ISDIR(at.st_mode));
	for (size_t i = 0; i < st->n; i++) {
		const struct subtree_part *p = &st->part[i];
		struct access a;

		r = p->item ? item_access_leaves(p->item, p->tree, subtree_end(p->tree), &a) :
			      access_of_all(source, p->source, &a);
		if (r < 0)
			return r;
		r = access_on_the_way(source, p->source, &a);
		if (r < 0)
			return r;
		if (i == 0 && !step)
			*ret = a;
		else
			access_both(ret, &a);
	}
	return step && st->custom ? look_at_custom(source, step, ret) : r;
}

int node_parts_left_out(const struct transform *t, const struct subtree *st,
			struct transform_left_out *sum)
{
	int r = 0;

	for (size_t i = 0; i < st->n && r >= 0; i++) {
		const struct subtree_part *part = &st->part[i];
		bool again = false;

		/* Parts of one item share its tree. */
		for (size_t k = 0; k < i && part->kind == PART_TREE; k++)
			again |= st->part[k].kind == PART_TREE && st->part[k].item == part->item;
		if (part->kind == PART_TREE && !again && transform_is_for(t, part->item->path))
			r = transform_left_out(t, part->item->tree, sum);
	}
	return r;
}
