/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reading.h - one read of a view: private to zarr_read.c, reading.c and slab.c.
 */
#ifndef PYTREEFS_READING_H
#define PYTREEFS_READING_H

#include "core/zarr/chunk.h"
#include "core/zarr/meta/grid.h"
#include "core/zarr/zarr.h"

/* Which chunks of a band are damaged: those with numbers in [first, first + n) whose bit is set. */
struct damage {
	uint64_t first, n;
	uint64_t *bits; /* NULL: none; to be freed */
};

/* index is the place of a chunk of the band. */
int damage_add(struct damage *d, const struct zarr *z, const uint64_t *index);
bool damage_has(const struct damage *d, const struct zarr *z, const uint64_t *index);

struct reading {
	struct zarr *z;
	const struct zarr_view *v;
	struct grid grid;
	size_t item, out_item; /* bytes per element, stored and in the answer */
	struct segments *g;
	bool is_pass; /* nobody will read the chunks again soon */
	/* collects damaged chunks, whose bytes are then undefined; NULL: they are errors */
	struct damage *found;
	const struct damage *only; /* read only these chunks; NULL: all */
};

void reading_init(struct reading *rd, struct zarr *z, const struct zarr_view *v,
		  struct segments *g);

/*
 * The number of trailing axes of a part that are one run both in the answer's box and in the chunk:
 * on them the part covers the box, and neighbours in the answer are neighbours in the chunk. The
 * axis before them may be covered in part; the run includes its positions.
 */
unsigned reading_run_axes(const struct reading *rd, const struct grid_box *box,
			  const struct grid_part *p, uint64_t *ret_elements);
/* The byte offset in the chunk of the element at this position. */
uint64_t reading_byte_in_chunk(const struct reading *rd, const uint64_t *from);
/*
 * Copy n elements of the view, from `first` on, to p, for many requests. The chunks are the first
 * ones that the cache evicts. The bytes of damaged chunks are undefined, and these are added to
 * found. Other errors end it.
 */
int reading_pass(struct zarr *z, const struct zarr_view *v, uint64_t first, uint64_t n, uint8_t *p,
		 struct damage *found);
/*
 * Copy those of these elements that are in the given chunks, and leave the others of p as they are.
 */
int reading_only(struct zarr *z, const struct zarr_view *v, uint64_t first, uint64_t n, uint8_t *p,
		 const struct damage *only);
/* Put n elements of the fill value at p, in the answer's element type. */
void reading_put_fill(const struct reading *rd, uint8_t *p, uint64_t n);
bool reading_fill_is_zero(const struct reading *rd);
/* Copy a part from its opened chunk (NULL for padding) to out, which has the whole box. */
int reading_copy_part(struct reading *rd, const struct grid_box *box, const struct grid_part *p,
		      struct chunk *c, uint8_t *out);

#endif
