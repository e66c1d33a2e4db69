/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lib_tree.c - makes the table of a tree's nodes, and the description of one name.
 */
#include <string.h>

#include "core/base/array.h"
#include "handlers/format/value.h"
#include "handlers/leaf/leaf.h"
#include "handlers/namespace/node_parts.h"
#include "handlers/namespace/node_tree.h"
#include "handlers/subtree/leaf_table.h"
#include "tools/lib/lib.h"

struct pytreefs_tree {
	struct arena arena; /* memory of nodes, except data in the following tables */
	struct pytreefs_node *node;
	size_t n;
	struct subtree subtree;   /* keeps the items open */
	struct leaf_table leaves; /* of subtree */
};

void pytreefs_tree_free(struct pytreefs_tree *tree)
{
	if (!tree)
		return;
	leaf_table_release(&tree->leaves);
	subtree_release(&tree->subtree);
	arena_release(&tree->arena);
	free(tree);
}
DEFINE_AUTO(tree_table, struct pytreefs_tree, pytreefs_tree_free);

size_t pytreefs_tree_count(const struct pytreefs_tree *tree)
{
	return tree->n;
}

const struct pytreefs_node *pytreefs_tree_node(const struct pytreefs_tree *tree, size_t i)
{
	return i < tree->n ? &tree->node[i] : NULL;
}

static int lib_tree_no_memory(void)
{
	return fail(-ENOMEM, "cannot describe the tree");
}

/* ---- names and keys ---- */

static int set_path(struct pytreefs_tree *t, struct pytreefs_node *to, const char *parent,
		    struct span name)
{
	size_t n = strlen(parent);
	char *path = arena_alloc(&t->arena, n + name.n + 2);

	if (!path)
		return lib_tree_no_memory();
	memcpy(path, parent, n);
	if (n && name.n)
		path[n++] = '/';
	if (name.n)
		memcpy(path + n, name.p, name.n);
	path[n + name.n] = '\0';
	to->path = path;
	to->name = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
	return 0;
}

static int set_key(struct pytreefs_tree *t, struct pytreefs_node *to, struct span key,
		   enum pytreefs_key_kind kind)
{
	/* arena_dup() appends a NUL. */
	to->key = (const char *)arena_dup(&t->arena, key);
	to->key_size = key.n;
	to->key_kind = kind;
	return to->key ? 0 : lib_tree_no_memory();
}

static int lib_tree_set_text(struct pytreefs_tree *t, struct pytreefs_node *to, struct span text)
{
	to->text = (const char *)arena_dup(&t->arena, text);
	to->text_size = text.n;
	return to->text ? 0 : lib_tree_no_memory();
}

static int set_type(struct pytreefs_tree *t, struct pytreefs_node *to, const struct tree_node *from)
{
	auto_buf text = { 0 };

	to->recorded = (const char *)arena_dup(&t->arena, from->value_type);
	if (!to->recorded)
		return lib_tree_no_memory();
	if (to->kind != PYTREEFS_NAMEDTUPLE && to->kind != PYTREEFS_DICT)
		return 0;
	if (tree_namedtuple_json(from, &text) < 0) {
		err_clear();
		return 0;
	}
	return lib_tree_set_text(t, to, buf_span(&text));
}

/* ---- leaves ---- */

static void set_dtype(struct pytreefs_node *to, enum dtype dtype)
{
	to->dtype = dtype_info(dtype)->name;
	to->typestr = dtype_info(dtype)->npy;
	to->item_size = dtype_info(dtype)->size;
}

/* Describe a node by its error; other nodes are not affected. */
static int set_broken(struct pytreefs_tree *t, struct pytreefs_node *to, int code, const char *why)
{
	to->kind = PYTREEFS_UNKNOWN;
	to->error = code ? code : -EOPNOTSUPP;
	return lib_tree_set_text(t, to, span_str(why ? why : "it cannot be described"));
}

