/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tree_tensors.c - build the tree of a safetensors file, from its manifest or its names.
 *
 * Entries are added in the order of their paths; sequences and dicts are then put in their own
 * order.
 */
#include "core/tree/tree_tensors.h"

#include "core/base/err.h"
#include "core/tree/name.h"
#include "core/tree/tree_build.h"

#define MANIFEST "the manifest of the tree"

/* One leaf or container, with its path of names. */
struct entry {
	struct span path;
	struct span tensor; /* its name in the file */
	struct span text;   /* value of a string */
	bool is_container;
};

struct making {
	struct tree_build build;
	const struct json *manifest, *kinds, *leaves, *marks;
	const struct json *texts; /* the values of strings, by key */
	bool is_path;             /* the names of tensors are paths without extensions */
	bool is_step;             /* the first names are those of items, which are not escaped */
	struct entry *entry;
	size_t n;
};

static void tree_tensors_release(struct making *m)
{
	free(m->entry);
	tree_build_release(&m->build);
}
#define auto_making __attribute__((cleanup(tree_tensors_release))) struct making

/* Split the first name off *path. */
static struct span next_name(struct span *path)
{
	const uint8_t *slash = memchr(path->p, '/', path->n);
	struct span name = span_of(path->p, slash ? (size_t)(slash - path->p) : path->n);

	*path = span_from(*path, name.n + (slash != NULL));
	return name;
}

static struct span without_extension(struct span name)
{
	name.n -= strlen(name_ext_text(name_ext_of(name)));
	return name;
}

static int tree_tensors_by_path(const void *a, const void *b)
{
	return span_cmp(((const struct entry *)a)->path, ((const struct entry *)b)->path);
}

/* ---- one entry ---- */

/* The key of a name. If the name is shortened, the manifest has the key. */
static int key_of(const struct making *m, struct span path, struct span stem, enum name_use use,
		  struct buf *ret)
{
	const struct json *key = json_member(json_member_span(m->marks, path), "key");
	int r;

	if ((key || name_is_hashed(stem)) && (!json_is(key, JSON_ARRAY) || !key->n ||
					      !json_is(&key->items[key->n - 1], JSON_STRING)))
		return fail(-EUCLEAN, MANIFEST ": '%.*s' has no key", SPAN_ARG(path));
	if (name_is_hashed(stem))
		return buf_add_span(ret, key->items[key->n - 1].s);
	r = name_unescape(stem, use, NAME_OURS_METADATA, ret);
	if (r >= 0 && !utf8_valid(buf_span(ret)))
		r = -EINVAL;
	return r == -EINVAL ?
		       fail(-EUCLEAN, MANIFEST ": '%.*s' is not a path of names", SPAN_ARG(path)) :
		       r;
}

static int kind_of(const struct making *m, struct span path, enum tree_kind *ret)
{
	const struct json *kind = json_member_span(m->kinds, path);

	*ret = TREE_DICT;
	while (kind && *ret < TREE_LEAF && !span_eq(kind->s, span_str(tree_kind_text(*ret))))
		++*ret;
	return *ret < TREE_LEAF ? 0 :
				  fail(-EUCLEAN, MANIFEST ": '%.*s' is of the unknown kind '%.*s'",
				       SPAN_ARG(path), SPAN_ARG(kind->s));
}

/* Set the kind of a container, and the type of a namedtuple or the order of a dict. */
static int set_kind(const struct making *m, struct span path, struct tree_node *t)
{
	const struct json *mark = json_member(json_member_span(m->marks, path), "namedtuple"),
			  *fields = json_member(mark, "fields");
	struct arena *arena = &m->build.tree->arena;
	struct span module = { 0 }, clazz = { 0 }, *list;
	struct tree_type *type;
	int r;

	r = kind_of(m, path, &t->kind);
	if (r < 0)
		return r;
	if (t->type || !json_is(fields, JSON_ARRAY) ||
	    (t->kind != TREE_DICT && t->kind != TREE_NAMEDTUPLE))
		return 0;
	type = arena_calloc(arena, 1, sizeof(*type));
	list = arena_calloc(arena, fields->n + 1, sizeof(*list));
	if (!type || !list)
		return fail(-ENOMEM, "cannot build a tree: not enough memory");
	r = json_get_str(mark, "module", MANIFEST, &module);
	if (r < 0)
		return r;
	r = json_get_str(mark, "clazz", MANIFEST, &clazz);
	for (size_t i = 0; i < fields->n && r >= 0; i++)
		r = json_is(&fields->items[i], JSON_STRING) ?
			    arena_keep(arena, fields->items[i].s, &list[i]) :
			    fail(-EUCLEAN, MANIFEST ": a field is not a text");
	if (r < 0)
		return r;
	type->fields = list;
	type->n_fields = fields->n;
	t->type = type;
	r = arena_keep(arena, module, &type->module);
	return r < 0 ? r : arena_keep(arena, clazz, &type->clazz);
}

