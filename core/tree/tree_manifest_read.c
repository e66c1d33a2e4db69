/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tree_manifest_read.c - parses and checks a manifest, and looks up its members.
 */
#include "core/tree/tree_manifest_read.h"

#include "core/base/err.h"
#include "core/tree/name.h"
#include "core/tree/tree.h"

const struct tree_manifest_style style_safetensors = { .separator = "." };
const struct tree_manifest_style style_paths = { .separator = "/", .is_path = true, .texts = true };

static int tree_manifest_member(const struct json *manifest, const char *name, const char *what,
				enum json_kind kind, const struct json **ret)
{
	int r = json_get_object(manifest, name, what, ret);

	for (size_t i = 0; r == 1 && i < (*ret)->n; i++)
		if ((*ret)->items[i].kind != kind)
			return fail(-EUCLEAN, "%s: '%s' holds something else than %s", what, name,
				    kind == JSON_STRING ? "texts" : "objects");
	return r;
}

int tree_manifest_of(const struct json *manifest, const char *what, struct tree_manifest *ret)
{
	struct tree_manifest s = { 0 };
	const struct {
		const char *name;
		enum json_kind kind;
		const struct json **ret;
	} members[] = {
		{ "kinds", JSON_STRING, &s.kinds },   { "leaves", JSON_STRING, &s.leaves },
		{ "dtypes", JSON_STRING, &s.dtypes }, { "texts", JSON_STRING, &s.texts },
		{ "marks", JSON_OBJECT, &s.marks },   { "custom", JSON_OBJECT, &s.custom },
	};
	int r;

	if (!json_is(manifest, JSON_OBJECT))
		return fail(-EUCLEAN, "%s: '%s' is not an object", what, TREE_MANIFEST_KEY);
	r = json_get_bool(manifest, "step", what, &s.is_step);
	for (size_t i = 0; i < ARRAY_LEN(members) && r >= 0; i++)
		r = tree_manifest_member(manifest, members[i].name, what, members[i].kind,
					 members[i].ret);
	if (r < 0)
		return r;
	*ret = s;
	return 0;
}

int tree_manifest_parse(struct span text, const char *what, struct tree_manifest *ret)
{
	auto_json doc = { 0 };
	int r = json_parse(text, what, &doc);

	if (r < 0)
		return r;
	r = tree_manifest_of(doc.root, what, ret);
	if (r < 0)
		return r;
	ret->doc = doc;
	doc = (struct json_doc){ 0 };
	return 0;
}

void tree_manifest_release(struct tree_manifest *s)
{
	json_release(&s->doc);
	*s = (struct tree_manifest){ 0 };
}

int tree_manifest_path(const struct tree_manifest *s, struct span key,
		       const struct tree_manifest_style *style, struct buf *ret)
{
	const struct json *path = json_member_span(s->leaves, key);

	return path ? buf_add_span(ret, path->s) : tree_manifest_default_path(key, style, ret);
}

int tree_manifest_default_path(struct span key, const struct tree_manifest_style *style,
			       struct buf *ret)
{
	size_t sep = strlen(style->separator);
	unsigned ours = NAME_OURS_METADATA;
	int r = 0;

	if (style->is_path) {
		r = buf_add_span(ret, key);
		return r < 0 ? r : buf_add_str(ret, ".npy");
	}
	/* There is no name, since the tree is this one leaf. */
	if (key.n == 0)
		return buf_add_str(ret, "%.npy");
	for (;;) {
		const uint8_t *at = sep ? memmem(key.p, key.n, style->separator, sep) : NULL;
		struct span one = span_of(key.p, at ? (size_t)(at - key.p) : key.n);

		r = name_escape(one, at ? NAME_CONTAINER : NAME_LEAF,
				at ? NAME_EXT_NONE : NAME_EXT_NPY, ours, ret);
		if (r < 0 || !at)
			return r;
		r = buf_add_byte(ret, '/');
		if (r < 0)
			return r;
		key = span_from(key, one.n + sep);
		ours = 0;
	}
}

enum dtype tree_manifest_dtype(const struct tree_manifest *s, const char *path)
{
	const struct json *t = json_member(s->dtypes, path);

	return t ? dtype_by_name(t->s) : DTYPE_UNKNOWN;
}

const struct json *tree_manifest_mark(const struct tree_manifest *s, struct span path,
				      const char *name)
{
	return json_member(json_member_span(s->marks, path), name);
}

int tree_type_of_json(const struct json *mark, const char *what, struct arena *arena,
		      const struct tree_type **ret)
{
	const struct json *fields = json_member(mark, "fields");
	struct tree_type *type = arena_calloc(arena, 1, sizeof(*type));
	struct span *list = arena_calloc(arena, fields->n + 1, sizeof(*list));
	struct span module = { 0 }, clazz = { 0 };
	int r;

	if (!type || !list)
		return fail(-ENOMEM, "cannot build a tree: not enough memory");
	r = json_get_str(mark, "module", what, &module);
	if (r < 0)
		return r;
	r = json_get_str(mark, "clazz", what, &clazz);
	for (size_t i = 0; i < fields->n && r >= 0; i++)
		r = json_is(&fields->items[i], JSON_STRING) ?
			    arena_keep(arena, fields->items[i].s, &list[i]) :
			    fail(-EUCLEAN, "%s: a field is not a text", what);
	if (r < 0)
		return r;
	type->fields = list;
	type->n_fields = fields->n;
	r = arena_keep(arena, module, &type->module);
	if (r < 0)
		return r;
	r = arena_keep(arena, clazz, &type->clazz);
	*ret = type;
	return r;
}
