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

#define MANIFEST TREE_MANIFEST_WHAT

/* One leaf or container, with its path of names. */
struct entry {
	struct span path;
	struct span tensor; /* its name in the file */
	struct span text;   /* value of a string */
	bool is_container;
};

struct making {
	struct tree_build build;
	const struct tree_manifest *manifest;
	const struct tree_manifest_style *style; /* of the names of tensors */
	const struct json *texts;                /* the values of strings, by key */
	struct arena paths;                      /* those of the entries of tensors */
	struct entry *entry;
	size_t n;
};

static void tree_tensors_release(struct making *m)
{
	free(m->entry);
	arena_release(&m->paths);
	tree_build_release(&m->build);
}
#define auto_making __attribute__((cleanup(tree_tensors_release))) struct making

static int tree_tensors_by_path(const void *a, const void *b)
{
	return span_cmp(((const struct entry *)a)->path, ((const struct entry *)b)->path);
}

/* ---- one entry ---- */

/* The key of a name. If the name is shortened, the manifest has the key. */
static int key_of(const struct making *m, struct span path, struct span stem, enum name_use use,
		  struct buf *ret)
{
	const struct json *key = tree_manifest_mark(m->manifest, path, "key");
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

/* Set the kind of a container, and the type of a namedtuple or the order of a dict. */
static int set_kind(const struct making *m, struct span path, struct tree_node *t)
{
	const struct json *kind = json_member_span(m->manifest->kinds, path);
	const struct json *mark = tree_manifest_mark(m->manifest, path, "namedtuple");

	t->kind = TREE_DICT;
	while (kind && t->kind < TREE_LEAF && !span_eq(kind->s, span_str(tree_kind_text(t->kind))))
		t->kind++;
	if (t->kind == TREE_LEAF)
		return fail(-EUCLEAN, MANIFEST ": '%.*s' is of the unknown kind '%.*s'",
			    SPAN_ARG(path), SPAN_ARG(kind->s));
	if (t->type || !json_is(json_member(mark, "fields"), JSON_ARRAY) ||
	    (t->kind != TREE_DICT && t->kind != TREE_NAMEDTUPLE))
		return 0;
	return tree_type_of_json(mark, MANIFEST, &m->build.tree->arena, &t->type);
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
	const struct json *type = tree_manifest_mark(m->manifest, e->path, "typestr"), *impl = NULL;
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
		impl = tree_manifest_mark(m->manifest, e->path, "prng_impl");
		t->value_type = json_is(type, JSON_STRING) &&
						span_eq(type->s, span_str(JAX_ARRAY)) ?
					span_str(JAX_ARRAY) :
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
	int r = m->manifest->is_step && !parent->parent ?
			buf_add_span(&key, name) :
			key_of(m, path, name, NAME_CONTAINER, &key);

	if (r < 0)
		return r;
	r = tree_build_child(&m->build, parent, buf_span(&key), tree_is_sequence(parent), ret);
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
		const uint8_t *slash = memchr(rest.p, '/', rest.n);

		name = span_of(rest.p, slash ? (size_t)(slash - rest.p) : rest.n);
		rest = span_from(rest, name.n + (slash != NULL));
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
	name.n -= strlen(name_ext_text(name_ext_of(name)));
	r = key_of(m, e->path, name, NAME_LEAF, &key);
	if (r < 0)
		return r;
	/* No key at all: the tree is this single leaf. */
	if (!key.n && m->n == 1)
		return set_leaf(m, e, t);
	r = tree_build_child(&m->build, t, buf_span(&key), tree_is_sequence(t), &t);
	if (r == 0)
		return fail(-EUCLEAN, MANIFEST ": two leaves are called '%.*s'", SPAN_ARG(e->path));
	return r < 0 ? r : set_leaf(m, e, t);
}

/* ---- all entries ---- */

static int tree_tensors_add_path(struct making *m, struct entry e)
{
	const struct span s = e.path;

	if (!s.n || !s.p || s.p[0] == '/' || s.p[s.n - 1] == '/' || memmem(s.p, s.n, "//", 2) ||
	    memchr(s.p, '\0', s.n))
		return fail(-EUCLEAN, MANIFEST ": '%.*s' is not a path of names", SPAN_ARG(s));
	m->entry[m->n++] = e;
	return 0;
}

static int add_tensors(struct making *m, const struct span *names, size_t n)
{
	int r = 0;

	for (size_t i = 0; i < n && r >= 0; i++) {
		struct entry e = { .tensor = names[i] };
		auto_buf path = { .metered = true };

		r = tree_manifest_path(m->manifest, names[i], m->style, &path);
		if (r < 0)
			return r;
		r = arena_keep(&m->paths, buf_span(&path), &e.path);
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
	const struct json *leaves = m->manifest->leaves, *kinds = m->manifest->kinds;
	int r = 0;

	for (size_t i = 0; leaves && i < leaves->n && r >= 0; i++) {
		const struct json *leaf = &leaves->items[i],
				  *text = json_member_span(m->texts, leaf->name);
		struct entry e = { .path = leaf->s };

		if (span_ends(leaf->s, span_str(".null")))
			r = tree_tensors_add_path(m, e);
		else if (span_ends(leaf->s, span_str(".txt")) && json_is(text, JSON_STRING)) {
			e.text = text->s;
			r = tree_tensors_add_path(m, e);
		}
	}
	for (size_t i = 0; kinds && i < kinds->n && r >= 0; i++)
		if (kinds->items[i].name.n)
			r = tree_tensors_add_path(m, (struct entry){ .path = kinds->items[i].name,
								     .is_container = true });
	return r;
}

static int set_custom(struct making *m)
{
	const struct json *custom = json_member(m->manifest->custom, "");
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
	const struct json *leaves = m->manifest->leaves, *kinds = m->manifest->kinds;
	struct tree_node *root;
	int r = tree_attach(m->build.tree, NULL, span_of(NULL, 0), false, &root);

	if (r < 0)
		return r;
	r = set_kind(m, span_of(NULL, 0), root);
	if (r < 0)
		return r;
	m->entry = calloc(n + 1 + (leaves ? leaves->n : 0) + (kinds ? kinds->n : 0),
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
	const struct json *custom = m->manifest->custom;
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

int tree_from_manifest(const struct span *names, size_t n, const struct tree_manifest *manifest,
		       const struct tree_manifest_style *style, const struct json *texts,
		       struct tree **ret)
{
	auto_making m = {
		.manifest = manifest, .style = style, .texts = texts, .paths.metered = true
	};
	auto_of(tree) struct tree *tree = NULL;
	int r = tree_new(&tree);

	if (r < 0)
		return r;
	m.build.tree = tree;
	tree->key_impl = arena_calloc(&tree->arena, (manifest->marks ? manifest->marks->n : 0) + 1,
				      sizeof(*tree->key_impl));
	if (!tree->key_impl)
		return fail(-ENOMEM, "cannot build a tree: not enough memory");
	r = make_tree(&m, names, n);
	if (r < 0)
		return r;
	qsort(tree->key_impl, tree->n_key_impls, sizeof(*tree->key_impl), key_impl_by_param);
	r = keep_marks(&m);
	if (r < 0)
		return r;
	tree->has_manifest = true;
	tree->is_step = manifest->is_step;
	*ret = take(tree);
	return 0;
}

int tree_from_tensors(const struct span *names, size_t n, const struct json *metadata,
		      const char *separator, struct tree **ret)
{
	const struct json *text = json_member(metadata, TREE_MANIFEST_KEY);
	auto_tree_manifest manifest = { 0 };
	int r;

	if (!json_is(text, JSON_STRING))
		return n ? tree_from_names_split(names, NULL, n, separator, ret) :
			   tree_from_hierarchy(NULL, 0, NULL, 0, ret);
	r = tree_manifest_parse(text->s, MANIFEST, &manifest);
	return r < 0 ? r :
		       tree_from_manifest(names, n, &manifest, &style_safetensors, metadata, ret);
}

int tree_from_group(const struct span *names, size_t n, const struct json *manifest,
		    struct tree **ret)
{
	struct tree_manifest m;
	int r = tree_manifest_of(manifest, MANIFEST, &m);

	return r < 0 ? r : tree_from_manifest(names, n, &m, &style_paths, m.texts, ret);
}

int tensors_add_custom(const struct json *m, struct buf *ret)
{
	int r = ret->n ? 0 : buf_add_byte(ret, '{');

	if (r < 0)
		return r;
	r = json_put_member(ret, m->name, JSON_PYTHON);
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
			bool is_new = !span_eq(m->name, span_str("format")) &&
				      !span_eq(m->name, span_str(TREE_MANIFEST_KEY));

			for (size_t j = 0; j < i && is_new; j++)
				is_new = !json_member_span(doc[j].root, m->name);
			if (is_new)
				r = tensors_add_custom(m, ret);
		}
	}
	for (size_t i = 0; doc && i < n; i++)
		json_release(&doc[i]);
	free(doc);
	return r < 0 || !ret->n ? r : buf_add_byte(ret, '}');
}
