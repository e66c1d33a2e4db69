/* SPDX-License-Identifier: Apache-2.0 */
/*
 * zarr_meta.h - .zarray and zarr.json <-> struct zarr_meta. No I/O.
 *
 * A chunk object is a chain of levels. A level is either an array of elements in some order of axes
 * and bytes, encoded by bytes -> bytes codecs, or a shard whose inner chunks are levels again. zarr
 * v2 has one level.
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
	 * The object is a C-order array of `shape`; its dimension i is axis axis[i] of the array.
	 * So "order": "F" is the reversed axes, and transposes are composed level by level.
	 */
	uint8_t axis[LIMIT_RANK];
	uint64_t shape[LIMIT_RANK];
	const struct zarr_shard *shard; /* NULL: the level has elements */
	bool big_endian;                /* of elements */
	struct codec_chain codecs;      /* codecs of the elements; n == 0 for a shard */
	uint64_t bytes;                 /* decoded size of an object of elements */
};

struct zarr_shard {
	/* Number of inner chunks in each dimension of the outer level's shape. */
	uint64_t grid[LIMIT_RANK];
	uint64_t entries;     /* product of grid, at most LIMIT_SHARD_ENTRIES */
	uint64_t index_bytes; /* 16 * entries, plus 4 with a checksum */
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
	uint64_t chunk[LIMIT_RANK]; /* the part of the array in one stored object, on each axis */
	uint64_t grid[LIMIT_RANK];  /* number of objects on each axis: ceil(shape / chunk) */
	enum zarr_keys keys;
	char separator;
	uint8_t fill[LIMIT_ITEM_BYTES]; /* little-endian; zeros when the document says null */
	bool fill_is_null;
	struct zarr_level level;
	uint64_t n_elements; /* product of shape */
	uint64_t bytes;      /* n_elements * element size */
};

static inline struct array_type zarr_meta_type(const struct zarr_meta *m)
{
	return (struct array_type){ m->dtype, m->rank, m->shape };
}

/* The number of objects that an array may have: of one that is open (zarr.h), it fits 64 bits. */
static inline uint64_t zarr_meta_objects(const struct zarr_meta *m)
{
	uint64_t n = 1;

	for (unsigned i = 0; i < m->rank; i++)
		n *= m->grid[i];
	return n;
}

/*
 * Parse a document, of v2 or v3 according to its members. `what` names it in messages. -EUCLEAN: it
 * breaks the format; -EOPNOTSUPP: names an unknown data type, codec or extension; -EFBIG: beyond a
 * limit. ret is untouched on failure. The struct is large, so allocate it; release it with
 * zarr_meta_release().
 */
int zarr_meta_parse(struct span json, const char *what, struct zarr_meta *ret);
/* Leaves the struct zeroed; accepts a zeroed one. */
void zarr_meta_release(struct zarr_meta *m);

#define auto_zarr_meta __attribute__((cleanup(zarr_meta_release))) struct zarr_meta

/* The array to create. */
struct zarr_create {
	unsigned format; /* 2 or 3 */
	struct array_type array;
	const uint64_t *chunk;          /* grid */
	struct compression compression; /* not AUTO */
	bool sharded;                   /* v3: one inner chunk per shard, as Orbax writes it */
};
/* Append the document, byte for byte as TensorStore 0.1.86 writes it for Orbax. */
int zarr_meta_print(const struct zarr_create *c, struct buf *ret);
/* The same for an array whose elements are stored as they are, in one chunk. */
int zarr_meta_print_whole(const struct array_type *t, struct buf *ret);
/* Append the key of that chunk: "0.0". */
int zarr_whole_key(unsigned rank, struct buf *ret);

/*
 * Append the prefix of an array's keys, derived from its name as by TensorStore: "w/" for "w"; a
 * name that ends with a slash gets no second one; "/" and "" have the empty prefix.
 */
int zarr_key_prefix(struct span name, struct buf *ret);
/*
 * Append the key of a chunk object relative to the array's prefix: "0.0", "c/0/0". index is by axis
 * of the array.
 */
int zarr_chunk_key(const struct zarr_meta *m, const uint64_t *index, struct buf *ret);
/*
 * Parse such a key. Returns 1 and the index; or 0 when it is not a chunk key of this array, which
 * includes other spellings of a number and an index outside the grid.
 */
int zarr_chunk_key_parse(const struct zarr_meta *m, struct span key, uint64_t *ret_index);
/* Append the metadata as text for `dump` and `info`: one line per member, with levels indented. */
int zarr_meta_text(struct buf *out, const struct zarr_meta *m);

#endif