static int lib_tree_set_leaf(struct pytreefs_tree *t, struct pytreefs_node *to,
			     const struct leaf_info *info)
{
	if (to->kind == PYTREEFS_NONE || to->kind == PYTREEFS_PLACEHOLDER)
		return 0;
	to->bytes = info->bytes;
	to->stored = info->stored;
	switch (info->kind) {
	case VALUE_ARRAY:
		to->kind = info->is_scalar ? PYTREEFS_SCALAR : PYTREEFS_ARRAY;
		set_dtype(to, info->array.dtype);
		to->ndim = info->array.rank;
		to->shape = info->array.shape;
		to->chunk = info->chunk;
		return info->text.p ? lib_tree_set_text(t, to, info->text) : 0;
	case VALUE_TEXT:
	case VALUE_FILE:
		to->kind = info->kind == VALUE_TEXT ? PYTREEFS_STRING : PYTREEFS_PLUGIN;
		return info->text.p ? lib_tree_set_text(t, to, info->text) : 0;
	case VALUE_NONE:
		to->kind = PYTREEFS_NONE;
		return 0;
	case VALUE_UNKNOWN:
		break;
	}
	return set_broken(t, to, info->error, info->why);
}

/* ---- the table ---- */

static const struct pytreefs_node blank = {
	.path = "", .name = "", .key = "", .parent = SIZE_MAX, .recorded = ""
};

static struct pytreefs_node *lib_tree_add_node(struct pytreefs_tree *t, size_t parent)
{
	struct pytreefs_node *to = &t->node[t->n++];

	*to = blank;
	to->parent = parent;
	if (parent != SIZE_MAX)
		t->node[parent].n_children++;
	return to;
}

/* Add the nodes of one part; *leaf is the position in the table of leaves, which may lack some. */
static int lib_tree_add_tree(struct pytreefs_tree *t, const struct subtree_part *p, size_t above,
			     size_t *leaf)
{
	const struct tree *tree = p->item->tree;
	uint64_t version = lib_version(&p->item->id);
	uint32_t top = p->tree->id, end = subtree_end(p->tree);
	size_t base = t->n;
	int r = 0;

	for (uint32_t i = top; i < end && r >= 0; i++) {
		const struct tree_node *from = tree->nodes[i];
		size_t parent = i == top ? above : base + (from->parent->id - top);
		struct pytreefs_node *to = lib_tree_add_node(t, parent);

		to->kind = lib_kind_of_tree(from);
		to->version = version;
		if (i > top)
			r = set_path(t, to, t->node[parent].path, from->name);
		else
			r = set_path(t, to, p->path,
				     from->kind == TREE_LEAF && !from->parent ? from->name :
										span_str(""));
		if (r < 0)
			return r;
		if (i > top)
			r = set_key(t, to, from->key,
				    from->key_is_index ? PYTREEFS_KEY_INDEX : PYTREEFS_KEY_NAME);
		else if (above != SIZE_MAX)
			r = set_key(t, to, span_str(p->path), PYTREEFS_KEY_NAME);
		if (r < 0)
			return r;
		r = set_type(t, to, from);
		if (r < 0)
			return r;
		if (*leaf < t->leaves.n && t->leaves.leaf[*leaf].leaf == from)
			r = lib_tree_set_leaf(t, to, &t->leaves.leaf[(*leaf)++]);
	}
	return r;
}

static int lib_tree_add_part(struct pytreefs_tree *t, const struct subtree_part *p, size_t above,
			     size_t *leaf)
{
	struct pytreefs_node *to;
	int r;

	if (p->kind == PART_TREE)
		return lib_tree_add_tree(t, p, above, leaf);
	to = lib_tree_add_node(t, above);
	to->kind = PYTREEFS_OPAQUE;
	to->version = lib_version(&p->id);
	r = set_path(t, to, p->path, span_str(""));
	if (r < 0)
		return r;
	r = set_key(t, to, span_str(p->path), PYTREEFS_KEY_NAME);
	if (r < 0)
		return r;
	if (p->kind == PART_BROKEN)
		r = set_broken(t, to, p->note->code, p->note->text);
	return r;
}

/* The leaves that are described; NULL: all. */
struct choice {
	const size_t *index; /* of nodes of the result, increasing */
	size_t n;
};