static bool is_sequence(const struct tree_node *t)
{
	return t->kind == TREE_LIST || t->kind == TREE_TUPLE;
}

static int set_text(struct tree *tree, struct tree_node *t, struct span text)
{
	struct aggregate *a = arena_alloc(&tree->arena, sizeof(*a));

	if (!a)
		return fail(-ENOMEM, "cannot build a tree: not enough memory");
	*a = (struct aggregate){ .kind = AGGREGATE_STRING };
	t->value_type = span_str("string");
	t->value = TREE_VALUE_AGGREGATE;
	t->aggregate = a;
	return arena_keep(&tree->arena, text, &a->s);
}

/* There is room for one of each mark. */
static int add_key_impl(struct making *m, const struct json *impl, struct span param)
{
	struct tree *tree = m->build.tree;
	struct tree_key_impl *k = &tree->key_impl[tree->n_key_impls];

	if (!impl)
		return 0;
	if (!json_is(impl, JSON_STRING))
		return fail(-EUCLEAN, MANIFEST ": a prng_impl is not a text");
	k->param = param;
	tree->n_key_impls++;
	return arena_keep(&tree->arena, impl->s, &k->impl);
}

static int set_leaf(struct making *m, const struct entry *e, struct tree_node *t)
{
	const struct json *marks = json_member_span(m->marks, e->path),
			  *type = json_member(marks, "typestr"), *impl = NULL;
	int r;

	t->kind = TREE_LEAF;
	switch (name_ext_of(e->path)) {
	case NAME_EXT_NULL:
		t->value_type = span_str("None");
		t->value = TREE_VALUE_NONE;
		return 0;
	case NAME_EXT_TXT:
		return set_text(m->build.tree, t, e->text);
	case NAME_EXT_JSON:
		t->value_type = span_str("scalar");
		break;
	default:
		impl = json_member(marks, "prng_impl");
		t->value_type = json_is(type, JSON_STRING) &&
						span_eq(type->s, span_str("jax.Array")) ?
					span_str("jax.Array") :
					span_str("np.ndarray");
		break;
	}
	r = arena_keep(&m->build.tree->arena, e->tensor, &t->param);
	return r < 0 ? r : add_key_impl(m, impl, t->param);
}

/* Enter the child container of that name; a node that exists must be one. */
static int tree_tensors_enter(struct making *m, struct span path, struct tree_node *parent,
			      struct span name, struct tree_node **ret)
{
	auto_buf key = { .metered = true };
	int r = m->is_step && !parent->parent ? buf_add_span(&key, name) :
						key_of(m, path, name, NAME_CONTAINER, &key);

	if (r < 0)
		return r;
	r = tree_build_child(&m->build, parent, buf_span(&key), is_sequence(parent), ret);
	if (r < 0)
		return r;
	if (r == 0 && (*ret)->kind == TREE_LEAF)
		return fail(-EUCLEAN, MANIFEST ": '%.*s' is a leaf and a directory",
			    SPAN_ARG(path));
	return set_kind(m, path, *ret);
}

