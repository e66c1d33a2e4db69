/* SPDX-License-Identifier: Apache-2.0 */
/*
 * zarr_meta.h - .zarray and zarr.json <-> struct zarr_meta. No I/O.
 *
 * What a chunk object is made of is a chain of levels: a level is either an
 * array of elements in some axis and byte order, encoded by bytes -> bytes codecs, or
 * a shard whose inner chunks are levels again. zarr v2 has one level.
 *
 * A document is accepted when TensorStore 0.1.86 opens it.
 */
#ifndef PYTREEFS_ZARR_META_H
#define PYTREEFS_ZARR_META_H

#include "core/codec/compression.h"
#include "core/dtype/dtype.h"

struct zarr_shard;

struct zarr_level {
	/*
	 * The object holds a C-order array of `shape`; its dimension i is axis axis[i] of the
	 * array. So "order": "F" is the reversed axes, and transposes multiply out level by level.
	 */
	uint8_t axis[LIMIT_RANK];
	uint64_t shape[LIMIT_RANK];
	const struct zarr_shard *shard; /* NULL: elements */
	bool big_endian;                /* of elements */
	struct codec_chain codecs;      /* after the elements; n == 0 for a shard */
	uint64_t bytes;                 /* elements: decoded bytes of the object */
};

struct zarr_shard {
	/* Inner chunks per dimension, in the order of dimensions of the outer level's shape. */
	uint64_t grid[LIMIT_RANK];
	uint64_t entries;     /* product of grid, at most LIMIT_SHARD_ENTRIES */
	uint64_t index_bytes; /* 16 * entries, + 4 with a checksum */
	bool index_at_start, index_big_endian, index_crc32c;
	struct zarr_level inner; /* one inner chunk; its axes are axes of the array, too */
};

enum zarr_keys {
	ZARR_KEYS_V2,      /* "3.0", "3/0"; rank 0: "0" */
	ZARR_KEYS_DEFAULT, /* "c/3/0", "c.3.0"; rank 0: "c" */
};

struct zarr_meta {
	struct arena arena;
	unsigned format; /* 2 or 3 */
	enum dtype dtype;
	unsigned rank;
	uint64_t shape[LIMIT_RANK];
	uint64_t chunk[LIMIT_RANK]; /* grid: what one stored object covers, in array axes */
	uint64_t grid[LIMIT_RANK];  /* objects per axis: ceil(shape / chunk) */
	enum zarr_keys keys;
	char separator;
	uint8_t fill[LIMIT_ITEM_BYTES]; /* little-endian; zeros when null */
	bool fill_is_null;
	struct zarr_level level;
	uint64_t n_elements; /* product of shape */
	uint64_t bytes;      /* n_elements * item size */
};

/*
 * Parse a document; its members say whether it is v2 or v3. what names it in messages.
 * -EUCLEAN: breaks the format; -EOPNOTSUPP: names the data type, codec or extension that we do not
 * have; -EFBIG. ret is untouched on failure. The struct is large: allocate it, and release it with
 * zarr_meta_release().
 */
int zarr_meta_parse(struct span json, const char *what, struct zarr_meta *ret);
/* Leaves it zeroed; accepts a zeroed one. */
void zarr_meta_release(struct zarr_meta *m);

#define auto_zarr_meta __attribute__((cleanup(zarr_meta_release))) struct zarr_meta

/* What to create. */
struct zarr_create {
	unsigned format; /* 2 or 3 */
	enum dtype dtype;
	unsigned rank;
	const uint64_t *shape;
	const uint64_t *chunk;          /* grid */
	struct compression compression; /* not AUTO */
	bool sharded;                   /* v3: one inner chunk in a shard, as Orbax writes */
};
/* The document, byte for byte as TensorStore 0.1.86 writes it for Orbax. */
int zarr_meta_print(const struct zarr_create *c, struct buf *ret);

/*
 * The prefix of an array's keys by its name, as TensorStore has it: "w" has "w/", a name that ends
 * in a slash gets no second one, and a slash alone is the top, as no name is.
 */
int zarr_key_prefix(struct span name, struct buf *ret);
/* The key of a chunk object below the array's own prefix: "0.0", "c/0/0". index in array axes. */
int zarr_chunk_key(const struct zarr_meta *m, const uint64_t *index, struct buf *ret);
/*
 * Parse such a key: 1 and the index, or 0 when it is not a chunk key of this array: another
 * spelling of the number, or an index outside the grid.
 */
int zarr_chunk_key_parse(const struct zarr_meta *m, struct span key, uint64_t *ret_index);
/* For `dump` and `info`: one line per member, the levels indented. */
int zarr_meta_text(struct buf *out, const struct zarr_meta *m);

#endif
