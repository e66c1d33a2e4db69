/* SPDX-License-Identifier: Apache-2.0 */
/*
 * draft_tree.c - turns names of a draft into a struct tree, which is sorted as JAX sorts.
 *
 * A directory is a dict unless an xattr makes it a sequence; the extension of a file says its kind.
 */
#include "core/base/array.h"
#include "core/base/err.h"
#include "core/base/lock.h"
#include "core/base/log.h"
#include "core/step/step_meta.h"
#include "handlers/draft/commit_driver.h"
#include "handlers/plan/copy_hints.h"
#include "handlers/plan/draft_generated.h"

void plan_free(struct plan *p)
{
	if (!p)
		return;
	for (size_t i = 0; i < p->n_leaves; i++) {
		kv_free(p->leaf[i].kv);
		free(p->leaf[i].part);
	}
	free(p->leaf);
	tree_build_release(&p->build);
	tree_free(p->tree);
	tree_free(p->hint);
	for (size_t i = 0; i < p->n_held; i++)
		draft_node_unref(p->held[i]);
	free(p->held);
	free(p->other);
	draft_node_unref(p->item);
	free(p->name);
	free(p->copied_handler);
	free(p);
}

/*
 * List the children of a directory of the tree, which the plan holds from now on, without those
 * that lie beside the arrays.
 */
static int children_of(struct plan *p, struct draft_node *dir, struct draft_node ***ret,
		       size_t *ret_n)
{
	auto_draft_list all = { 0 };
	int r = draft_children(dir, &all);

	if (r < 0)
		return r;
	if (!array_reserve(p->held, p->cap_held, p->n_held + all.n + 1))
		return fail(-ENOMEM, "cannot look at '%s'", dir->name);
	memcpy(p->held + p->n_held, all.node, all.n * sizeof(*all.node));
	p->n_held += all.n;
	*ret_n = all.n;
	all.n = 0;
	*ret = take(all.node);
	return dir == p->item ? plan_take_others(p, *ret, ret_n) : 0;
}

/* ---- keys ---- */

/*
 * The key of a shortened name ('~'), which does not contain it: the last element of
 * user.pytree.key, or from a copied `_METADATA`.
 */
static int key_of_shortened(struct plan *p, const struct tree_node *parent, struct draft_node *n,
			    struct span stem, struct buf *ret)
{
	auto_buf text = { 0 };
	auto_json doc = { 0 };
	int r = draft_get_xattr(n, "key", &text);

	if (r == -ENODATA) {
		err_clear();
		r = plan_hint_key(p, parent, stem, ret);
		if (r == 0)
			r = fail(-EINVAL,
				 "its name is shortened, and user.pytree.key does not say its key");
		return MIN(r, 0);
	}
	if (r < 0)
		return r;
	r = json_parse(buf_span(&text), "user.pytree.key", &doc);
	if (r < 0)
		return r;
	if (doc.root->n == 0)
		return fail(-EINVAL, "user.pytree.key is empty");
	return buf_add_span(ret, doc.root->items[doc.root->n - 1].s);
}

int plan_key(struct plan *p, const struct tree_node *parent, struct draft_node *n, struct span stem,
	     bool is_dir, struct buf *ret)
{
	if (name_is_hashed(stem))
		return key_of_shortened(p, parent, n, stem, ret);
	return name_unescape(stem, is_dir ? NAME_CONTAINER : NAME_LEAF,
			     parent == p->tree->root ? NAME_OURS_METADATA : 0, ret);
}

/* ---- nodes ---- */

static int already_there(struct plan *p, struct draft_node *n, struct span key)
{
	return p->strict ? fail(-EINVAL, "'%s' is the second leaf of key '%.*s'", n->name,
				SPAN_ARG(key)) :
			   0;
}

int plan_leaf_new(struct plan *p, struct tree_node *parent, struct draft_node *n, struct span key,
		  struct plan_leaf **ret)
{
	struct tree_node *node;
	bool in_sequence = parent && tree_is_sequence(parent);
	int r;

