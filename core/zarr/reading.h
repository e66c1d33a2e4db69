/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reading.h - one read of a view: for zarr_read.c, slab.c and read_many/.
 */
#ifndef PYTREEFS_READING_H
#define PYTREEFS_READING_H

#include "core/dtype/strided.h"
#include "core/zarr/chunk.h"
#include "core/zarr/meta/grid.h"
#include "core/zarr/zarr.h"

/* Which chunks of a band are damaged: those with numbers in [first, first + n) whose bit is set. */
struct damage {
	uint64_t first, n;
	uint64_t *bits; /* NULL: none; to be freed */
};

/* index is the place of a chunk; for damage_add(), of the band. */
int damage_add(struct damage *d, const struct zarr *z, const uint64_t *index);
bool damage_has(const struct damage *d, const struct zarr *z, const uint64_t *index);

struct reading {
	struct zarr *z;
	const struct zarr_view *v;
	struct grid grid;
	size_t item, out_item; /* bytes per element, stored and in the result */
	struct grid_box box;   /* the part of the view that is read now */
	/* bytes between neighbours in the result, whose first element is that of the box */
	int64_t stride[LIMIT_RANK];
	struct segments *g;
	bool is_pass; /* nobody will read the chunks again soon */
	/* collects damaged chunks, whose bytes are then undefined; NULL: they are errors */
	struct damage *found;
	const struct damage *only; /* read only these chunks; NULL: all */
};

void reading_init(struct reading *rd, struct zarr *z, const struct zarr_view *v,
		  struct segments *g);

/* Go on to the largest box of elements [first, first + n), with a result in C order. */
void reading_set_box(struct reading *rd, uint64_t first, uint64_t n);
/*
 * Describe the copy of a part's elements from their chunk to the result; returns the byte of the
 * chunk at which the first one is. ret_to: its place in the result.
 */
uint64_t reading_part(const struct reading *rd, const struct grid_part *p, struct strided *ret,
		      int64_t *ret_to);
/* Put zeros (padding) or the fill value for all elements of a part; out has the whole box. */
void reading_fill_part(const struct reading *rd, const struct grid_part *p, uint8_t *out);
/*
 * Copy n elements of the view, from `first` on, to p. found (may be NULL): for many requests. The
 * chunks are the first ones that the cache evicts; the bytes of damaged ones are undefined, and
 * these are added to found. Other errors end it. only (may be NULL): copy what is in these chunks,
 * and leave the others of p as they are.
 */
int reading_elements(struct zarr *z, const struct zarr_view *v, uint64_t first, uint64_t n,
		     uint8_t *p, struct damage *found, const struct damage *only);
/* The fill value in the element type of the result. */
void reading_fill_value(const struct reading *rd, uint8_t ret[LIMIT_ITEM_BYTES]);
bool reading_fill_is_zero(const struct reading *rd);

#endif
