/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lib_draft_names.c - turns key paths into names in a draft, and sets xattrs for what names cannot
 * express.
 */
#include <string.h>

#include "core/base/json.h"
#include "core/tree/name.h"
#include "tools/lib/lib_draft.h"

int lib_key_text(const struct pytreefs_key *key, size_t n, struct buf *ret)
{
	for (size_t i = 0; i < n; i++)
		if ((i && buf_add_byte(ret, '/') < 0) ||
		    buf_add_shown(ret, span_of(key[i].key, key[i].size)) < 0)
			return -ENOMEM;
	return 0;
}

int lib_at_key(int r, const struct pytreefs_key *key, size_t n)
{
	auto_buf where = { 0 };

	lib_key_text(key, n, &where);
	return err_at(r, "'%.*s'", SPAN_ARG(buf_span(&where)));
}

static int set_attribute(struct draft_node *n, const char *name, struct span value)
{
	auto_free char *whole = str_fmt("user.pytree.%s", name);

	return whole ? draft_set_xattr(n, whole, &value, 0) :
		       fail(-ENOMEM, "cannot set attribute '%s'", name);
}

/* The number of leading keys that are the item's name. */
static size_t item_keys(const struct pytreefs_draft *d)
{
	return d->is_item ? 0 : 1;
}

/* The number of leading keys that are names themselves: of an item, and of files in one. */
static size_t literal_keys(const struct pytreefs_draft *d, const struct pytreefs_value *v)
{
	return v->kind == PYTREEFS_FILE ? v->n_keys : item_keys(d);
}

/* Get the name of key i, of which the first ones are names themselves. */
static int name_of(const struct pytreefs_key *key, size_t literal, size_t i, enum name_ext ext,
		   struct buf *ret)
{
	struct span text = span_of(key[i].key, key[i].size);

	if (i < literal)
		return buf_add_span(ret, text);
	return name_escape(text, ext == NAME_EXT_NONE ? NAME_CONTAINER : NAME_LEAF, ext,
			   NAME_OURS_ALL, ret);
}

/* A shortened name (`~`) does not contain the key. */
static int lib_draft_names_mark_key(const struct pytreefs_draft *d, struct draft_node *n,
				    const struct pytreefs_key *key, size_t n_keys, struct span name,
				    enum name_ext ext)
{
	struct span stem = span_of(name.p, name.n - strlen(name_ext_text(ext)));
	auto_buf json = { 0 };
	int r;

	if (n_keys <= item_keys(d) || !name_is_hashed(stem))
		return 0;
	r = buf_add_byte(&json, '[');
	for (size_t i = item_keys(d); i < n_keys && r >= 0; i++) {
		if (i > item_keys(d) && buf_add_byte(&json, ',') < 0)
			return -ENOMEM;
		r = json_put_str(&json, span_of(key[i].key, key[i].size), JSON_COMPACT);
	}
	if (r < 0)
		return r;
	r = buf_add_byte(&json, ']');
	return r < 0 ? r : set_attribute(n, "key", buf_span(&json));
}

/* Get the container of key i in dir. Creates it, as a list if its first child has an index. */
static int lib_draft_names_enter(struct pytreefs_draft *d, struct draft_node *dir,
				 const struct pytreefs_value *v, size_t i, bool list,
				 struct draft_node **ret)
{
	size_t literal = literal_keys(d, v);
	auto_of(draft_node) struct draft_node *n = NULL;
	auto_buf name = { 0 };
	int r = name_of(v->key, literal, i, NAME_EXT_NONE, &name);

	if (r < 0)
		return r;
	if (draft_lookup(dir, buf_span(&name), &n) >= 0) {
		if (!n->is_dir)
			return fail(-EEXIST, "'%.*s' is a leaf", SPAN_ARG(buf_span(&name)));
		*ret = take(n);
		return 0;
	}
	err_clear();
	r = draft_mkdir(dir, buf_span(&name), &n);
	if (r < 0)
		return r;
	if (i >= literal)
		r = lib_draft_names_mark_key(d, n, v->key, i + 1, buf_span(&name), NAME_EXT_NONE);
	if (r < 0)
		return r;
	if (list)
		r = set_attribute(n, "kind", span_str("list"));
	if (r < 0)
		return r;
	*ret = take(n);
	return 0;
}

/* Get the containers of the first n keys. */
static int enter_all(struct pytreefs_draft *d, const struct pytreefs_value *v, size_t n,
		     struct draft_node **ret)
{
	struct draft_node *at = draft_node_ref(d->step.draft->root), *next = NULL;

	for (size_t i = 0; i < n; i++) {
		bool list = i + 1 < v->n_keys && v->key[i + 1].kind == PYTREEFS_KEY_INDEX;
		int r = lib_draft_names_enter(d, at, v, i, list, &next);

		draft_node_unref(at);
		if (r < 0)
			return r;
		at = next;
	}
	*ret = at;
	return 0;
}

int lib_draft_find(struct pytreefs_draft *d, const struct pytreefs_key *key, size_t n,
		   struct draft_node **ret)
{
	static const enum name_ext exts[] = { NAME_EXT_NONE, NAME_EXT_NPY, NAME_EXT_JSON,
					      NAME_EXT_TXT, NAME_EXT_NULL };
	struct draft_node *at = draft_node_ref(d->step.draft->root), *next = NULL;