	*ret = NULL;
	if (!array_reserve(p->leaf, p->cap, p->n_leaves + 1))
		return fail(-ENOMEM, "cannot list %zu leaves", p->n_leaves + 1);
	if (parent)
		r = tree_build_child(&p->build, parent, key, in_sequence, &node);
	else
		r = tree_add(p->tree, NULL, key, false, TREE_LEAF, &node);
	if (r < 0)
		return r;
	if (parent && r == 0)
		return already_there(p, n, key);
	node->kind = TREE_LEAF;
	p->leaf[p->n_leaves] = (struct plan_leaf){ .node = node, .source = n };
	*ret = &p->leaf[p->n_leaves++];
	return 0;
}

/* The part of a name that stands for the key: without extension and view. */
static struct span plan_stem_of(const struct draft_node *n)
{
	struct span name = span_str(n->name);
	struct draft_part part;

	if (n->is_dir)
		return name;
	if (draft_part_of(name, &part) == 1)
		return part.stem;
	err_clear();
	name.n -= strlen(name_ext_text(name_ext_of(name)));
	return name;
}

bool plan_is_metadata(const struct draft_node *n)
{
	return !n->is_dir &&
	       (!strcmp(n->name, "_METADATA") || !strcmp(n->name, "_CHECKPOINT_METADATA"));
}

/* Whether the names are the positions 0 to n - 1. */
static bool plan_is_sequence(struct draft_node *const *child, size_t n)
{
	size_t positions = 0, others = 0;
	struct span last = { 0 };

	for (size_t i = 0; i < n; i++) {
		struct span stem = plan_stem_of(child[i]);
		uint64_t v = 0;

		if (plan_is_metadata(child[i]))
			others++; /* in an item inside another */
		if (plan_is_metadata(child[i]) || span_eq(stem, last))
			continue; /* a further part of the same array */
		for (size_t k = 0; k < stem.n; k++) {
			if (stem.p[k] < '0' || stem.p[k] > '9' || stem.n > 9)
				return false;
			v = v * 10 + (stem.p[k] - '0');
		}
		if (stem.n == 0 || (stem.n > 1 && stem.p[0] == '0') || v >= n)
			return false;
		last = stem;
		positions = MAX(positions, (size_t)v + 1);
	}
	return positions <= n - others;
}

static int plan_walk(struct plan *p, struct draft_node *dir, struct tree_node *node,
		     unsigned depth);

/*
 * The kind of a directory, from its xattr, else from a copied `_METADATA` if the names agree with
 * it.
 */
static enum tree_kind plan_kind_of(struct plan *p, struct draft_node *n,
				   const struct tree_node *node, struct draft_node *const *child,
				   size_t n_children)
{
	enum draft_kind kind = draft_kind(n);

	if (kind == KIND_NONE && plan_is_sequence(child, n_children))
		return plan_hint_kind(p, node);
	return kind == KIND_LIST ? TREE_LIST : kind == KIND_TUPLE ? TREE_TUPLE : TREE_DICT;
}

static int plan_enter(struct plan *p, struct tree_node *parent, struct draft_node *n,
		      unsigned depth)
{
	struct tree_node *node;
	auto_buf key = { 0 };
	int r = plan_key(p, parent, n, span_str(n->name), true, &key);

	if (r == -EINVAL && !p->strict) {
		err_clear();
		return 0;
	}
	if (r < 0)
		return r;
	r = tree_build_child(&p->build, parent, buf_span(&key), tree_is_sequence(parent), &node);
	if (r < 0)
		return r;
	if (r == 0)
		return already_there(p, n, buf_span(&key));
	return plan_walk(p, n, node, depth + 1);
}

/* The number of names from i on that are parts of one array; 0: name i is not a part. */
static size_t parts_at(struct draft_node *const *child, size_t n, size_t i)
{
	struct draft_part first, next;
	size_t k = i;

	if (child[i]->is_dir || draft_part_of(span_str(child[i]->name), &first) != 1) {
		err_clear();
		return 0;
	}
	for (k++; k < n && !child[k]->is_dir; k++)
		if (draft_part_of(span_str(child[k]->name), &next) != 1 ||
		    !span_eq(next.stem, first.stem))
			break;
	err_clear();
	return k - i;
}

