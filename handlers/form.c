/*
 * form.c - the table of forms, and what all of them share.
 */
#include "handlers/form.h"

#include "core/base/err.h"

extern const struct form_ops form_npy, form_bin, form_json, form_txt, form_null, form_plugin;

static const struct form_ops *const forms[] = {
	&form_npy, &form_bin, &form_json, &form_txt, &form_null,
};

void value_release(struct value *v)
{
	zarr_unref(v->array);
	buf_release(&v->text);
	*v = (struct value){ 0 };
}

void form_release(struct form *f)
{
	value_release(&f->value);
	buf_release(&f->head);
	*f = (struct form){ 0 };
}

int form_open(enum name_ext ext, struct value *v, const struct zarr_view *view, struct form *ret)
{
	struct form f = { .value = *v };
	int r = -ENOENT;

	*v = (struct value){ 0 };
	for (size_t i = 0; i < ARRAY_LEN(forms); i++)
		if (forms[i]->ext == ext)
			f.ops = forms[i];
	if (ext >= NAME_EXT_PLUGIN)
		f.ops = &form_plugin;
	if (f.value.kind == VALUE_ARRAY) {
		if (view)
			f.view = *view;
		else
			zarr_view_whole(&f.value.array->meta, &f.view);
	}
	if (f.ops)
		r = f.ops->open(&f);
	else
		fail(r, "'%s' is no form of a leaf", name_ext_text(ext));
	if (r < 0) {
		form_release(&f);
		return r;
	}
	f.size = f.head.n + (f.has_body ? f.view.bytes : 0);
	*ret = f;
	return 0;
}

int form_read(const struct form *f, uint64_t off, size_t n, struct gather *g)
{
	uint64_t had = g->bytes;
	size_t part;
	int r;

	if (off >= f->size)
		return 0;
	n = (size_t)MIN((uint64_t)n, f->size - off);
	r = gather_add_part(g, buf_span(&f->head), off, n);
	part = (size_t)(g->bytes - had);
	if (r < 0 || part == n)
		return r;
	return zarr_read(f->value.array, &f->view, off + part - f->head.n, n - part, g);
}

void form_prefetch(const struct form *f, uint64_t off, uint64_t n)
{
	if (!f->has_body || off + n <= f->head.n)
		return;
	if (off < f->head.n) {
		n -= f->head.n - off;
		off = f->head.n;
	}
	zarr_prefetch(f->value.array, &f->view, off - f->head.n, n);
}

void form_passed(const struct form *f, uint64_t from, uint64_t to)
{
	if (f->has_body && to > f->head.n)
		zarr_passed(f->value.array, &f->view, MAX(from, f->head.n) - f->head.n, to - f->head.n);
}

int form_seek(const struct form *f, uint64_t off, int whence, uint64_t *ret)
{
	uint64_t at;
	int r;

	/* The head is data; behind it holes are those of the array. */
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
