/*
 * form.h - what a value looks like as a file, by extension: npy, bin, json, txt, null.
 *
 * A form knows arrays and texts, never storage. Its size is exact and known
 * before any data is read. Immutable after form_open(); reads may come from
 * several threads.
 */
#ifndef PYTREEFS_FORM_H
#define PYTREEFS_FORM_H

#include "core/io/gather.h"
#include "core/tree/name.h"
#include "handlers/value.h"

struct form;

struct form_ops {
	enum name_ext ext;
	/* Whether it can carry the value; note and -ENOENT say why not. Sets size, head, and reads small texts. */
	int (*open)(struct form *f);
};

/*
 * A file is a head that is in memory (a header, or all of a text) and behind it the bytes of an array
 * view (body, or nothing).
 */
struct form {
	const struct form_ops *ops;
	struct value value;
	struct zarr_view view;		/* of VALUE_ARRAY */
	struct buf head;
	bool has_body;
	uint64_t size;
};

/*
 * Open the form `ext` of a value, which is taken whether it succeeds or not. view NULL: the whole
 * array. -ENOENT: this extension cannot carry it.
 */
int form_open(enum name_ext ext, struct value *v, const struct zarr_view *view, struct form *ret);
void form_release(struct form *f);
#define auto_form __attribute__((cleanup(form_release))) struct form

/* Up to n bytes from off; fewer at the end. */
int form_read(const struct form *f, uint64_t off, size_t n, struct gather *g);
void form_prefetch(const struct form *f, uint64_t off, uint64_t n);
/* A reader in order has gone from byte `from` to byte `to`: zarr_passed(). */
void form_passed(const struct form *f, uint64_t from, uint64_t to);
/* whence SEEK_HOLE or SEEK_DATA; off inside the file. -ENXIO: no data behind off. */
int form_seek(const struct form *f, uint64_t off, int whence, uint64_t *ret);

/*
 * The view that a name asks for, of an array of these extents. -ENOENT with the reason when its
 * parts do not fit the array (design: nothing is clipped). pad: boxes beyond the bounds read as zeros.
 */
int view_of_name(const struct name_view *name, const struct zarr_meta *m, bool pad, struct zarr_view *ret);

#endif
