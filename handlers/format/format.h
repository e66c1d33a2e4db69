/* SPDX-License-Identifier: Apache-2.0 */
/*
 * format.h - a value as a file, by extension: npy, bin, json, txt, null.
 *
 * A format knows arrays and texts but not how they are stored. The size of the file is exact and
 * known before any data is read. A format is immutable after format_open(), so several threads may
 * read it.
 */
#ifndef PYTREEFS_FORMAT_H
#define PYTREEFS_FORMAT_H

#include "core/io/segments.h"
#include "core/tree/name.h"
#include "handlers/format/value.h"

struct format;

struct format_ops {
	enum name_ext ext;
	/*
	 * Check that this format can represent the value, and set head, size and has_body. -ENOENT
	 * with a note when it cannot.
	 */
	int (*open)(struct format *f);
};

/*
 * A file consists of a head in memory (a header, or the whole text) and a body (the bytes of an
 * array view), which may be missing.
 */
struct format {
	const struct format_ops *ops;
	struct value value;
	struct zarr_view view; /* for VALUE_ARRAY */
	struct buf head;
	bool has_body;
	uint64_t size;
};

/*
 * Open a value in the format `ext`. Takes the value, even on failure. view NULL: the whole array.
 * -ENOENT: a value of this kind does not have this format.
 */
int format_open(enum name_ext ext, struct value *v, const struct zarr_view *view,
		struct format *ret);
void format_release(struct format *f);
/* Whether it is the .npy file of a whole array, unchanged. */
bool format_is_whole_npy(const struct format *f);
#define auto_format __attribute__((cleanup(format_release))) struct format

/* Append up to n bytes from offset off to g; fewer at the end of the file. */
int format_read(const struct format *f, uint64_t off, size_t n, struct segments *g);
/* Copy n bytes from offset off to p. */
int format_copy(const struct format *f, struct cache *cache, uint64_t off, size_t n, void *p);
void format_prefetch(const struct format *f, uint64_t off, uint64_t n, struct zarr_guess *guess);
/* A sequential reader has read bytes [from, to): see zarr_drop_behind(). */
void format_drop_behind(const struct format *f, uint64_t from, uint64_t to);
/*
 * As lseek(2): whence is SEEK_HOLE or SEEK_DATA, and off is inside the file. -ENXIO: no data after
 * off.
 */
int format_seek(const struct format *f, uint64_t off, int whence, uint64_t *ret);

/*
 * Set ret to the view of an array that the parts of a name select. -ENOENT with the reason when
 * they do not fit the array; a box is never clipped. pad: boxes may exceed the bounds and read as
 * zeros there.
 */
int view_of_name(const struct name_view *name, const struct zarr_meta *m, bool pad,
		 struct zarr_view *ret);

#endif