static int tree_tensors_add_entry(struct making *m, const struct entry *e)
{
	struct tree_node *t = m->build.tree->root;
	struct span rest = e->path, name;
	auto_buf key = { .metered = true };
	unsigned depth = 0;
	int r;

	while (rest.n) {
		name = next_name(&rest);
		if (++depth >= LIMIT_TREE_DEPTH)
			return fail(-EUCLEAN, MANIFEST ": '%.*s' has more than %d names",
				    SPAN_ARG(e->path), LIMIT_TREE_DEPTH);
		if (!rest.n && !e->is_container)
			break;
		r = tree_tensors_enter(m, span_of(e->path.p, (size_t)(name.p + name.n - e->path.p)),
				       t, name, &t);
		if (r < 0)
			return r;
	}
	if (e->is_container)
		return 0;
	r = key_of(m, e->path, without_extension(name), NAME_LEAF, &key);
	if (r < 0)
		return r;
	/* No key at all: the tree is this single leaf. */
	if (!key.n && m->n == 1)
		return set_leaf(m, e, t);
	r = tree_build_child(&m->build, t, buf_span(&key), is_sequence(t), &t);
	if (r == 0)
		return fail(-EUCLEAN, MANIFEST ": two leaves are called '%.*s'", SPAN_ARG(e->path));
	return r < 0 ? r : set_leaf(m, e, t);
}

/* ---- all entries ---- */

static bool is_path(struct span s)
{
	return s.n && s.p && s.p[0] != '/' && s.p[s.n - 1] != '/' && !memmem(s.p, s.n, "//", 2) &&
	       !memchr(s.p, '\0', s.n);
}

static int tree_tensors_add_path(struct making *m, struct entry e)
{
	if (!is_path(e.path))
		return fail(-EUCLEAN, MANIFEST ": '%.*s' is not a path of names", SPAN_ARG(e.path));
	m->entry[m->n++] = e;
	return 0;
}

/* The place of a tensor that the manifest does not mention: the names of its keys, in the arena. */
static int default_path(struct making *m, struct span tensor, struct span *ret)
{
	auto_buf path = { .metered = true };
	struct span rest = m->is_path ? span_of(NULL, 0) : tensor;
	int r = m->is_path ? buf_addf(&path, "%.*s.npy", SPAN_ARG(tensor)) : 0;

	if (!tensor.n && !m->is_path)
		r = buf_add_str(&path, "%.npy");
	while (rest.n && r >= 0) {
		const uint8_t *dot = memchr(rest.p, '.', rest.n);
		struct span key = span_of(rest.p, dot ? (size_t)(dot - rest.p) : rest.n);

		r = name_escape(key, dot ? NAME_CONTAINER : NAME_LEAF,
				dot ? NAME_EXT_NONE : NAME_EXT_NPY, path.n ? 0 : NAME_OURS_METADATA,
				&path);
		if (r < 0 || !dot)
			break;
		r = buf_add_byte(&path, '/');
		if (r < 0)
			return r;
		rest = span_from(rest, key.n + 1);
		if (!rest.n)
			r = name_escape(rest, NAME_LEAF, NAME_EXT_NPY, 0, &path);
	}
	return r < 0 ? r : arena_keep(&m->build.tree->arena, buf_span(&path), ret);
}

static int add_tensors(struct making *m, const struct span *names, size_t n)
{
	int r = 0;

	for (size_t i = 0; i < n && r >= 0; i++) {
		const struct json *at = json_member_span(m->leaves, names[i]);
		struct entry e = { .tensor = names[i] };

		if (json_is(at, JSON_STRING))
			e.path = at->s;
		else
			r = default_path(m, names[i], &e.path);
		if (r < 0)
			return r;
		if (span_ends(e.path, span_str(".null")) || span_ends(e.path, span_str(".txt")))
			return fail(-EUCLEAN, MANIFEST ": tensor '%.*s' is called '%.*s'",
				    SPAN_ARG(names[i]), SPAN_ARG(e.path));
		r = tree_tensors_add_path(m, e);
	}
	return r;
}

/* Add containers, None and texts. */
static int add_others(struct making *m)
{
	int r = 0;

	for (size_t i = 0; m->leaves && i < m->leaves->n && r >= 0; i++) {
		const struct json *leaf = &m->leaves->items[i],
				  *text = json_member_span(m->texts, leaf->name);
		struct entry e = { .path = leaf->s };

		if (!json_is(leaf, JSON_STRING))
			r = fail(-EUCLEAN, MANIFEST ": 'leaves' holds something else than texts");
		else if (span_ends(leaf->s, span_str(".null")))
			r = tree_tensors_add_path(m, e);
		else if (span_ends(leaf->s, span_str(".txt")) && json_is(text, JSON_STRING)) {
			e.text = text->s;
			r = tree_tensors_add_path(m, e);
		}
	}
	for (size_t i = 0; m->kinds && i < m->kinds->n && r >= 0; i++)
		if (m->kinds->items[i].name.n)
			r = tree_tensors_add_path(m,
						  (struct entry){ .path = m->kinds->items[i].name,
								  .is_container = true });
	return r;
}

