/* SPDX-License-Identifier: Apache-2.0 */
/*
 * node_tree.c - the containers of a tree as directories.
 *
 * The top directory also has the item's own files: `_METADATA` and, for a v0 direct checkpoint,
 * `_CHECKPOINT_METADATA`; and files that programs put beside the arrays. The other stored files are
 * under `.pytreefs/stored`.
 */
#include <dirent.h>

#include "core/base/err.h"
#include "core/base/log.h"
#include "core/base/path.h"
#include "core/step/item_others.h"
#include "core/step/step.h"
#include "handlers/leaf/leaf.h"
#include "handlers/namespace/node_tree.h"

static const char *const own_files[] = { "_METADATA", "_CHECKPOINT_METADATA" };

static struct node_dir *dir_of(struct node *n)
{
	return container_of(n, struct node_dir, node);
}

/*
 * The item's own files describe the stored tree, not one that transforms made of it, nor one that
 * is a file beside them.
 */
static bool shows_own_files(const struct node_dir *d)
{
	return d->is_item && !d->item->tree->made_of && !ckpt_is_file(d->item->ckpt);
}

static int dir_stat(struct node *n, struct stat *ret)
{
	struct access a;
	int r = item_access(dir_of(n)->item, &a);

	if (r < 0)
		return r;
	ns_stat_dir(n->ns, &a, &dir_of(n)->mtime, ret);
	return r;
}

static int dir_new(struct ns *ns, struct node *parent, struct span name, struct item *item,
		   const struct tree_node *tree, const struct timespec *mtime, struct node **ret)
{
	struct node_dir *d;
	int r = node_new(&node_dir_ops, ns, parent, name, sizeof(*d), &d);

	if (r < 0)
		return r;
	d->item = item_ref(item);
	d->tree = tree;
	d->mtime = *mtime;
	*ret = &d->node;
	return 0;
}

static int stored_child(struct node_dir *d, struct span name, const char *file,
			enum stored_role role, struct node **ret)
{
	auto_free char *path = NULL;
	struct stat st;
	int r = io_stat(d->item->dir, file, &st);

	if (r < 0)
		return r;
	r = path_join(d->item->path, span_str(file), &path);
	return r < 0 ? r : node_stored_new(&d->node, name, path, &st, role, ret);
}

/* A leaf of an unknown type: its files are shown as they are stored. */
static int opaque_child(struct node_dir *d, struct span name, const struct tree_node *leaf,
			struct node **ret)
{
	auto_free char *file = span_dup_str(leaf->param);
	int r;

	if (!file)
		return fail(-ENOMEM, "cannot look up '%.*s'", SPAN_ARG(name));
	r = io_path_check(leaf->param, "leaf of an unknown type");
	if (r < 0)
		return r;
	r = stored_child(d, name, file, STORED_LEAF, ret);
	if (r == -ENOENT && d->node.ns->options->handlers == HANDLERS_NONE)
		return fail(
			-EOPNOTSUPP,
			"leaf '%s' of type '%.*s': handlers=none, and it has no files of its own",
			file, SPAN_ARG(leaf->value_type));
	if (r == -ENOENT)
		return fail(-EUCLEAN, "leaf '%s' of type '%.*s' has no files", file,
			    SPAN_ARG(leaf->value_type));
	return r;
}

/* Another file beside the arrays: 1; 0: there is none. */
static int other_child(struct node_dir *d, struct span name, struct node **ret)
{
	auto_free char *path = NULL;
	struct stat st;
	int r = d->is_item ? item_other(d->item, name, &st) : 0;

	if (r <= 0)
		return r;
	r = path_join(d->item->path, name, &path);
	if (r < 0)
		return r;
	r = node_stored_new(&d->node, name, path, &st, STORED_OTHER, ret);
	return r < 0 ? r : 1;
}

static int dir_lookup(struct node *n, struct span name, struct node **ret)
{
	struct node_dir *d = dir_of(n);
	const struct tree_node *child = NULL;
	struct err_note why = { 0 };
	bool is_listed;
	int r;

	/* A tree that is one bare leaf has the leaf in the item's directory. */
	if (d->tree->kind != TREE_LEAF)
		child = tree_child(d->tree, name);
	else if (span_eq(d->tree->name, name))
		child = d->tree;
	if (child && child->kind != TREE_LEAF)
		return dir_new(n->ns, n, name, d->item, child, &d->mtime, ret);
	if (child) {
		const struct leaf_type *h = leaf_type_of(child);

		if (!h)
			return opaque_child(d, name, child, ret);
		return node_leaf_new(d, name, child, h->ext, false, ret);
	}
	for (size_t i = 0; shows_own_files(d) && i < ARRAY_LEN(own_files); i++)
		if (span_eq(name, span_str(own_files[i]))) {
			r = stored_child(d, name, own_files[i], STORED_DOCUMENT, ret);
			/* Not every item has both files, so this is not an error. */
			if (r == -ENOENT)
				err_clear();
			return r;
		}
	if (d->is_item && n == n->ns->root && span_eq(name, span_str(".pytreefs")))
		return node_control_new(n, name, ret);
	/* Names that are not listed do not hide views, which are found without a request. */
	is_listed = others_are_listed(d->item->ckpt);
	r = is_listed ? other_child(d, name, ret) : 0;
	if (r != 0)
		return MIN(r, 0);
	r = node_view_lookup(d, name, ret);
	if (r != -ENOENT)
		return r;
	if (*err_where(r))
		err_save(r, &why);
	r = node_subtree_lookup(n, name, ret);
	if (r == -ENOENT && !is_listed && other_child(d, name, ret) > 0)
		return 0;
	if (r != -ENOENT || !why.code)
		return r;
	/* The name is not a view of a directory either. What the leaf said is nearer, if it has the
	 * form. */
	return name_ext_of(name) == NAME_EXT_SAFETENSORS && *err_where(r) ? r :
									    fail(r, "%s", why.text);
}

