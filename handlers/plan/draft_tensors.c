/* SPDX-License-Identifier: Apache-2.0 */
/*
 * draft_tensors.c - turns a safetensors file of a draft into a tree.
 *
 * A file that `pytreefs export` wrote, or the view of a mount, has a manifest: it is the tree that
 * it was. Any other is a tree of dicts and arrays by the names of its tensors.
 */
#include "core/base/err.h"
#include "core/base/lock.h"
#include "core/base/log.h"
#include "core/dtype/cast.h"
#include "core/tree/tree_tensors.h"
#include "handlers/plan/draft_plan.h"
#include "handlers/subtree/safetensors_lost.h"

#define NUMBER "scalar" /* type string of a number in the tree of a manifest */

/* ---- by names ---- */

/* Add a tensor below the dicts of its leading keys: "a" and "b" of "a.b.c", with the separator of
 * this mount. */
static int plan_tensor(struct plan *p, struct tree_node *parent, struct draft_node *n, size_t i)
{
	struct span by = span_str(p->item->draft->env->options->safetensors_separator);
	const struct draft_array *a = &n->file->array[i];
	struct span path = a->name;
	const uint8_t *at;
	struct plan_leaf *l;
	int r;

	while (by.n && (at = memmem(path.p, path.n, by.p, by.n))) {
		size_t len = (size_t)(at - path.p);

		r = tree_build_child(&p->build, parent, span_of(path.p, len), false, &parent);
		if (r < 0)
			return r;
		if (parent->kind == TREE_LEAF)
			return fail(-EINVAL, "tensor '%.*s' is inside another one", SPAN_ARG(path));
		parent->kind = TREE_DICT;
		path = span_from(path, len + by.n);
	}
	r = plan_leaf_new(p, parent, n, path, &l);
	if (r < 0 || !l)
		return r;
	l->index = i;
	return plan_take_shape(p, array_stored_type(a), &l->desc);
}

/* ---- by a manifest ---- */

/* Tensors of a file by name. */
struct tensor_name {
	struct span name;
	size_t index;
};

struct grafting {
	struct plan *p;
	struct draft_node *n; /* the file */
	const struct tree *from;
	struct tree_node **made; /* for each node of from */
	struct tensor_name *tensor;
};

static void grafting_release(struct grafting *g)
{
	free(g->made);
	free(g->tensor);
}

static int tensors_by_name(const void *a, const void *b)
{
	return span_cmp(((const struct tensor_name *)a)->name,
			((const struct tensor_name *)b)->name);
}

static void tensors_set_kind(struct plan *p, struct tree_node *t, const struct tree_node *like)
{
	/* Types of namedtuples need all of their members. */
	t->kind = tree_is_sequence(like) ? like->kind : TREE_DICT;
	/* Without rich types, only an empty tuple is recorded as one. */
	if (like->kind == TREE_TUPLE && like->n_children && !plan_rich_off(p))
		p->opts.rich_types = true;
}

static int graft_leaf(struct grafting *g, const struct tree_node *like, struct tree_node *parent)
{
	struct plan *p = g->p;
	struct draft_file *file = g->n->file;
	struct tensor_name key = { like->param, 0 }, *t;
	struct plan_leaf *l;
	struct span impl;
	int r = plan_leaf_new(p, parent, g->n, like->key, &l);

	if (r < 0 || !l)
		return r;
	if (like->value == TREE_VALUE_AGGREGATE)
		r = arena_keep(&p->tree->arena, like->aggregate->s, &l->desc.value);
	if (r < 0)
		return r;
	if (like->value != TREE_VALUE_STORED) {
		l->desc.type = leaf_type_of(like);
		return plan_record(p, l);
	}
	t = bsearch(&key, g->tensor, file->n_arrays, sizeof(key), tensors_by_name);
	if (!t)
		return fail(-EINVAL, "there is no tensor '%.*s'", SPAN_ARG(like->param));
	l->index = t->index;
	r = plan_take_shape(p, array_stored_type(&file->array[t->index]), &l->desc);
	if (r < 0)
		return r;
	if (span_eq(like->value_type, span_str(NUMBER)) && !l->desc.array.rank) {
		l->desc.type = leaf_type_of(like);
		return plan_record(p, l);
	}
	/* The rest of an array is described when all names are known. */
	l->desc.is_jax = span_eq(like->value_type, span_str(JAX_ARRAY));
	return tree_key_impl(g->from, like->param, &impl) ?
		       arena_keep(&p->tree->arena, impl, &l->desc.key_impl) :
		       0;
}

