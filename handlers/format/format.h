/* SPDX-License-Identifier: Apache-2.0 */
/*
 * format.h - what a value looks like as a file, by extension: npy, bin, json, txt, null.
 *
 * A format knows arrays and texts, never storage. Its size is exact and known
 * before any data is read. Immutable after format_open(); reads may come from
 * several threads.
 */
#ifndef PYTREEFS_FORMAT_H
#define PYTREEFS_FORMAT_H

#include "core/io/segments.h"
#include "core/tree/name.h"
#include "handlers/format/value.h"

struct format;

struct format_ops {
	enum name_ext ext;
	/* Whether it can carry the value; note and -ENOENT say why not. Sets size, head, and reads
	 * small texts. */
	int (*open)(struct format *f);
};

/*
 * A file is a head that is in memory (a header, or all of a text) followed by the bytes of an array
 * view (body, or nothing).
 */
struct format {
	const struct format_ops *ops;
	struct value value;
	struct zarr_view view; /* of VALUE_ARRAY */
	struct buf head;
	bool has_body;
	uint64_t size;
};

/*
 * Open the format `ext` of a value, which is taken whether it succeeds or not. view NULL: the whole
 * array. -ENOENT: this extension cannot carry it.
 */
int format_open(enum name_ext ext, struct value *v, const struct zarr_view *view,
		struct format *ret);
void format_release(struct format *f);
#define auto_format __attribute__((cleanup(format_release))) struct format

/* Up to n bytes from off; fewer at the end. */
int format_read(const struct format *f, uint64_t off, size_t n, struct segments *g);
void format_prefetch(const struct format *f, uint64_t off, uint64_t n, struct zarr_guess *guess);
/* A reader in order has gone from byte `from` to byte `to`: zarr_drop_behind(). */
void format_drop_behind(const struct format *f, uint64_t from, uint64_t to);
/* whence SEEK_HOLE or SEEK_DATA; off inside the file. -ENXIO: no data after off. */
int format_seek(const struct format *f, uint64_t off, int whence, uint64_t *ret);

/*
 * The view that a name asks for, of an array of these extents. -ENOENT with the reason when its
 * parts do not fit the array (design: nothing is clipped). pad: boxes beyond the bounds read as
 * zeros.
 */
int view_of_name(const struct name_view *name, const struct zarr_meta *m, bool pad,
		 struct zarr_view *ret);

#endif
