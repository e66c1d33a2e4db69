/* SPDX-License-Identifier: Apache-2.0 */
/*
 * slab.h - rows of an array whose band of chunks does not fit into the cache. Private to this
 * folder.
 *
 * A reader of such an array in C order needs a few rows of every chunk of a band with each request.
 * If the chunks went into the cache, each would be evicted before the next request, and be decoded
 * again for it. So a request for a quarter of a row or more decodes the band once for many rows: a
 * slab, a quarter of the cache, in which the next requests find their rows. Rows of more than 2 MiB
 * are read as usual.
 *
 * A slab has stored elements of whole rows, so it serves casts of the array and boxes of it, too. A
 * box of few of the columns is read as usual, since its slabs would decode chunks that it does not
 * need, and a slab for its columns alone would serve no other view. So is a box with a step, whose
 * rows are in so many slabs that a request would decode the band several times.
 *
 * What pays for it: *Wide leaves* in docs/benchmarks.md, 37 s for 128 MiB without, 14 s for the
 * whole GiB with.
 */
#ifndef PYTREEFS_SLAB_H
#define PYTREEFS_SLAB_H

#include "core/zarr/zarr.h"

/*
 * Runs of bytes of an array in C order, and the chunks that they are in. Chunks are finished
 * together, in bands: the chunks at one place on the first axis along which a chunk has more than
 * one element. Their bytes are contiguous in the array. Bands of writers (write/zarr_encode.h) also
 * skip axes of one position.
 */
struct bands {
	unsigned axis;      /* the first one along which a chunk has more than one element */
	uint64_t rows, row; /* bands divide each `rows` rows anew; bytes of one row */
	/* rows of a band, except the last; number of bands in `rows` */
	uint64_t chunk_rows, per_rows;
	uint64_t chunks; /* number of chunks in a band */
	bool whole_rows; /* a chunk has its rows in order, and nothing besides them */
};

struct band_range {
	uint64_t number;     /* of the band; its first chunk has the number times bands.chunks */
	uint64_t begin, end; /* its bytes in the array */
};

/* The rank must not be 0. */
void bands_of(const struct zarr *z, struct bands *ret);
/* The band that contains a byte of the array. */
struct band_range band_at(const struct bands *b, uint64_t off);

/* One slab: its key in the cache, and its bytes in the array. */
struct slab {
	struct cache_key key;
	uint64_t begin, end;
};

/* The slab that has a byte of the array; false when the array is not read in slabs. */
bool slab_of(const struct zarr *z, uint64_t off, struct slab *ret);
/* Whether reads of the view use slabs. */
bool slab_is_for(const struct zarr *z, const struct zarr_view *v);
/*
 * Append bytes [off, off + n) of such a view to g. Returns 1, with nothing appended, when the
 * request is for few chunks or more than two slabs, memory is short, or the slab cannot be decoded:
 * an ordinary read then does it, or reports why not. A damaged chunk fails only requests that need
 * it: the slab has the others, and each request for a damaged one tries to read it again.
 */
int slab_read(struct zarr *z, const struct zarr_view *v, uint64_t off, size_t n,
	      struct segments *g);
/* zarr_drop_behind() of such a view; false for others. */
bool slab_drop_behind(struct zarr *z, const struct zarr_view *v, uint64_t from, uint64_t to);

#endif
