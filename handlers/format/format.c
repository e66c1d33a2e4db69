/* SPDX-License-Identifier: Apache-2.0 */
/*
 * format.c - the table of file formats, and the functions that they share.
 */
#include "handlers/format/format.h"

#include "core/base/err.h"

extern const struct format_ops format_npy, format_bin, format_json, format_txt, format_null,
	format_plugin;

static const struct format_ops *const formats[] = {
	&format_npy, &format_bin, &format_json, &format_txt, &format_null,
};

void value_release(struct value *v)
{
	zarr_unref(v->array);
	buf_release(&v->text);
	*v = (struct value){ 0 };
}

void format_release(struct format *f)
{
	value_release(&f->value);
	buf_release(&f->head);
	*f = (struct format){ 0 };
}

int format_open(enum name_ext ext, struct value *v, const struct zarr_view *view,
		struct format *ret)
{
	struct format f = { .value = *v, .head.metered = v->kind == VALUE_TEXT };
	int r = -ENOENT;

	*v = (struct value){ 0 };
	for (size_t i = 0; i < ARRAY_LEN(formats); i++)
		if (formats[i]->ext == ext)
			f.ops = formats[i];
	if (ext >= NAME_EXT_PLUGIN)
		f.ops = &format_plugin;
	if (f.value.kind == VALUE_ARRAY) {
		if (view)
			f.view = *view;
		else
			zarr_view_whole(&f.value.array->meta, &f.view);
	}
	if (f.ops)
		r = f.ops->open(&f);
	else
		fail(r, "'%s' is not a file format of a leaf", name_ext_text(ext));
	if (r < 0) {
		format_release(&f);
		return r;
	}
	f.size = f.head.n + (f.has_body ? f.view.bytes : 0);
	*ret = f;
	return 0;
}

bool format_is_whole_npy(const struct format *f)
{
	return f->value.kind == VALUE_ARRAY && f->view.plain && f->ops->ext == NAME_EXT_NPY;
}

int format_read(const struct format *f, uint64_t off, size_t n, struct segments *g)
{
	uint64_t had = g->bytes;
	size_t part;
	int r;

	if (off >= f->size)
		return 0;
	n = (size_t)MIN((uint64_t)n, f->size - off);
	r = segments_add_part(g, buf_span(&f->head), off, n);
	part = (size_t)(g->bytes - had);
	if (r < 0 || part == n)
		return r;
	return zarr_read(f->value.array, &f->view, off + part - f->head.n, n - part, g);
}

int format_copy(const struct format *f, struct cache *cache, uint64_t off, size_t n, void *p)
{
	auto_segments g;
	int r;

	segments_init(&g, cache);
	r = format_read(f, off, n, &g);
	return r < 0 ? r : segments_copy(&g, p);
}

void format_prefetch(const struct format *f, uint64_t off, uint64_t n, struct zarr_guess *guess)
{
	if (!f->has_body || off + n <= f->head.n)
		return;
	if (off < f->head.n) {
		n -= f->head.n - off;
		off = f->head.n;
	}
	zarr_prefetch(f->value.array, &f->view, off - f->head.n, n, guess);
}

void format_drop_behind(const struct format *f, uint64_t from, uint64_t to)
{
	if (f->has_body && to > f->head.n)
		zarr_drop_behind(f->value.array, &f->view, MAX(from, f->head.n) - f->head.n,
				 to - f->head.n);
}

int format_seek(const struct format *f, uint64_t off, int whence, uint64_t *ret)
{
	uint64_t at;
	int r;

	/* The head counts as data; the body has the holes of the array. */
	if (off < f->head.n && whence == SEEK_DATA) {
		*ret = off;
		return 0;
	}
	if (!f->has_body) {
		*ret = f->size;
		return 0;
	}
	r = zarr_seek(f->value.array, &f->view, off < f->head.n ? 0 : off - f->head.n, whence, &at);
	if (r < 0)
		return r;
	*ret = f->head.n + at;
	return whence == SEEK_DATA && *ret == f->size ? -ENXIO : 0;
}