/* Add the children of one directory, which the plan holds already. */
static int walk_children(struct plan *p, struct tree_node *node, struct draft_node **child,
			 size_t n, unsigned depth)
{
	int r = 0;

	for (size_t i = 0; i < n;) {
		size_t parts = parts_at(child, n, i);
		struct draft_node *c = child[i];

		if (parts) {
			r = plan_parts(p, node, child + i, parts);
			i += parts;
		} else {
			if (p->strict && draft_kind(c) == KIND_OPAQUE)
				r = fail(-EINVAL,
					 "it is marked as what is not a leaf, and only the top of "
					 "an item has such files");
			else if (!plan_is_metadata(c))
				r = c->is_dir ? plan_enter(p, node, c, depth) :
						plan_file(p, node, c);
			i++;
		}
		if (r < 0 && node == p->tree->root)
			p->refused = c;
		if (r < 0)
			return err_at(r, "'%s'", c->name);
	}
	return r;
}

static int plan_walk(struct plan *p, struct draft_node *dir, struct tree_node *node, unsigned depth)
{
	auto_free struct draft_node **child = NULL;
	size_t n;
	int r;

	if (depth > LIMIT_TREE_DEPTH)
		return fail(-EFBIG, "more than %d directories inside each other", LIMIT_TREE_DEPTH);
	r = children_of(p, dir, &child, &n);
	if (r < 0)
		return r;
	node->kind = plan_kind_of(p, dir, node, child, n);
	if (node->kind != TREE_DICT && !p->strict && !plan_is_sequence(child, n))
		node->kind = TREE_DICT;
	/* Without rich types, only an empty tuple is recorded as one. */
	if (node->kind == TREE_TUPLE && n > 0 && !plan_rich_off(p))
		p->opts.rich_types = true;
	r = walk_children(p, node, child, n, depth);
	return r < 0 || node->kind != TREE_DICT ? r : plan_namedtuple(p, dir, node);
}

/*
 * Make a tree of one leaf if the item is a bare one, "%.npy" or parts as "%[0:2]@4.npy", alone in
 * it: 1; 0: it is not.
 */
static int bare_leaf(struct plan *p)
{
	auto_free struct draft_node **child = NULL;
	size_t n, leaves = 0, parts;
	int r = children_of(p, p->item, &child, &n);

	if (r < 0)
		return r;
	for (size_t i = 0; i < n; i++) {
		struct draft_node *c = child[i];

		if (plan_is_metadata(c))
			continue;
		if (c->is_dir || !span_eq(plan_stem_of(c), span_str("%")))
			return 0;
		child[leaves++] = c;
	}
	if (!leaves)
		return 0;
	parts = parts_at(child, leaves, 0);
	r = parts ? plan_parts(p, NULL, child, parts) : plan_file(p, NULL, child[0]);
	if (r < 0)
		return err_at(r, "'%s'", child[0]->name);
	/* Names are sorted: continue after the first if it is not a part, else after all parts. */
	parts = MAX(parts, (size_t)1);
	if (parts < leaves && already_there(p, child[parts], span_str("%")) < 0)
		return -EINVAL;
	return p->n_leaves > 0;
}

/* ---- items ---- */

static int plan_custom_metadata(struct plan *p)
{
	auto_buf text = { 0 }, python = { 0 };
	auto_json doc = { 0 };
	const char *custom = p->hint ? p->hint->custom_metadata : NULL;
	int r = draft_get_xattr(p->item, "custom_metadata", &text);

	if (r >= 0) {
		r = json_parse(buf_span(&text), "custom metadata", &doc);
		r = r < 0 ? r : json_print(&python, doc.root, JSON_PYTHON);
		custom = buf_str(&python);
	} else if (r == -ENODATA) {
		err_clear();
		if (!custom)
			return 0;
		r = 0;
	}
	if (r < 0)
		return r;
	p->tree->custom_metadata = arena_str(&p->tree->arena, custom);
	return p->tree->custom_metadata ? 0 : -ENOMEM;
}

