/* SPDX-License-Identifier: Apache-2.0 */
/*
 * input_npz.c - an npz file as import entries: a leaf for each member.
 *
 * Members are named "params/w.npy". In files of other programs, names are keys, joined by '/'.
 */
#include <fcntl.h>

#include "core/base/err.h"
#include "core/tree/name.h"
#include "handlers/format/npy.h"
#include "tools/convert/input.h"
#include "tools/convert/zip.h"

/* For files without a manifest: names are keys, not names of a mount. */
static const struct tree_manifest_style style_foreign = { .separator = "/" };

/*
 * Read a manifest that is too long for the comment, at the position that the comment has: 1; 0: the
 * comment is the manifest.
 */
static int far_manifest(struct input *in, struct buf *ret)
{
	auto_json doc = { 0 };
	int64_t at = 0, n = 0;
	int r = json_parse(in->zip.comment, in->path, &doc);

	if (r < 0)
		return r;
	r = json_get_int(doc.root, NPZ_AT, in->path, &at);
	if (r == 1)
		r = json_get_int(doc.root, NPZ_BYTES, in->path, &n);
	if (r <= 0)
		return r;
	if (at < 0 || n < 0 || (uint64_t)n > ZIP_DIRECTORY_MAX ||
	    (uint64_t)at > in->zip.file_size || (uint64_t)n > in->zip.file_size - (uint64_t)at)
		return fail(-EUCLEAN,
			    "'%s': the %lld bytes at %lld that its comment names do not lie in it",
			    in->path, (long long)n, (long long)at);
	r = buf_reserve(ret, (size_t)n);
	if (r < 0)
		return r;
	r = zip_read_at(in->fd, in->path, (uint64_t)at, ret->p, (size_t)n);
	if (r < 0)
		return r;
	ret->n = (size_t)n;
	return 1;
}

int input_npz_open(struct input *in)
{
	auto_buf far = { .metered = true };
	int r;

	in->fd = io_open_regular(in->path);
	if (in->fd < 0)
		return in->fd;
	r = zip_open(in->fd, in->path, &in->zip);
	/* The comment was written by another program. */
	if (r < 0 || !in->zip.comment.n || in->zip.comment.p[0] != '{')
		return r;
	r = far_manifest(in, &far);
	if (r < 0 || (r && !far.n))
		return MIN(r, 0);
	return tree_manifest_parse(r ? buf_span(&far) : in->zip.comment, in->path,
				   &in->tree_manifest);
}

/* ---- entries that are not members: containers, marks, None, texts ---- */

/* Texts of a document may contain a NUL, which names cannot. */
static const char *manifest_text(struct span s)
{
	return strlen((const char *)s.p) == s.n ? (const char *)s.p : NULL;
}