/* Copy the texts of a type, which are those of the tree that will be freed. */
static int keep_type(struct arena *arena, const struct tree_type *type,
		     const struct tree_type **ret)
{
	struct tree_type *own = arena_calloc(arena, 1, sizeof(*own));
	struct span *fields = arena_calloc(arena, type->n_fields + 1, sizeof(*fields));
	int r;

	if (!own || !fields)
		return fail(-ENOMEM, "cannot keep a type");
	own->fields = fields;
	own->n_fields = type->n_fields;
	r = arena_keep(arena, type->module, &own->module);
	r = r < 0 ? r : arena_keep(arena, type->clazz, &own->clazz);
	for (size_t i = 0; i < type->n_fields && r >= 0; i++)
		r = arena_keep(arena, type->fields[i], &fields[i]);
	if (r >= 0)
		*ret = own;
	return r;
}

/* Types of namedtuples and orders of dicts. */
static int set_types(struct grafting *g)
{
	for (uint32_t i = g->from->n_nodes; i-- > 0;) {
		const struct tree_type *type = NULL;
		const struct tree_node *like = g->from->nodes[i];
		int r = like->kind == TREE_LEAF || tree_is_sequence(like) ?
				0 :
				tree_type_like(g->p->tree, like, &type);

		if (r > 0)
			r = keep_type(&g->p->tree->arena, type, &type);
		if (r < 0)
			return r;
		if (type && type->clazz.n)
			plan_node_type(g->p, g->made[i], type, plan_rich_off(g->p));
		else if (type)
			g->made[i]->type = type;
	}
	return 0;
}

static int graft(struct grafting *g, struct tree_node *top)
{
	const struct draft_file *file = g->n->file;
	int r = 0;

	g->made = calloc(g->from->n_nodes, sizeof(*g->made));
	g->tensor = calloc(file->n_arrays + 1, sizeof(*g->tensor));
	if (!g->made || !g->tensor)
		return fail(-ENOMEM, "cannot list %zu tensors", file->n_arrays);
	for (size_t i = 0; i < file->n_arrays; i++)
		g->tensor[i] = (struct tensor_name){ file->array[i].name, i };
	qsort(g->tensor, file->n_arrays, sizeof(*g->tensor), tensors_by_name);
	g->made[0] = top;
	tensors_set_kind(g->p, top, g->from->root);
	for (uint32_t i = 1; i < g->from->n_nodes && r >= 0; i++) {
		const struct tree_node *like = g->from->nodes[i];
		struct tree_node *parent = g->made[like->parent->id];

		if (like->kind == TREE_LEAF) {
			r = graft_leaf(g, like, parent);
			continue;
		}
		r = tree_build_child(&g->p->build, parent, like->key, tree_is_sequence(parent),
				     &g->made[i]);
		if (r < 0)
			return r;
		tensors_set_kind(g->p, g->made[i], like);
	}
	return r < 0 ? r : set_types(g);
}

/* `__metadata__` of a file, its manifest, and the tree of that. */
struct metadata {
	struct json_doc doc;
	struct tree_manifest manifest;
	struct tree *tree; /* NULL: there is no manifest, or the tree is a single leaf */
};

static void tensors_metadata_release(struct metadata *m)
{
	tree_free(m->tree);
	tree_manifest_release(&m->manifest);
	json_release(&m->doc);
}

/* Numbers are stored by their values. Called without the file's lock. */
static int tensors_take_numbers(struct plan *p, struct draft_node *n, size_t first)
{
	int r = 0;

	for (size_t i = first; i < p->n_leaves; i++) {
		struct plan_leaf *l = &p->leaf[i];
		const struct draft_array *a = &n->file->array[l->index];
		uint8_t element[LIMIT_ITEM_BYTES],
			*value = arena_alloc(&p->tree->arena, LIMIT_ITEM_BYTES);

		if (!span_eq(l->node->value_type, span_str(NUMBER)))
			continue;
		if (!value)
			return fail(-ENOMEM, "cannot keep a number");
		r = draft_file_read_into(n->file, a->at, a->item, element);
		if (r < 0)
			return r;
		cast(l->desc.array.dtype, value, a->dtype, element, 1);
		l->desc.value = span_of(value, dtype_info(l->desc.array.dtype)->size);
	}
	return r;
}

/* ---- the file ---- */

/* Read the manifest of the file, if it has one, and the tree of that unless it is a single leaf. */
static int metadata_read(const struct draft_file *file, struct metadata *ret)
{
	auto_of(tree) struct tree *tree = NULL;
	auto_free struct span *names = NULL;
	const struct json *text;
	int r;

	if (!file->st.metadata)
		return 0;
	r = json_parse(span_str(file->st.metadata), "__metadata__", &ret->doc);
	text = r < 0 ? NULL : json_member(ret->doc.root, TREE_MANIFEST_KEY);
	if (!json_is(text, JSON_STRING))
		return r;
	names = calloc(file->n_arrays + 1, sizeof(*names));
	if (!names)
		return fail(-ENOMEM, "cannot list %zu tensors", file->n_arrays);
	for (size_t i = 0; i < file->n_arrays; i++)
		names[i] = file->array[i].name;
	r = tree_manifest_parse(text->s, TREE_MANIFEST_WHAT, &ret->manifest);
	if (r >= 0)
		r = tree_from_manifest(names, file->n_arrays, &ret->manifest, &style_safetensors,
				       ret->doc.root, &tree);
	if (r < 0)
		return r == -EUCLEAN ? fail(-EINVAL, "%s", err_text(r)) : r;
	if (tree->root->kind != TREE_LEAF)
		ret->tree = take(tree);
	return 0;
}