int plan_finish_tree(struct plan *p)
{
	int r = tree_sort(p->tree);

	if (r < 0)
		return r;
	r = tree_finish(p->tree);
	if (r < 0)
		return r;
	if (p->strict && p->tree->n_nodes == 1 && p->tree->root->kind != TREE_LEAF)
		return fail(-EINVAL, "it holds no leaf, and Orbax restores no empty tree");
	p->tree->has_use_ocdbt = true;
	p->tree->use_ocdbt = p->opts.ocdbt;
	p->tree->use_zarr3 = p->opts.zarr == SAVE_ZARR3;
	p->tree->store_fill_value = p->opts.store_fill_value;
	return 0;
}

static int plan_make_tree(struct plan *p)
{
	struct tree_node *root;
	int r = tree_new(&p->tree);

	if (r < 0)
		return r;
	p->build.tree = p->tree;
	/* The only key of a dict may be the empty one. */
	if (p->item->is_dir && draft_kind(p->item) == KIND_NONE &&
	    (!p->hint || p->hint->root->kind == TREE_LEAF))
		r = bare_leaf(p);
	if (r == 0)
		r = tree_add(p->tree, NULL, span_of(NULL, 0), false, TREE_DICT, &root);
	if (r < 0)
		return r;
	if (!p->tree->root->n_children && p->tree->root->kind != TREE_LEAF)
		r = p->item->is_dir ? plan_walk(p, p->item, root, 0) : plan_file(p, root, p->item);
	if (r < 0)
		return r;
	/* A copy of an item with recorded types records them too, unless an option is given. */
	if (p->hint && p->hint->rich && !save_opts_given(&p->opts, "rich_types"))
		p->opts.rich_types = true;
	r = plan_custom_metadata(p);
	return r < 0 || p->partial ? r : plan_finish_tree(p);
}

/* Set the name of an item; if it is inside another, the name begins with that of the outer one. */
static int name_plan(struct plan *p, struct span name)
{
	struct draft_node *n = p->item;
	const struct draft_node *outer;

	pthread_mutex_lock(&n->draft->lock);
	outer = n->parent && n->parent != n->draft->root ? n->parent : NULL;
	p->name = outer ? str_fmt("%s/%.*s", outer->name, SPAN_ARG(name)) : span_dup_str(name);
	pthread_mutex_unlock(&n->draft->lock);
	return p->name ? 0 : fail(-ENOMEM, "cannot look at item '%s'", n->name);
}

/* Determine the kind of a child of the draft, and the name of the item. */
static int item_kind(struct plan *p)
{
	struct draft_node *n = p->item;
	enum item_binding bound = item_bound(n->name);
	struct span name = span_str(n->name);
	enum name_ext ext = name_ext_of(name);
	enum draft_kind kind;
	int r;

	if (n == n->draft->root && !n->draft->is_item) {
		p->kind = PLAN_BESIDE;
		return name_plan(p, span_of(NULL, 0));
	}
	p->kind = PLAN_TREE;
	r = n->is_dir ? plugin_of_item(n->name, NULL, NULL, &p->plugin) : 0;
	if (r < 0)
		return r;
	if (p->plugin) {
		p->kind = PLAN_PLUGIN_ITEM;
	} else if (n->is_dir) {
		kind = draft_kind(n);
		p->kind = kind == KIND_OPAQUE ? PLAN_STORED : PLAN_TREE;
		if (bound == ITEM_AS_TREE || bound == ITEM_AS_FILES)
			p->kind = bound == ITEM_AS_TREE ? PLAN_TREE : PLAN_STORED;
		else
			r = p->strict && kind == KIND_NONE ? plan_looks_opaque(n) : 0;
		if (r < 0)
			return r;
		if (r)
			p->kind = PLAN_STORED;
		/* The draft of one item is named after it, with an extension. */
		if (n->draft->is_item)
			name.n = 0;
	} else if (ext == NAME_EXT_JSON) {
		p->kind = PLAN_JSON;
	} else if (span_ends(name, span_str(".pbtxt"))) {
		p->kind = PLAN_PROTO;
		name.n -= strlen(".pbtxt");
	} else if (!strcmp(n->name, "_METADATA")) {
		return fail(
			-EINVAL,
			"it is of a tree, and a step has items: put the tree into a directory of "
			"the draft");
	} else if (ext != NAME_EXT_SAFETENSORS) {
		return fail(
			-EINVAL,
			"'%s' is not an item: in a draft there are directories, .json, .pbtxt and "
			".safetensors files; another file is stored beside the items when cp -a "
			"copies it, or when it is marked: setfattr -n user.pytree.kind -v opaque "
			"'%s/%s'",
			n->name, n->draft->name, n->name);
	}
	if (!n->is_dir && p->kind != PLAN_PROTO)
		name.n -= strlen(name_ext_text(ext));
	if (!n->draft->is_item && (name.n == 0 || name.p[0] == '.'))
		return fail(-EINVAL, "'%s' is not a name of an item", n->name);
	return name_plan(p, name);
}