static int set_custom(struct making *m)
{
	const struct json *custom = json_member(json_member(m->manifest, "custom"), "");
	auto_buf text = { .metered = true };
	struct tree *tree = m->build.tree;
	int r;

	if (!json_is(custom, JSON_OBJECT))
		return 0;
	r = json_print(&text, custom, JSON_PYTHON);
	if (r < 0)
		return r;
	if (buf_str(&text))
		tree->custom_metadata = arena_str(&tree->arena, buf_str(&text));
	return tree->custom_metadata ? 0 : -ENOMEM;
}

static int make_tree(struct making *m, const struct span *names, size_t n)
{
	struct tree_node *root;
	int r = tree_attach(m->build.tree, NULL, span_of(NULL, 0), false, &root);

	if (r < 0)
		return r;
	r = set_kind(m, span_of(NULL, 0), root);
	if (r < 0)
		return r;
	m->entry = calloc(n + 1 + (m->leaves ? m->leaves->n : 0) + (m->kinds ? m->kinds->n : 0),
			  sizeof(*m->entry));
	r = m->entry ? add_tensors(m, names, n) :
		       fail(-ENOMEM, "cannot build a tree: not enough memory");
	if (r < 0)
		return r;
	r = add_others(m);
	if (r < 0)
		return r;
	qsort(m->entry, m->n, sizeof(*m->entry), tree_tensors_by_path);
	for (size_t i = 0; i < m->n && r >= 0; i++)
		r = tree_tensors_add_entry(m, &m->entry[i]);
	if (r < 0)
		return r;
	r = set_custom(m);
	if (r < 0)
		return r;
	r = tree_sort(m->build.tree);
	return r < 0 ? r : tree_finish_as(m->build.tree, -EUCLEAN);
}

/* ---- what nodes have no place for ---- */

static int add_mark(struct tree *tree, struct tree_mark *list, const struct json *value)
{
	struct tree_mark *m = &list[tree->n_marks];
	auto_buf text = { .metered = true };
	int r = json_print(&text, value, JSON_PYTHON);

	if (r < 0 || !buf_str(&text))
		return r < 0 ? r : -ENOMEM;
	*m = (struct tree_mark){ (const char *)arena_dup(&tree->arena, value->name),
				 "custom_metadata", arena_str(&tree->arena, buf_str(&text)) };
	if (!m->path || !m->value)
		return fail(-ENOMEM, "cannot build a tree: not enough memory");
	tree->n_marks++;
	return 0;
}

/* Keep the custom metadata of the items of a step. */
static int keep_marks(struct making *m)
{
	const struct json *custom = json_member(m->manifest, "custom");
	struct tree *tree = m->build.tree;
	struct tree_mark *list =
		arena_calloc(&tree->arena, (custom ? custom->n : 0) + 1, sizeof(*list));
	int r = list ? 0 : fail(-ENOMEM, "cannot build a tree: not enough memory");

	for (size_t i = 0; custom && i < custom->n && r >= 0; i++)
		if (custom->items[i].name.n)
			r = add_mark(tree, list, &custom->items[i]);
	tree->marks = list;
	return r;
}

static int key_impl_by_param(const void *a, const void *b)
{
	return span_cmp(((const struct tree_key_impl *)a)->param,
			((const struct tree_key_impl *)b)->param);
}

int tree_key_impl(const struct tree *tree, struct span param, struct span *ret)
{
	const struct tree_key_impl key = { .param = param }, *found = NULL;

	if (tree->n_key_impls)
		found = bsearch(&key, tree->key_impl, tree->n_key_impls, sizeof(key),
				key_impl_by_param);
	if (!found)
		return 0;
	*ret = found->impl;
	return 1;
}

/* ---- manifests ---- */