static unsigned char type_of(const struct tree_node *t)
{
	return t->kind != TREE_LEAF || !leaf_type_of(t) ? DT_DIR : DT_REG;
}

/*
 * With handlers=none, a leaf is shown as its stored files. A leaf in a database has no such files,
 * so it is not listed.
 */
static bool is_listed(const struct node_dir *d, const struct tree_node *t)
{
	auto_free char *file = NULL;
	struct stat st;
	bool has_files;

	if (d->node.ns->options->handlers != HANDLERS_NONE || t->kind != TREE_LEAF ||
	    leaf_type_of(t))
		return true;
	file = span_dup_str(t->param);
	has_files = file && io_path_check(t->param, "leaf") >= 0 &&
		    io_stat(d->item->dir, file, &st) >= 0;
	err_clear();
	return has_files;
}

struct listing_others {
	struct node_dir *d;
	struct listing *list;
};

static int list_other(void *arg, const char *name, unsigned char type)
{
	struct listing_others *l = arg;

	return listing_add(l->list, &l->d->node, span_str(name), type);
}

static int node_tree_dir_list(struct node *n, struct listing *ret)
{
	struct node_dir *d = dir_of(n);
	struct listing_others others = { d, ret };
	int r = listing_add_dots(ret, n);

	for (size_t i = 0; shows_own_files(d) && i < ARRAY_LEN(own_files) && r >= 0; i++) {
		struct stat st;
		int there = io_stat(d->item->dir, own_files[i], &st);

		if (there == 0)
			r = listing_add(ret, n, span_str(own_files[i]), DT_REG);
		/* The file may exist. */
		else if (err_is_transient(there))
			r = there;
		else if (there == -EUCLEAN)
			log_warn("%s", err_text(there));
		err_clear();
	}
	if (r < 0)
		return r;
	if (d->is_item)
		r = item_each_other(d->item, list_other, &others);
	if (r < 0)
		return r;
	if (d->tree->kind == TREE_LEAF)
		return is_listed(d, d->tree) ?
			       listing_add(ret, n, d->tree->name, type_of(d->tree)) :
			       0;
	for (uint32_t i = 0; i < d->tree->n_children && r >= 0; i++)
		if (is_listed(d, d->tree->children[i]))
			r = listing_add(ret, n, d->tree->children[i]->name,
					type_of(d->tree->children[i]));
	return r;
}

/*
 * A tree is immutable, and a step that replaces another one gets new nodes. But the item's own
 * files, and those shown by handlers=none, are read from disk.
 */
static bool dir_list_is_fixed(const struct node *n)
{
	const struct node_dir *d = container_of(n, const struct node_dir, node);

	return !d->is_item && n->ns->options->handlers != HANDLERS_NONE;
}

/* If an item is copied into SOURCE file by file, it may have been incomplete when it was opened. */
static bool dir_still_valid(struct node *n)
{
	struct node_dir *d = dir_of(n);

	return !d->is_item || ns_is_same(n->ns, d->item->path, &d->item->id);
}

static void node_tree_dir_free(struct node *n)
{
	ahead_free(dir_of(n)->ahead);
	item_unref(dir_of(n)->item);
	free(dir_of(n));
}

const struct node_ops node_dir_ops = {
	.name = "dir",
	.stat = dir_stat,
	.lookup = dir_lookup,
	.list = node_tree_dir_list,
	.list_is_fixed = dir_list_is_fixed,
	.xattr_list = tree_xattr_list,
	.xattr_get = tree_xattr_get,
	.still_valid = dir_still_valid,
	.free = node_tree_dir_free,
};

int node_path_in_tree(const struct node *n, struct buf *ret)
{
	const struct node *top = n->parent;
	auto_buf path = { 0 };
	int r;

	if (n->ops != &node_leaf_ops)
		return -ENODATA;
	while (!container_of(top, const struct node_dir, node)->is_item)
		top = top->parent;
	if (top->parent != n->ns->root || n->ns->ckpt->shape != SHAPE_ROOT)
		return 0;
	/* A step is the first name of the path. */
	r = node_path(n, &path);
	if (r < 0)
		return r;
	r = buf_add(ret, path.p + strlen(top->name) + 1, path.n - strlen(top->name) - 1);
	return r < 0 ? r : 1;
}

/* Get the commit time of the item, from its step or its directory. */
static int item_mtime(struct node *dir, struct item *item, struct timespec *ret)
{
	struct stat st;
	int r;

	if (dir) {
		r = node_stat(dir, &st);
		if (r < 0)
			return r;
		/* The root is not a step: a v0 direct checkpoint has a time of its own. */
		if (dir != dir->ns->root) {
			*ret = st.st_mtim;
			return 0;
		}
	}
	return step_mtime(item->dir, ret);
}

int node_item_new(struct ns *ns, struct node *dir, struct span name, const char *path,
		  struct node **ret)
{
	auto_of(item) struct item *item = NULL;
	struct timespec mtime;
	struct node *n;
	int r = ns_item(ns, path, &item);

	if (r < 0)
		return r;
	r = item_mtime(dir, item, &mtime);
	if (r < 0)
		return r;
	r = dir_new(ns, dir, name, item, item->tree->root, &mtime, &n);
	if (r < 0)
		return r;
	r = ahead_new(item, ns->memory, &dir_of(n)->ahead);
	if (r < 0) {
		node_unref(n, 1);
		return r;
	}
	dir_of(n)->is_item = true;
	n->child_ttl = NS_STEP_TTL;
	*ret = n;
	return 0;
}
