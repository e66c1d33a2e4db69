/* SPDX-License-Identifier: Apache-2.0 */
/*
 * zarr.h - arrays: any range of any view of an array, read from only the chunks that it touches.
 *
 * zarr does not know where its keys are stored: it reads through a kv. An array is opened from its
 * metadata document, is immutable, and has a reference count, because decoders and prefetch jobs
 * may outlive the handle that opened it.
 */
#ifndef PYTREEFS_ZARR_H
#define PYTREEFS_ZARR_H

#include <pthread.h>
#include <stdatomic.h>

#include "core/base/budget.h"
#include "core/base/pool.h"
#include "core/io/segments.h"
#include "core/kv/kv.h"
#include "core/zarr/meta/zarr_meta.h"

struct meta_cache;
struct meta_shared;
struct streams;
struct zarr_guess;

struct zarr;

/*
 * Other processes, which decode some chunks for all. object is the number of the stored object (a
 * chunk or a shard) in the array.
 */
struct zarr_remote {
	bool (*is_elsewhere)(struct zarr_remote *rm, const struct zarr *z, uint64_t object,
			     int *ret_rank);
	/*
	 * Get bytes [off, off + n) of the decoded chunk `number`. -ENOTCONN: that process cannot
	 * provide them.
	 */
	int (*fetch)(struct zarr_remote *rm, const struct zarr *z, int rank, uint64_t number,
		     uint64_t off, size_t n, void *p);
};

/* Resources of the process that arrays share. Every array borrows them; they outlive all arrays. */
struct zarr_env {
	struct io_engine *io;
	struct pool *pool; /* NULL: no decode-ahead, and each reader decodes alone */
	struct cache *cache;
	struct budget *budget;      /* memory for reading besides the cache: read_budget */
	struct streams *streams;    /* decoders of large chunks, and their spill files */
	struct zarr_remote *remote; /* NULL: everything is decoded here */
	struct meta_cache *metas;   /* NULL: every array parses its own document */
	bool in_store;              /* each read of a file takes a round trip (io_store.h) */
	pthread_mutex_t slab_lock;  /* held while a slab is decoded (slab.h); zeroed is unlocked */

	/* Counters, for `.pytreefs/stats` and tests. */
	atomic_ullong chunks_decoded, chunk_bytes_decoded, chunk_bytes_stored;
	atomic_ullong chunks_missing, raw_bytes, prefetches;
};

struct zarr {
	struct zarr_env *env;
	struct zarr_meta meta;      /* a shallow copy of the shared one */
	struct meta_shared *shared; /* a reference */
	struct kv *kv;              /* a reference */
	char *prefix;               /* prefix of its keys, with the slash: "params.w/", or "" */
	size_t prefix_len;
	uint64_t owner; /* owner of cache entries: the item */
	uint32_t tag;   /* number of the array within the owner */
	/* the name by which other processes know the array; owned; p NULL: they do not know it */
	struct span address;
	bool missing_is_error; /* a chunk that is not stored is damage */
	bool any_bools;        /* of a file whose library takes other bytes than 0 and 1 as bools */
	atomic_uint refs;

	/* The innermost chunks, which are decoded as a unit. Derived from meta. */
	const struct zarr_level *leaf;
	uint64_t leaf_chunk[LIMIT_RANK];  /* extent on each axis of the array */
	uint64_t leaf_grid[LIMIT_RANK];   /* number of chunks on each axis */
	uint64_t leaf_stride[LIMIT_RANK]; /* bytes between neighbours on each axis within a chunk */
	bool leaf_in_order;               /* chunk bytes are in the array's C order */
	bool leaf_as_shown;               /* decoded bytes are the elements as they are shown */
	bool leaf_raw;                    /* and so are the stored bytes, unchecked */
};

/*
 * Open the array whose metadata has the key prefix + ".zarray" or "zarr.json" (prefix is empty or
 * ends with a slash). owner and tag identify it in the cache. -ENOENT: there is no such metadata.
 */
int zarr_open(struct zarr_env *env, struct kv *kv, struct span prefix, uint64_t owner, uint32_t tag,
	      struct zarr **ret);
/*
 * Let other processes decode chunks of the array, which they know by the address; the address is
 * copied.
 */
int zarr_set_address(struct zarr *z, struct span address);
/*
 * Convert n bytes of decoded elements, in place, to the form in which they are shown. -EUCLEAN: a
 * bool is neither 0 nor 1, which TensorStore refuses.
 */
int zarr_to_shown(const struct zarr *z, void *p, size_t n);
/*
 * For another process: copy bytes [off, off + n) of the decoded chunk of that number, whole
 * elements. A chunk that is not stored has the fill value.
 */
int zarr_chunk_bytes(struct zarr *z, uint64_t number, uint64_t off, size_t n, void *p);
/* Append the key of a stored object, by its index in the grid. */
int zarr_object_key(const struct zarr *z, const uint64_t *index, struct buf *ret);
/* Locate a stored object; KV_ABSENT: it is not stored. */
int zarr_object_locate(const struct zarr *z, const uint64_t *index, struct kv_loc *ret);
struct zarr *zarr_ref(struct zarr *z);
/* Accepts NULL. */
void zarr_unref(struct zarr *z);
DEFINE_AUTO(zarr, struct zarr, zarr_unref);