int tree_manifest_check(const struct json *manifest, const char *what, bool *ret_is_step)
{
	static const char *const objects[] = { "kinds", "leaves", "dtypes",
					       "texts", "marks",  "custom" };
	const struct json *o;
	int r;

	if (!json_is(manifest, JSON_OBJECT))
		return fail(-EUCLEAN, "%s: '%s' is not an object", what, TREE_MANIFEST_KEY);
	r = json_get_bool(manifest, "step", what, ret_is_step);
	for (size_t i = 0; i < ARRAY_LEN(objects) && r >= 0; i++) {
		r = json_get_object(manifest, objects[i], what, &o);
		for (size_t k = 0; r == 1 && k < o->n; k++)
			if (o->items[k].kind != (i < 4 ? JSON_STRING : JSON_OBJECT))
				return fail(-EUCLEAN, "%s: '%s' holds something else than %s", what,
					    objects[i], i < 4 ? "texts" : "objects");
	}
	return MIN(r, 0);
}

/* Build the tree of m->manifest, which is checked here. */
static int from_manifest(struct making *m, const struct span *names, size_t n, struct tree **ret)
{
	auto_of(tree) struct tree *tree = NULL;
	int r;

	r = tree_manifest_check(m->manifest, MANIFEST, &m->is_step);
	if (r < 0)
		return r;
	m->kinds = json_member(m->manifest, "kinds");
	m->leaves = json_member(m->manifest, "leaves");
	m->marks = json_member(m->manifest, "marks");
	r = tree_new(&tree);
	if (r < 0)
		return r;
	m->build.tree = tree;
	tree->key_impl = arena_calloc(&tree->arena, (m->marks ? m->marks->n : 0) + 1,
				      sizeof(*tree->key_impl));
	if (!tree->key_impl)
		return fail(-ENOMEM, "cannot build a tree: not enough memory");
	r = make_tree(m, names, n);
	if (r < 0)
		return r;
	qsort(tree->key_impl, tree->n_key_impls, sizeof(*tree->key_impl), key_impl_by_param);
	r = keep_marks(m);
	if (r < 0)
		return r;
	tree->has_manifest = true;
	tree->is_step = m->is_step;
	*ret = take(tree);
	return 0;
}

int tree_from_tensors(const struct span *names, size_t n, const struct json *metadata,
		      const char *separator, struct tree **ret)
{
	const struct json *text = json_member(metadata, TREE_MANIFEST_KEY);
	auto_making m = { .texts = metadata };
	auto_json doc = { 0 };
	int r;

	if (!json_is(text, JSON_STRING) && !n)
		return tree_from_hierarchy(NULL, 0, NULL, 0, ret);
	if (!json_is(text, JSON_STRING))
		return tree_from_names_split(names, NULL, n, separator, ret);
	r = json_parse(text->s, MANIFEST, &doc);
	m.manifest = doc.root;
	return r < 0 ? r : from_manifest(&m, names, n, ret);
}

int tree_from_group(const struct span *names, size_t n, const struct json *manifest,
		    struct tree **ret)
{
	auto_making m = { .manifest = manifest,
			  .texts = json_member(manifest, "texts"),
			  .is_path = true };

	return from_manifest(&m, names, n, ret);
}

static bool is_own(struct span name)
{
	return span_eq(name, span_str("format")) || span_eq(name, span_str(TREE_MANIFEST_KEY));
}

static int add_custom(const struct json *m, struct buf *ret)
{
	int r = buf_add_str(ret, ret->n ? ", " : "{");

	if (r < 0)
		return r;
	r = json_put_name(ret, m->name, JSON_PYTHON);
	return r < 0 ? r : json_print(ret, m, JSON_PYTHON);
}

int tensors_custom(const char *const *metadata, size_t n, struct buf *ret)
{
	struct json_doc *doc = calloc(n + 1, sizeof(*doc));
	int r = doc ? 0 : fail(-ENOMEM, "cannot read __metadata__");

	for (size_t i = 0; i < n && r >= 0; i++) {
		r = metadata[i] ? json_parse(span_str(metadata[i]), "__metadata__", &doc[i]) : 0;
		for (size_t k = 0; r >= 0 && doc[i].root && k < doc[i].root->n; k++) {
			const struct json *m = &doc[i].root->items[k];
			bool is_new = !is_own(m->name);

			for (size_t j = 0; j < i && is_new; j++)
				is_new = !json_member_span(doc[j].root, m->name);
			if (is_new)
				r = add_custom(m, ret);
		}
	}
	for (size_t i = 0; doc && i < n; i++)
		json_release(&doc[i]);
	free(doc);
	return r < 0 || !ret->n ? r : buf_add_byte(ret, '}');
}