	for (size_t i = 0; i < n; i++) {
		next = NULL;
		for (size_t k = 0; k < ARRAY_LEN(exts) && !next; k++) {
			auto_buf name = { 0 };

			if (name_of(key, item_keys(d), i, exts[k], &name) < 0 ||
			    draft_lookup(at, buf_span(&name), &next) < 0)
				next = NULL;
		}
		draft_node_unref(at);
		if (!next)
			return fail(-ENOENT, "nothing was put there");
		at = next;
	}
	err_clear();
	*ret = at;
	return 0;
}

static enum name_ext lib_draft_names_ext_of(enum pytreefs_kind kind)
{
	switch (kind) {
	case PYTREEFS_ARRAY:
		return NAME_EXT_NPY;
	case PYTREEFS_SCALAR:
		return NAME_EXT_JSON;
	case PYTREEFS_STRING:
		return NAME_EXT_TXT;
	case PYTREEFS_NONE:
		return NAME_EXT_NULL;
	default:
		return NAME_EXT_NONE;
	}
}

static int lib_draft_names_mark_container(const struct pytreefs_value *v, struct draft_node *n)
{
	const char *kind = v->kind == PYTREEFS_LIST       ? "list" :
			   v->kind == PYTREEFS_TUPLE      ? "tuple" :
			   v->kind == PYTREEFS_NAMEDTUPLE ? "namedtuple" :
							    "dict";
	int r = set_attribute(n, "kind", span_str(kind));

	if (r < 0)
		return r;
	if ((v->kind == PYTREEFS_NAMEDTUPLE || v->kind == PYTREEFS_DICT) && v->data)
		r = set_attribute(n, "namedtuple", span_of(v->data, v->size));
	return r;
}

static int mark_dtype(const struct pytreefs_value *v, struct draft_node *n)
{
	enum dtype t;
	uint64_t bytes;
	bool big;
	int r = lib_value_elements(v, &t, &bytes);

	/* The header of an .npy file expresses most dtypes. */
	if (r < 0 ||
	    (v->kind == PYTREEFS_ARRAY && dtype_by_npy(span_str(dtype_info(t)->npy), &big) == t))
		return r;
	return set_attribute(n, "dtype", span_str(dtype_info(t)->name));
}

static int lib_draft_names_make_leaf(struct pytreefs_draft *d, const struct pytreefs_value *v,
				     struct draft_node *dir, struct draft_node **ret)
{
	bool bare = v->n_keys == item_keys(d) && v->kind != PYTREEFS_FILE;
	enum name_ext ext = lib_draft_names_ext_of(v->kind);
	auto_of(draft_node) struct draft_node *n = NULL;
	auto_buf name = { 0 };
	int r;

	if (bare)
		r = name_escape(span_str(""), NAME_LEAF, ext, NAME_OURS_ALL, &name);
	else
		r = name_of(v->key, literal_keys(d, v), v->n_keys - 1, ext, &name);
	if (r < 0)
		return r;
	r = draft_create(dir, buf_span(&name), &n);
	if (r < 0)
		return r == -EEXIST ? fail(r, "it was put before") : r;
	if (!bare && v->kind != PYTREEFS_FILE)
		r = lib_draft_names_mark_key(d, n, v->key, v->n_keys, buf_span(&name), ext);
	if (r < 0)
		return r;
	if (v->kind == PYTREEFS_ARRAY || v->kind == PYTREEFS_SCALAR)
		r = mark_dtype(v, n);
	if (r < 0)
		return r;
	*ret = take(n);
	return 0;
}

int lib_draft_make(struct pytreefs_draft *d, const struct pytreefs_value *v,
		   struct draft_node **ret)
{
	bool is_container = v->kind >= PYTREEFS_DICT && v->kind <= PYTREEFS_NAMEDTUPLE;
	bool bare = v->n_keys == item_keys(d) && v->kind != PYTREEFS_FILE;
	size_t dirs = is_container || bare ? v->n_keys : v->n_keys - 1;
	auto_of(draft_node) struct draft_node *dir = NULL;
	int r;

	if (!is_container && v->kind != PYTREEFS_FILE && v->kind != PYTREEFS_NONE &&
	    lib_draft_names_ext_of(v->kind) == NAME_EXT_NONE)
		return fail(-EINVAL, "a value of kind %d cannot be written", (int)v->kind);
	if (v->n_keys < item_keys(d))
		return fail(-EINVAL, "%zu %s not name an item", v->n_keys,
			    noun(v->n_keys, "key does", "keys do"));
	if (v->kind == PYTREEFS_FILE && d->is_item)
		return fail(-EINVAL, "files are items of steps, and this is one item");
	/* Check the keys that are names themselves, as the kernel does for a mount. */
	for (size_t i = 0; i < literal_keys(d, v); i++) {
		struct span name = span_of(v->key[i].key, v->key[i].size);

		if (!name.n || memchr(name.p, '/', name.n) || memchr(name.p, '\0', name.n) ||
		    span_eq(name, span_str(".")) || span_eq(name, span_str("..")))
			return fail(-EINVAL, "'%.*s' is not a name of a file", SPAN_ARG(name));
	}
	r = enter_all(d, v, dirs, &dir);
	if (r < 0)
		return r;
	if (v->kind == PYTREEFS_FILE && dirs && !draft_is_opaque(dir))
		return fail(-EINVAL, "it is a file in an item whose kind is not set to opaque");
	if (!is_container)
		return lib_draft_names_make_leaf(d, v, dir, ret);
	r = lib_draft_names_mark_container(v, dir);
	if (r < 0)
		return r;
	*ret = take(dir);
	return 0;
}
