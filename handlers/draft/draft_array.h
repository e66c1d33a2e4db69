/* SPDX-License-Identifier: Apache-2.0 */
/*
 * draft_array.h - one array of a draft's file: its layout in the store, and encoding it.
 *
 * struct array_layout has everything that the chunks of an array depend on, besides the elements.
 * It follows from the options for the node, which may change until the commit. An array that was
 * encoded for another layout is encoded again then.
 */
#ifndef PYTREEFS_DRAFT_ARRAY_H
#define PYTREEFS_DRAFT_ARRAY_H

#include "core/zarr/write/zarr_write.h"
#include "handlers/draft/draft.h"

/* Format, chunk shape and compression of an array. */
struct array_layout {
	unsigned format; /* 2 or 3 */
	unsigned item;   /* bytes per element, as stored */
	bool omit_fill;
	/*
	 * `asked` follows from the options; `compression` is the choice for this array, and AUTO
	 * until its elements have been sampled.
	 */
	struct compression asked, compression;
	uint64_t chunk[LIMIT_RANK];
};

/* One array in a file: the only one of an .npy file, or one tensor of a safetensors file. */
struct draft_array {
	struct span name; /* for a tensor; in the arena of the header */
	enum dtype dtype; /* in the header; DTYPE_UNKNOWN: one-byte void */
	unsigned item, rank;
	uint64_t shape[LIMIT_RANK];
	uint64_t at, bytes;    /* position of the elements in the file */
	bool swapped, fortran; /* the elements in the file are big-endian; in column-major order */
	/* The chunks, encoded or being encoded; kv NULL: none. */
	struct kv *kv;
	const struct item_store *store; /* the store that kv belongs to */
	struct array_layout layout;     /* the layout of the chunks in kv */
	/* dtype as which the file's elements were read, and dtype in which they were stored */
	enum dtype from, stored;
	/* moved from a stored array: chunk shape and compression level are those of that array */
	bool copied;
	struct zarr_writer *writer;  /* only while the array streams */
	const struct draft_env *env; /* only together with writer */
};

/* The array as it is stored. */
static inline struct array_type array_stored_type(const struct draft_array *a)
{
	return (struct array_type){ a->stored, a->rank, a->shape };
}

/* The layout that the present options ask for. */
struct array_wanted {
	struct array_layout layout;
	enum dtype from, to; /* `to` differs from `from` when the elements are cast */
	/* No option sets the chunk shape, compression, checksum: stored chunks may keep theirs. */
	bool any_chunk, any_codec, any_sum;
	bool is_part;
};

/*
 * Compute the layout from the options for the node, and from the file's name when it is a part of
 * an array. -EINVAL: the dtype is given neither in the header nor elsewhere, or an xattr
 * contradicts the header. Locks the draft.
 */
int array_wanted(struct draft_node *n, const struct draft_array *a, struct array_wanted *ret);
/*
 * Like array_wanted(), for an array of known dtype: the grid is the array's own, whatever the
 * file's name is, and nothing is cast.
 */
int array_wanted_plain(struct draft_node *n, const struct array_type *t, struct array_wanted *ret);
/*
 * Set l->compression from l->asked. When several ranks or files write the array (is_part), AUTO
 * becomes a choice that all of them make alike.
 */
void array_resolve(const struct draft_env *env, const struct array_type *t, bool is_part,
		   struct array_layout *l);
/*
 * Append the metadata document of an array. For a compression of AUTO it names blosc
 * as a placeholder.
 */
int array_json(const struct array_layout *l, const struct array_type *t, struct buf *ret);
/*
 * Whether the stored form differs from the file, so that the file cannot be read back from its
 * chunks. Types with fewer than 8 bits lose their unused bits, which a change of the dtype would
 * need.
 */
static inline bool array_is_changed(const struct draft_array *a)
{
	return a->swapped || a->fortran || a->from != a->stored ||
	       (a->from != DTYPE_UNKNOWN && dtype_info(a->from)->bits < 8 &&
		dtype_info(a->from)->kind != DTYPE_KIND_BOOL);
}
/* Release the chunks of an array. */
void array_release(struct draft_array *a);

/*
 * Make a kv of the node's item for an array with that document. When ranks write the array in
 * slices, the kv puts the slice of this rank into the item's store, and stages the rest.
 */
int array_kv(struct draft_node *n, const struct draft_array *a, const struct array_wanted *w,
	     struct span json, struct kv **ret, const struct item_store **ret_store);
typedef int array_read_fn(void *arg, uint64_t off, size_t n, void *p);
/*
 * Replace a compression of AUTO by a choice from a sample of the first elements. `read` returns
 * bytes of the elements as they are to be stored, from offset 0 and no more than a chunk.
 */
int array_choose(const struct draft_env *env, struct array_layout *l, const struct array_type *t,
		 array_read_fn *read, void *arg);
/* Choose, then store the document and all chunks of an array. */
int array_write(const struct draft_env *env, struct array_layout *l, const struct array_type *t,
		struct kv *kv, array_read_fn *read, void *arg);
/*
 * Whether the chunks of a stored array are compressed as the layout asks: 1, and the layout then
 * has their compression; 0: they are not. For AUTO, a sample of the array decides.
 */
int array_takes_stored(const struct draft_env *env, struct array_layout *l, struct zarr *from);
/*
 * Encode the array for `w` into a new kv of the node's item, which replaces a->kv. `read` returns
 * bytes of the file's elements.
 */
int array_encode(struct draft_node *n, struct draft_array *a, const struct array_wanted *w,
		 array_read_fn *read, void *arg);
/*
 * Whether the stored array fits `w`: 1, possibly after its metadata document was replaced; 0: it
 * must be encoded.
 */
int array_fits(struct draft_node *n, struct draft_array *a, const struct array_wanted *w);

/* ---- parts of an array ---- */

/* A part of a larger array, given by a file name: w[0:512,0:256]@1024x256.npy. */
struct draft_part {
	struct span stem; /* in the name of the whole array */
	unsigned rank;
	uint64_t start[LIMIT_RANK], extent[LIMIT_RANK], whole[LIMIT_RANK];
};

/* Parse a file name: 1 it names a part; 0 it does not; -EINVAL: its box is not within its shape. */
int draft_part_of(struct span name, struct draft_part *ret);
/*
 * Choose the chunk shape for an array of `shape` that is written in blocks; chunks divide a block.
 * Chunks have about 4 MiB, and leading axes are split first.
 */
void array_default_chunk(unsigned rank, const uint64_t *shape, const uint64_t *block, uint64_t item,
			 bool divide, uint64_t ret[LIMIT_RANK]);

#endif