static size_t n_nodes(const struct subtree_part *p)
{
	return p->kind == PART_TREE ? subtree_end(p->tree) - p->tree->id : 1;
}

/* List the chosen leaves; base: the index of the first node of a part. */
static size_t list_chosen(const struct subtree *st, const struct choice *c, size_t base,
			  struct subtree_place *ret)
{
	const size_t *index = c->index, *end = index + c->n;
	const struct subtree_part *part = st->part;
	struct subtree_place at = { 0 };
	size_t n = 0;

	while (index < end && subtree_next(st, &at)) {
		size_t i;

		for (; part < at.part; part++)
			base += n_nodes(part);
		i = base + at.node->id - at.part->tree->id;
		while (index < end && *index < i)
			index++;
		if (index < end && *index == i && at.node->kind == TREE_LEAF)
			ret[n++] = at;
	}
	return n;
}

static int lib_tree_fill(struct pytreefs_tree *t, struct node *n, unsigned flags,
			 const struct choice *choice)
{
	unsigned table =
		(flags & PYTREEFS_TREE_VALUES ? LEAF_TABLE_TEXTS | LEAF_TABLE_SCALARS : 0) |
		(flags & PYTREEFS_TREE_STORED ? LEAF_TABLE_STORED : 0);
	size_t count = 1, leaf = 0, above = SIZE_MAX;
	auto_free struct subtree_place *place = NULL;
	int r = node_open_subtree(n, &t->subtree);

	if (r < 0)
		return r;
	place = choice ? calloc(choice->n + 1, sizeof(*place)) : NULL;
	if (choice && !place)
		return lib_tree_no_memory();
	r = leaf_table_make(&t->subtree, table, place,
			    place ? list_chosen(&t->subtree, choice, n->ops == &node_step_ops,
						place) :
				    LEAF_TABLE_ALL,
			    &t->leaves);
	if (r < 0)
		return r;
	for (size_t i = 0; i < t->subtree.n; i++)
		count += n_nodes(&t->subtree.part[i]);
	t->node = arena_calloc(&t->arena, count, sizeof(*t->node));
	if (!t->node)
		return lib_tree_no_memory();
	if (n->ops == &node_step_ops) {
		lib_tree_add_node(t, SIZE_MAX)->kind = PYTREEFS_STEP;
		t->node[0].version = lib_version_of(n);
		above = 0;
	}
	for (size_t i = 0; i < t->subtree.n && r >= 0; i++)
		r = lib_tree_add_part(t, &t->subtree.part[i], above, &leaf);
	if (r < 0)
		return r;
	/* The path of a leaf that was requested by name is empty. */
	if (n->ops == &node_leaf_ops)
		t->node[0].path = t->node[0].name = "";
	return r;
}

static int lib_tree_of(struct pytreefs *ck, const char *name, unsigned flags,
		       const struct choice *choice, struct pytreefs_tree **ret)
{
	auto_of(tree_table) struct pytreefs_tree *t = calloc(1, sizeof(*t));
	auto_node *n = NULL;
	int r = t ? lib_node(ck, name, &n) : lib_tree_no_memory();

	if (r < 0)
		return r;
	t->arena.metered = true;
	r = lib_tree_fill(t, n, flags, choice);
	if (r < 0)
		return r;
	*ret = take(t);
	return 0;
}

int pytreefs_tree(struct pytreefs *ck, const char *name, unsigned flags, struct pytreefs_tree **ret)
{
	int r = lib_begin(ck, name);

	return (int)lib_end(r < 0 ? r : lib_tree_of(ck, name, flags, NULL, ret));
}

int pytreefs_tree_leaves(struct pytreefs *ck, const char *name, unsigned flags, const size_t *index,
			 size_t n, struct pytreefs_tree **ret)
{
	struct choice choice = { .index = index, .n = n };
	int r = lib_begin(ck, name);

	return (int)lib_end(r < 0 ? r : lib_tree_of(ck, name, flags, &choice, ret));
}

/* ---- one name ---- */