/* One axis of a view: `count` positions, from start on and step apart. */
struct zarr_axis {
	uint64_t start, step, count;
	bool drop; /* an integer index: the result does not have the axis */
};

/*
 * The shown part of an array. The shape is applied first, then the box, then the cast. Plain data.
 */
struct zarr_view {
	unsigned rank; /* of the array */
	struct zarr_axis axis[LIMIT_RANK];
	/* the padded or truncated shape to which axis positions refer */
	uint64_t shape[LIMIT_RANK];
	enum dtype dtype;           /* of the result */
	uint64_t n_elements, bytes; /* of the result; set by zarr_view_finish() */
	bool plain;                 /* the whole array, unchanged */
};

/* A view of the whole array. */
void zarr_view_whole(const struct zarr_meta *m, struct zarr_view *ret);
/*
 * Pad with zeros or truncate to shape; -EINVAL when the ranks differ. Call before
 * zarr_view_slice().
 */
int zarr_view_reshape(struct zarr_view *v, unsigned rank, const uint64_t *shape);
/* Restrict one axis; -EINVAL when the range exceeds the shape. */
int zarr_view_slice(struct zarr_view *v, unsigned axis, uint64_t start, uint64_t step,
		    uint64_t count, bool drop);
/* Change the element type; also computes sizes. */
int zarr_view_cast(struct zarr_view *v, enum dtype to);
/* Compute sizes; -EFBIG when they do not fit. Call after the last change. */
int zarr_view_finish(struct zarr_view *v);
/* Set the shape of the result; returns its rank. */
unsigned zarr_view_result(const struct zarr_view *v, uint64_t ret_shape[LIMIT_RANK]);

/*
 * Append bytes [off, off + n) of the view to g: elements in C order, little-endian. The range must
 * be inside the view. Decodes the chunks in parallel; waits for read_budget. -EUCLEAN, -EBADMSG: a
 * chunk is damaged (the note names it, and where it is stored).
 */
int zarr_read(struct zarr *z, const struct zarr_view *v, uint64_t off, size_t n,
	      struct segments *g);
/* The same, copied to p; v NULL: of the whole array. */
int zarr_read_into(struct zarr *z, const struct zarr_view *v, uint64_t off, size_t n, void *p);
/*
 * Begin to decode the chunks of a range in the background. This is only a hint and never fails.
 * guess (guess.h) is for a reader that may come; NULL for one that is reading sequentially.
 */
void zarr_prefetch(struct zarr *z, const struct zarr_view *v, uint64_t off, uint64_t n,
		   struct zarr_guess *guess);
/*
 * A sequential reader that had read the first `from` bytes of the view has now read `to`, and will
 * not come back: decoded chunks before that are evicted first. Only for views of whole arrays, and
 * for arrays whose chunks no other process may want from this one; others are ignored.
 */
void zarr_drop_behind(struct zarr *z, const struct zarr_view *v, uint64_t from, uint64_t to);

/*
 * Find the next hole or data at or after off (whence SEEK_HOLE or SEEK_DATA) in the bytes of the
 * view. A hole is a chunk that is not stored and reads as zeros. ret is v->bytes when there is no
 * further one. An array of very many chunks, or with a fill value other than zero, is all data.
 */
int zarr_seek(struct zarr *z, const struct zarr_view *v, uint64_t off, int whence, uint64_t *ret);

/* Where the first chunk of an array is stored. */
struct zarr_place {
	uint64_t ino, off; /* inode of its file; offset in it */
};
/* Returns 1; 0 when the chunk is not stored, or is not in a file. */
int zarr_place(struct zarr *z, struct zarr_place *ret);

/* A view that can be mapped: its elements are in one file as they are shown, with strides. */
struct zarr_mapped {
	struct io_file *file;       /* a reference */
	uint64_t off, bytes;        /* from the first element to the end of the last one */
	int64_t stride[LIMIT_RANK]; /* in bytes, by axis of the result */
};
/*
 * Returns 1; 0 for a view without elements, and for a small one whose value is in the index of its
 * database: nothing to map. -EOPNOTSUPP, with the reason: it can be read, not mapped.
 */
int zarr_find_mapped(struct zarr *z, const struct zarr_view *v, struct zarr_mapped *ret);

/*
 * Size and number of stored chunk objects, without metadata. On a server that cannot list, an
 * estimate from the first one.
 */
int zarr_stored(struct zarr *z, uint64_t *ret_bytes, uint64_t *ret_objects);
/*
 * The number of those bytes that no checksum covers: neither one of the codecs, nor that of the
 * value, nor that of a node (has_nodes: inline values are in one). Of many objects only some are
 * examined, in a store very few; the others are assumed to be like the last one before them.
 */
int zarr_unsummed(struct zarr *z, bool has_nodes, uint64_t *ret);
/*
 * Append the plan of a read, without reading: one line per box, chunk, key and place, or a JSON
 * array. For `explain`.
 */
int zarr_explain(struct zarr *z, const struct zarr_view *v, uint64_t off, uint64_t n, bool json,
		 struct buf *out);

#endif