static int import_kinds(const struct tree_manifest *s, const char *from, struct import_list *f)
{
	const struct json *kinds = s->kinds;
	int r = 0;

	for (size_t i = 0; kinds && i < kinds->n && r >= 0; i++) {
		const char *path = manifest_text(kinds->items[i].name),
			   *kind = manifest_text(kinds->items[i].s);

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
	const struct json *leaves = s->leaves, *texts = s->texts;
	int r = 0;

	for (size_t i = 0; leaves && i < leaves->n && r >= 0; i++) {
		const char *path = manifest_text(leaves->items[i].s);
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

static int import_one_mark(const char *path, const struct json *mark, struct import_list *f)
{
	const char *name = manifest_text(mark->name);
	auto_buf value = { 0 };
	int r;

	if (!name)
		return fail(-EUCLEAN, "a name with a NUL");
	/* An array is numpy's unless the file, or an option for all arrays, says otherwise. */
	if (!strcmp(name, "typestr"))
		return f->any_leaf_type || !json_is(mark, JSON_STRING) ||
				       !span_eq(mark->s, span_str(JAX_ARRAY)) ?
			       0 :
			       import_list_mark(f, path, "save.leaf_type", JAX_ARRAY);
	r = json_print(&value, mark, JSON_COMPACT);
	return r < 0           ? r :
	       buf_str(&value) ? import_list_mark(f, path, name, buf_str(&value)) :
				 -ENOMEM;
}

static int import_marks(const struct tree_manifest *s, const char *from, struct import_list *f)
{
	const struct json *marks = s->marks;
	int r = 0;

	for (size_t i = 0; marks && i < marks->n && r >= 0; i++) {
		const char *path = manifest_text(marks->items[i].name);

		if (!path)
			return fail(-EUCLEAN, "'%s': a name with a NUL", from);
		for (size_t k = 0; k < marks->items[i].n && r >= 0; k++)
			r = import_one_mark(path, &marks->items[i].items[k], f);
	}
	return r < 0 ? err_at(r, "'%s'", from) : 0;
}

static int import_custom(const struct tree_manifest *s, const char *from, struct import_list *f)
{
	const struct json *custom = s->custom;
	int r = 0;

	for (size_t i = 0; custom && i < custom->n && r >= 0; i++) {
		const char *path = manifest_text(custom->items[i].name);
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

int import_manifest(const struct tree_manifest *s, const char *from, struct select *only,
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

/* ---- members ---- */

struct member {
	const struct input *in;
	const struct zip_member *m;
};

static int member_open(struct import_reading *rd)
{
	const struct member *m = rd->import_entry->arg;
	struct zip_stream *s;
	int r = zip_stream_open(m->in->fd, m->in->path, m->m, m->in->zip.file_size, &s);

	if (r < 0)
		return r;
	rd->size = m->m->size;
	rd->state = s;
	return 0;
}

static int member_read(struct import_reading *rd, uint64_t off, size_t n, void *p)
{
	return zip_stream_read(rd->state, p, n);
}

static void member_close(struct import_reading *rd)
{
	zip_stream_close(rd->state);
}

static const struct import_ops member_ops = { .open = member_open,
					      .read = member_read,
					      .close = member_close };

/* Add a number: the only element of a small member. */
static int import_number(struct input *in, const struct zip_member *m, const char *path,
			 enum dtype t, struct import_list *f)
{
	auto_of(zip_stream) struct zip_stream *s = NULL;
	uint8_t bytes[4096];
	struct npy head;
	bool big;
	int r = m->size > sizeof(bytes) ?
			fail(-EUCLEAN, "'%s': it is not a number", path) :
			zip_stream_open(in->fd, in->path, m, in->zip.file_size, &s);

	if (r < 0)
		return r;
	r = zip_stream_read(s, bytes, m->size);
	if (r < 0)
		return r;
	r = npy_parse(span_of(bytes, m->size), &head);
	if (r < 0)
		return r;
	if (r == 0 || head.rank != 0 || head.big_endian ||
	    head.dtype != dtype_by_npy(span_str(dtype_info(t)->npy), &big) ||
	    head.data + head.item != m->size)
		return fail(-EUCLEAN, "'%s': it is not a number of dtype %s", path,
			    dtype_info(t)->name);
	return import_add_scalar(f, path, in->path, t, bytes + head.data);
}

static int import_member(struct input *in, const struct zip_member *m, struct select *only,
			 struct import_list *f)
{
	struct span key = m->name;
	struct member *arg = arena_alloc(&f->arena, sizeof(*arg));
	auto_buf path = { 0 };
	enum dtype t;
	int r;

	if (key.n && key.p[key.n - 1] == '/' && m->size == 0)
		return 0;
	if (!span_ends(key, span_str(".npy")))
		return fail(-EINVAL, "member '%.*s' is not a .npy array", SPAN_ARG(key));
	key.n -= strlen(".npy");
	r = tree_manifest_path(&in->tree_manifest, key,
			       in->tree_manifest.doc.root ? &style_paths : &style_foreign, &path);
	if (r < 0 || !arg || !buf_str(&path))
		return r < 0 ? r : -ENOMEM;
	if (!select_path(only, buf_span(&path)))
		return import_list_leave_out(f, buf_str(&path));
	if (span_ends(buf_span(&path), span_str(".txt")))
		return 0;
	t = tree_manifest_dtype(&in->tree_manifest, buf_str(&path));
	if (span_ends(buf_span(&path), span_str(".json")) && t != DTYPE_UNKNOWN)
		return import_number(in, m, buf_str(&path), t, f);
	*arg = (struct member){ in, m };
	r = import_add_file(f, buf_str(&path), in->path, &member_ops, arg, m->size);
	return r < 0 || t == DTYPE_UNKNOWN ? r : import_list_mark_dtype(f, buf_str(&path), t);
}

int input_npz_list(struct input *in, struct select *only, struct import_list *f)
{
	int r = import_manifest(&in->tree_manifest, in->path, only, f);

	for (size_t i = 0; i < in->zip.n && r >= 0; i++) {
		r = import_member(in, &in->zip.member[i], only, f);
		if (r < 0)
			err_at(r, "'%s'", in->path);
	}
	return r;
}