static int lib_tree_describe_array(struct pytreefs_tree *t, const struct zarr *z,
				   const struct zarr_view *v, struct pytreefs_node *to)
{
	uint64_t *shape = arena_calloc(&t->arena, LIMIT_RANK, sizeof(*shape)),
		 *chunk = arena_calloc(&t->arena, LIMIT_RANK, sizeof(*chunk));

	if (!shape || !chunk)
		return lib_tree_no_memory();
	set_dtype(to, v->dtype);
	to->ndim = zarr_view_result(v, shape);
	to->bytes = v->bytes;
	for (unsigned i = 0, k = 0; i < v->rank; i++)
		if (!v->axis[i].drop)
			chunk[k++] = z->leaf_chunk[i];
	to->shape = shape;
	to->chunk = chunk;
	return 0;
}

static int describe_leaf(struct pytreefs_tree *t, struct node_leaf *l, struct pytreefs_node *to)
{
	auto_value v = { 0 };
	struct zarr_view view;
	int r = set_key(t, to, l->tree->key,
			!l->tree->parent      ? PYTREEFS_KEY_NONE :
			l->tree->key_is_index ? PYTREEFS_KEY_INDEX :
						PYTREEFS_KEY_NAME);

	to->kind = lib_kind_of_tree(l->tree);
	if (r < 0)
		return r;
	r = set_type(t, to, l->tree);
	if (r < 0)
		return r;
	if (to->kind == PYTREEFS_ARRAY)
		r = node_leaf_value(l, &v, &view);
	if (r < 0 || to->kind != PYTREEFS_ARRAY)
		return r;
	if (v.kind == VALUE_ARRAY) {
		/* A view of a number is an array of rank 0. */
		to->kind = v.is_scalar && node_leaf_is_whole(l) ? PYTREEFS_SCALAR : PYTREEFS_ARRAY;
		r = lib_tree_describe_array(t, v.array, &view, to);
	} else if (v.kind != VALUE_NONE) {
		to->kind = v.kind == VALUE_TEXT ? PYTREEFS_STRING : PYTREEFS_PLUGIN;
		to->bytes = v.text.n;
		r = lib_tree_set_text(t, to, buf_span(&v.text));
	} else {
		to->kind = PYTREEFS_NONE;
	}
	return r < 0 ? r : leaf_stored(l->item, l->tree, &to->stored);
}

static int lib_tree_describe(struct pytreefs *ck, const char *name, struct pytreefs_tree **ret)
{
	auto_of(tree_table) struct pytreefs_tree *t = calloc(1, sizeof(*t));
	auto_node *n = NULL;
	struct pytreefs_node *to;
	struct stat st;
	int r = t ? lib_node(ck, name, &n) : lib_tree_no_memory();

	if (r < 0)
		return r;
	t->node = to = arena_calloc(&t->arena, 1, sizeof(*to));
	if (!to)
		return lib_tree_no_memory();
	lib_tree_add_node(t, SIZE_MAX);
	to->version = lib_version_of(n);
	r = set_path(t, to, "", span_str(name));
	if (r < 0)
		return r;
	if (n->ops == &node_leaf_ops) {
		r = describe_leaf(t, container_of(n, struct node_leaf, node), to);
	} else if (n->ops == &node_dir_ops) {
		const struct tree_node *dir = container_of(n, struct node_dir, node)->tree;

		to->n_children = dir->kind == TREE_LEAF ? 1 : dir->n_children;
		to->kind = lib_kind_of_tree(dir);
		r = set_type(t, to, dir);
	} else {
		to->kind = lib_kind_of(n);
		if (to->kind == PYTREEFS_FILE)
			r = node_stat(n, &st);
		if (to->kind == PYTREEFS_FILE && r >= 0)
			to->bytes = (uint64_t)st.st_size;
	}
	if (r < 0)
		return r;
	*ret = take(t);
	return 0;
}

int pytreefs_describe(struct pytreefs *ck, const char *name, struct pytreefs_tree **ret)
{
	int r = lib_begin(ck, name);

	return (int)lib_end(r < 0 ? r : lib_tree_describe(ck, name, ret));
}
