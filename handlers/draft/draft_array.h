/* SPDX-License-Identifier: Apache-2.0 */
/*
 * draft_array.h - one array of a draft's file: how it is to be stored, and encoding it.
 *
 * What an array's chunks depend on is its struct array_layout. It follows from
 * the options in force for the node, which may change until the commit: an array
 * that was encoded for another layout is encoded again then.
 */
#ifndef PYTREEFS_DRAFT_ARRAY_H
#define PYTREEFS_DRAFT_ARRAY_H

#include "core/zarr/zarr_write.h"
#include "handlers/draft/draft.h"

/* How an array is cut and compressed: all that its chunks depend on besides their elements. */
struct array_layout {
	unsigned format; /* 2 or 3 */
	unsigned item;   /* bytes an element, as stored */
	bool omit_fill;
	/* By the options; and what that is for this array: AUTO until its elements are looked at. */
	struct compression asked, compression;
	uint64_t chunk[LIMIT_RANK];
};

/* One array in a file: the only one of an .npy file, or a tensor. */
struct draft_array {
	struct span name; /* of a tensor; in the header's arena */
	enum dtype dtype; /* as the file says; DTYPE_UNKNOWN: one-byte void */
	unsigned item, rank;
	uint64_t shape[LIMIT_RANK];
	uint64_t at, bytes;    /* in the file */
	bool swapped, fortran; /* the file's elements are big-endian, in column-major order */
	/* Its chunks, encoded or being encoded; kv NULL: none. */
	struct kv *kv;
	const struct store *store;  /* that kv belongs to */
	struct array_layout layout; /* that they were encoded for */
	enum dtype from, stored; /* what the file's elements were taken for, and what was stored */
	bool copied;             /* as another array had them: chunk and level are that one's */
	struct zarr_writer *writer;  /* while it streams */
	const struct draft_env *env; /* with writer */
};

/* The layout that the options ask for now. */
struct array_wanted {
	struct array_layout layout;
	enum dtype from, to; /* from differs from to: a cast */
	/* Nobody asked for these: stored chunks may keep theirs. */
	bool any_chunk, any_level, any_sum;
	bool is_part;
};

/*
 * By the options in force for the node, and by the file's name when it is a part. -EINVAL: the
 * header names no dtype and nothing else does, or an xattr names another one. Locks the draft.
 */
int array_wanted(struct draft_node *n, const struct draft_array *a, struct array_wanted *ret);
/* The same for an array whose dtype is settled, whatever the file's name: its own grid, no cast. */
int array_wanted_plain(struct draft_node *n, const struct draft_array *a, struct array_wanted *ret);
/* What was asked for, made what it is for this array; the guess of an array that several write. */
void array_resolve(const struct draft_env *env, enum dtype t, unsigned rank, const uint64_t *shape,
		   bool is_part, struct array_layout *l);
/* The metadata document of an array of that shape; what compression is AUTO has blosc, as a
 * placeholder. */
int array_json(const struct array_layout *l, enum dtype t, unsigned rank, const uint64_t *shape,
	       struct buf *ret);
/*
 * Whether what is stored has another form than the file: it cannot be read back from the chunks. Of
 * types below a byte the unused bits are lost, and with them what the bytes are when another dtype
 * is named.
 */
static inline bool array_is_changed(const struct draft_array *a)
{
	return a->swapped || a->fortran || a->from != a->stored ||
	       (a->from != DTYPE_UNKNOWN && dtype_info(a->from)->bits < 8 &&
		dtype_info(a->from)->kind != DTYPE_KIND_BOOL);
}
/* Let go of its chunks. */
void array_release(struct draft_array *a);

/*
 * A new kv of the node's item for an array of that document. Of an array that ranks write in slices
 * it keeps this rank's slice in the item's store, and the rest aside.
 */
int array_kv(struct draft_node *n, const struct draft_array *a, const struct array_wanted *w,
	     struct span json, struct kv **ret, const struct store **ret_store);
typedef int array_read_fn(void *arg, uint64_t off, size_t n, void *p);
/*
 * Settle a compression of AUTO by the array's first elements, which read gives as they are to be
 * stored. The bytes that it may read begin at 0 and are at most array_sample_bytes().
 */
int array_choose(const struct draft_env *env, struct array_layout *l, enum dtype t, unsigned rank,
		 const uint64_t *shape, array_read_fn *read, void *arg);
uint64_t array_sample_bytes(const struct array_layout *l, unsigned rank, const uint64_t *shape);
/*
 * Whether the chunks of a stored array are compressed as the layout asks for: 1, and the layout has
 * their compression then; 0, they are not. What AUTO is, a sample of the array says.
 */
int array_takes_stored(const struct draft_env *env, struct array_layout *l, struct zarr *from);
/*
 * Encode it for `w` into a new kv of the node's item, which replaces its kv. read gives the bytes
 * of the file's elements.
 */
int array_encode(struct draft_node *n, struct draft_array *a, const struct array_wanted *w,
		 array_read_fn *read, void *arg);
/*
 * What is stored fits `w` already, or only the document has to be given anew (which is done): 1;
 * 0 when it must be encoded.
 */
int array_fits(struct draft_node *n, struct draft_array *a, const struct array_wanted *w);

/* ---- parts of an array ---- */

/* A file name that is a part of a larger array: w[0:512,0:256]@1024x256.npy. */
struct draft_part {
	struct span stem; /* of the whole's name */
	unsigned rank;
	uint64_t start[LIMIT_RANK], extent[LIMIT_RANK], whole[LIMIT_RANK];
};

/* What a file's name says: 1 a part, 0 not; -EINVAL: its box is not a part of its shape. */
int draft_part_of(struct span name, struct draft_part *ret);
struct draft_env;
/*
 * Into how many slices, along which axis, a whole array is split that all active ranks of a job
 * write (replica_parallel); 1: none.
 */
unsigned collective_slices(const struct draft_env *env, unsigned rank, const uint64_t *shape,
			   uint64_t item, unsigned *ret_axis);
/*
 * The chunk shape for an array of `shape` that is written in blocks; chunks divide a block. By our
 * own choice: about 4 MiB, leading axes cut first.
 */
void array_default_chunk(unsigned rank, const uint64_t *shape, const uint64_t *block, uint64_t item,
			 bool divide, uint64_t ret[LIMIT_RANK]);

#endif