/*
 * Append the members for users as a Python dict, or nothing when a tree of ours has none. Others
 * are the manifest, and with a tree of ours its texts.
 */
static int print_members(const struct metadata *m, struct buf *ret)
{
	for (size_t i = 0; i < m->doc.root->n; i++) {
		const struct json *member = &m->doc.root->items[i];
		const struct json *leaf = json_member_span(m->manifest.leaves, member->name);
		int r;

		if (span_eq(member->name, span_str(TREE_MANIFEST_KEY)))
			continue;
		if (m->tree && (span_eq(member->name, span_str("format")) ||
				(leaf && span_ends(leaf->s, span_str(".txt")))))
			continue;
		r = tensors_add_custom(member, ret);
		if (r < 0)
			return r;
	}
	return m->tree && !ret->n ? 0 : buf_add_str(ret, ret->n ? "}" : "{}");
}

/* Use metadata of the file as metadata of the item, unless an xattr sets it. */
static int tensors_take_metadata(struct plan *p, const struct metadata *m)
{
	const char *custom = m->tree ? m->tree->custom_metadata : NULL;
	auto_buf text = { 0 };
	int r;

	if (!m->doc.root || p->tree->custom_metadata)
		return 0;
	r = custom ? buf_add_str(&text, custom) : print_members(m, &text);
	if (r < 0)
		return r;
	/* A tree of ours has as many as it had. */
	if (m->tree && !text.n)
		return 0;
	if (!buf_str(&text))
		return -ENOMEM;
	p->tree->custom_metadata = arena_str(&p->tree->arena, buf_str(&text));
	return p->tree->custom_metadata ? 0 : -ENOMEM;
}

/* Add the file's tensors below top, the first as leaf `first`. */
static int plan_tensors(struct plan *p, struct tree_node *top, struct draft_node *n, size_t first)
{
	const char *separator = p->item->draft->env->options->safetensors_separator;
	const struct draft_file *file = n->file;
	auto_unlock pthread_mutex_t *held = lock_hold(&n->file->lock);
	__attribute__((cleanup(tensors_metadata_release))) struct metadata m = { 0 };
	__attribute__((cleanup(grafting_release))) struct grafting g = { .p = p, .n = n };
	auto_buf lost = { 0 };
	int r = metadata_read(file, &m);

	if (r < 0)
		return r;
	r = tensors_take_metadata(p, &m);
	if (r < 0)
		return r;
	g.from = m.tree;
	if (m.tree && file->st.n) {
		r = graft(&g, top);
	} else {
		for (size_t i = 0; file->st.n && i < file->n_arrays && r >= 0; i++)
			r = plan_tensor(p, top, n, i);
		if (r >= 0 && p->strict)
			r = safetensors_lost_in(top, &file->st, separator, &lost);
	}
	if (r < 0)
		return r;
	/* The writer may have meant structure that the file cannot express. */
	if (lost.n)
		log_info("'%s' is a tree of dicts and arrays now: %.*s; None and empty containers "
			 "are not in such a file",
			 n->name, SPAN_ARG(buf_span(&lost)));
	if (p->strict && draft_file_is_npy(file))
		return fail(-EINVAL, "it is not a safetensors file");
	/*
	 * Names are in the file's header, which another thread may overwrite unless the draft is
	 * being committed.
	 */
	for (size_t i = first; i < p->n_leaves && r >= 0; i++)
		if (!p->leaf[i].desc.type)
			r = plan_array(p, &p->leaf[i], file->array[p->leaf[i].index].name);
	return r;
}

int plan_safetensors(struct plan *p, struct tree_node *parent, struct draft_node *n)
{
	struct tree_node *top = parent;
	size_t first = p->n_leaves;
	auto_buf key = { 0 };
	int r = p->strict ? draft_file_seal(n->file) : 0;

	if (r < 0)
		return r;
	/* The tensors of a file that is an item are at the top of the item. */
	if (n != p->item) {
		r = plan_key(p, parent, n, plan_stem(n), true, &key);
		if (r < 0)
			return r;
		r = tree_build_child(&p->build, parent, buf_span(&key), false, &top);
		if (r < 0)
			return r;
		if (r == 0)
			return p->strict ? fail(-EINVAL, "there is another '%.*s'",
						SPAN_ARG(buf_span(&key))) :
					   0;
		top->kind = TREE_DICT;
	}
	r = plan_tensors(p, top, n, first);
	if (r >= 0 && p->strict)
		r = tensors_take_numbers(p, n, first);
	return r < 0 ? r : 1;
}