static int plan_make(struct plan *p)
{
	int r = item_kind(p);

	if (r < 0)
		return r;
	if (p->kind == PLAN_BESIDE)
		return plan_take_beside(p);
	r = p->kind == PLAN_TREE ? plan_hints_read(p) : 0;
	if (r < 0)
		return r;
	r = draft_options(plan_owner(p), span_of(NULL, 0), &p->opts);
	if (r < 0)
		return r;
	r = p->kind == PLAN_TREE ? plan_make_tree(p) : 0;
	return r < 0 ? r : plan_hint_handler(p);
}

int plan_new(struct draft_node *item, bool strict, struct plan **ret)
{
	auto_of(plan) struct plan *p = calloc(1, sizeof(*p));
	int r;

	if (!p)
		return fail(-ENOMEM, "cannot look at item '%s'", item->name);
	p->item = draft_node_ref(item);
	p->strict = strict;
	if (strict)
		trace(TRACE_STEP, "item '%s' is planned", item->name);
	p->partial = strict && item->draft->env->driver->plans_part;
	r = plan_make(p);
	if (r < 0)
		return plan_say_how_to_mark(p, r);
	*ret = take(p);
	return 0;
}

/* ---- generated files ---- */

/* Whether a directory is an item that is stored as a tree: not byte for byte, or by a plugin. */
static bool draft_is_tree(const struct draft_node *item)
{
	struct plugin *plugin = NULL;

	return !draft_is_opaque(item) && item_bound(item->name) != ITEM_AS_FILES &&
	       plugin_of_item(item->name, NULL, NULL, &plugin) >= 0 && !plugin;
}

const char *draft_generated_name(const struct draft_node *dir, bool if_hidden)
{
	bool is_root = dir == dir->draft->root;

	if (dir->generated_hidden && !if_hidden)
		return NULL;
	if (is_root && (!dir->draft->is_item || dir->draft->is_tree))
		return "_CHECKPOINT_METADATA";
	return is_root || (dir->parent == dir->draft->root && !dir->draft->is_item &&
			   draft_is_tree(dir)) ?
		       "_METADATA" :
		       NULL;
}

bool draft_is_generated(struct draft_node *dir, struct span name, bool if_hidden)
{
	auto_unlock pthread_mutex_t *held = lock_hold(&dir->draft->lock);
	const char *generated = draft_generated_name(dir, if_hidden);

	return generated && span_eq(name, span_str(generated));
}

void draft_hide_generated(struct draft_node *dir, bool hide)
{
	auto_unlock pthread_mutex_t *held = lock_hold(&dir->draft->lock);

	dir->generated_hidden = hide;
	dir->hint_lost = false;
}

int draft_metadata(struct draft_node *item, struct buf *ret)
{
	auto_of(plan) struct plan *p = NULL;
	int r = plan_new(item, false, &p);

	if (r < 0)
		return r;
	if (p->kind != PLAN_TREE)
		return fail(-ENOENT, "'%s' is not a tree, and has no _METADATA", item->name);
	return tree_print_metadata(p->tree, p->opts.rich_types, ret);
}
