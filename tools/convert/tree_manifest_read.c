/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tree_manifest_read.c - parses the JSON text that accompanies arrays: keys, dtypes, and other
 * entries of a checkpoint made from them.
 */
#include "core/base/err.h"
#include "tools/convert/tree_manifest_read.h"

int tree_manifest_parse(struct span text, const char *what, struct tree_manifest *ret)
{
	auto_tree_manifest s = { 0 };
	int r;

	if (!text.n) {
		*ret = s;
		return 0;
	}
	r = json_parse(text, what, &s.doc);
	if (r < 0)
		return r;
	r = tree_manifest_check(s.doc.root, what, &s.is_step);
	if (r < 0)
		return r;
	*ret = s;
	s = (struct tree_manifest){ 0 };
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
	const struct json *path = json_member_span(json_member(s->doc.root, "leaves"), key);

	return json_is(path, JSON_STRING) ? buf_add_span(ret, path->s) :
					    tree_manifest_default_path(key, style, ret);
}

enum dtype tree_manifest_dtype(const struct tree_manifest *s, const char *path)
{
	const struct json *t = json_member(json_member(s->doc.root, "dtypes"), path);

	return json_is(t, JSON_STRING) ? dtype_by_name(t->s) : DTYPE_UNKNOWN;
}

/* Texts of a document may contain a NUL, which names cannot. */
static const char *tree_manifest_read_text_of(struct span s)
{
	return strlen((const char *)s.p) == s.n ? (const char *)s.p : NULL;
}

static int import_kinds(const struct tree_manifest *s, const char *from, struct import_list *f)
{
	const struct json *kinds = json_member(s->doc.root, "kinds");
	int r = 0;

	for (size_t i = 0; kinds && i < kinds->n && r >= 0; i++) {
		const char *path = tree_manifest_read_text_of(kinds->items[i].name),
			   *kind = tree_manifest_read_text_of(kinds->items[i].s);

		if (!path || !kind)
			return fail(-EUCLEAN, "'%s': a name with a NUL", from);
		r = import_add_dir(f, path);
		if (r < 0)
			return r;
		if (strcmp(kind, "dict"))
			r = import_list_mark(f, path, "kind", kind);
	}
	return r;
}

/* Add leaves that are not arrays. */
static int import_leaves(const struct tree_manifest *s, const char *from, struct select *only,
			 struct import_list *f)
{
	const struct json *leaves = json_member(s->doc.root, "leaves"),
			  *texts = json_member(s->doc.root, "texts");
	int r = 0;

	for (size_t i = 0; leaves && i < leaves->n && r >= 0; i++) {
		const char *path = tree_manifest_read_text_of(leaves->items[i].s);
		const struct json *text = json_member_span(texts, leaves->items[i].name);

		if (!path)
			return fail(-EUCLEAN, "'%s': a name with a NUL", from);
		if (!select_path(only, span_str(path)))
			r = import_list_leave_out(f, path);
		else if (span_ends(span_str(path), span_str(".null")))
			r = import_add_text(f, path, from, span_str(""));
		else if (text)
			r = import_add_text(f, path, from, text->s);
	}
	return r;
}

/* An array is numpy's unless the file, or an option for all arrays, says otherwise. */
static int import_type(const char *path, const struct json *type, struct import_list *f)
{
	if (f->any_leaf_type || !json_is(type, JSON_STRING) ||
	    !span_eq(type->s, span_str(JAX_ARRAY)))
		return 0;
	return import_list_mark(f, path, "save.leaf_type", JAX_ARRAY);
}

static int import_one_mark(const char *path, const struct json *mark, struct import_list *f)
{
	const char *name = tree_manifest_read_text_of(mark->name);
	auto_buf value = { 0 };
	int r;

	if (!name)
		return fail(-EUCLEAN, "a name with a NUL");
	if (!strcmp(name, "typestr"))
		return import_type(path, mark, f);
	r = json_print(&value, mark, JSON_COMPACT);
	return r < 0           ? r :
	       buf_str(&value) ? import_list_mark(f, path, name, buf_str(&value)) :
				 -ENOMEM;
}

static int import_marks(const struct tree_manifest *s, const char *from, struct import_list *f)
{
	const struct json *marks = json_member(s->doc.root, "marks");
	int r = 0;

	for (size_t i = 0; marks && i < marks->n && r >= 0; i++) {
		const char *path = tree_manifest_read_text_of(marks->items[i].name);

		if (!path)
			return fail(-EUCLEAN, "'%s': a name with a NUL", from);
		for (size_t k = 0; k < marks->items[i].n && r >= 0; k++)
			r = import_one_mark(path, &marks->items[i].items[k], f);
	}
	return r < 0 ? err_at(r, "'%s'", from) : 0;
}

static int import_custom(const struct tree_manifest *s, const char *from, struct import_list *f)
{
	const struct json *custom = json_member(s->doc.root, "custom");
	int r = 0;

	for (size_t i = 0; custom && i < custom->n && r >= 0; i++) {
		const char *path = tree_manifest_read_text_of(custom->items[i].name);
		auto_buf text = { 0 };

		if (!path)
			return fail(-EUCLEAN, "'%s': a name with a NUL", from);
		r = json_print(&text, &custom->items[i], JSON_PYTHON);
		if (r < 0 || !buf_str(&text))
			return r < 0 ? r : -ENOMEM;
		r = import_add_dir(f, path);
		if (r < 0)
			return r;
		r = import_list_mark(f, path, "custom_metadata", buf_str(&text));
	}
	return r;
}

int tree_manifest_import(const struct tree_manifest *s, const char *from, struct select *only,
			 struct import_list *f)
{
	int r = import_kinds(s, from, f);

	if (r < 0)
		return r;
	r = import_leaves(s, from, only, f);
	if (r < 0)
		return r;
	r = import_marks(s, from, f);
	return r < 0 ? r : import_custom(s, from, f);
}
