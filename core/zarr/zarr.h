/* SPDX-License-Identifier: Apache-2.0 */
/*
 * zarr.h - arrays: any range of any view of an array, from only the chunks that it touches.
 *
 * zarr does not know where its keys live: it reads through a kv. An array is
 * opened from its metadata document, is immutable, and is counted, because
 * decoders and prefetch jobs may outlive the handle that opened it.
 */
#ifndef PYTREEFS_ZARR_H
#define PYTREEFS_ZARR_H

#include <stdatomic.h>

#include "core/base/budget.h"
#include "core/base/pool.h"
#include "core/io/segments.h"
#include "core/kv/kv.h"
#include "core/zarr/zarr_meta.h"

struct meta_cache;
struct meta_shared;
struct streams;
struct zarr_guess;

struct zarr;

/*
 * Other processes that decode some chunks for all. object: number of the stored object (a chunk or
 * a shard) in the array.
 */
struct zarr_remote {
	bool (*is_elsewhere)(struct zarr_remote *rm, const struct zarr *z, uint64_t object,
			     int *ret_rank);
	/* Bytes [off, off + n) of the decoded chunk `number`. -ENOTCONN: it cannot be had there. */
	int (*fetch)(struct zarr_remote *rm, const struct zarr *z, int rank, uint64_t number,
		     uint64_t off, size_t n, void *p);
};

/* Resources of the process that arrays share. Borrowed by every array; outlives them all. */
struct zarr_env {
	struct io_engine *io;
	struct pool *pool; /* NULL: no decode-ahead, one thread decodes */
	struct cache *cache;
	struct budget *budget;      /* what reading may hold beside the cache: read_budget */
	struct streams *streams;    /* decoders of large chunks, and their spill files */
	struct zarr_remote *remote; /* NULL: everything is decoded here */
	struct meta_cache *metas;   /* NULL: every array parses its own */

	/* Counters, for `.pytreefs/stats` and tests. */
	atomic_ullong chunks_decoded, chunk_bytes_decoded, chunk_bytes_stored;
	atomic_ullong chunks_missing, raw_bytes, prefetches;
};

struct zarr {
	struct zarr_env *env;
	struct zarr_meta meta;      /* a copy: what it points to is the shared one's */
	struct meta_shared *shared; /* a reference */
	struct kv *kv;              /* a reference */
	char *prefix;               /* of its keys, with the slash: "params.w/", or "" */
	size_t prefix_len;
	uint64_t owner;        /* of cache entries: the item's */
	uint32_t tag;          /* which array of the owner */
	struct span address;   /* by which other processes know it; owned; p NULL: they do not */
	bool missing_is_error; /* a chunk that is not stored is corruption */
	atomic_uint refs;

	/* The innermost chunks: what is decoded at once. Derived from meta. */
	const struct zarr_level *leaf;
	uint64_t leaf_chunk[LIMIT_RANK];  /* extent per axis of the array */
	uint64_t leaf_grid[LIMIT_RANK];   /* how many per axis */
	uint64_t leaf_stride[LIMIT_RANK]; /* bytes between neighbours of an axis inside a chunk */
	bool leaf_in_order;               /* chunk bytes are in the array's C order */
	bool leaf_raw;                    /* stored bytes are the elements, as we show them */
};

/*
 * Open the array whose metadata is the key prefix + ".zarray" or "zarr.json" (prefix empty or with
 * a slash at its end). owner and tag name it in the cache. -ENOENT: no such metadata.
 */
int zarr_open(struct zarr_env *env, struct kv *kv, struct span prefix, uint64_t owner, uint32_t tag,
	      struct zarr **ret);
/* Let other processes decode chunks of it; they know it by the address, which is copied. */
int zarr_set_address(struct zarr *z, struct span address);
/*
 * For another process: bytes [off, off + n) of the decoded chunk of that number, whole elements.
 * What is not stored is the fill value.
 */
int zarr_chunk_bytes(struct zarr *z, uint64_t number, uint64_t off, size_t n, void *p);
struct zarr *zarr_ref(struct zarr *z);
/* Accepts NULL. */
void zarr_unref(struct zarr *z);
DEFINE_AUTO(zarr, struct zarr, zarr_unref);

/* One axis of a view: `count` positions from start on, step apart. */
struct zarr_axis {
	uint64_t start, step, count;
	bool drop; /* an integer index: the axis is not in the result */
};

/* What is shown of an array: shape applied first, then box, then cast. Plain data. */
struct zarr_view {
	unsigned rank; /* of the array */
	struct zarr_axis axis[LIMIT_RANK];
	uint64_t shape[LIMIT_RANK]; /* the padded or truncated shape that axis positions refer to */
	enum dtype dtype;           /* of the result */
	uint64_t n_elements, bytes; /* of the result; set by zarr_view_finish() */
	bool plain;                 /* the whole array as it is */
};

/* The whole array. */
void zarr_view_whole(const struct zarr_meta *m, struct zarr_view *ret);
/* Padded with zeros or truncated to shape; -EINVAL when the ranks differ. Before any box. */
int zarr_view_reshape(struct zarr_view *v, unsigned rank, const uint64_t *shape);
/* Narrow one axis; -EINVAL when it does not lie within the shape. */
int zarr_view_slice(struct zarr_view *v, unsigned axis, uint64_t start, uint64_t step,
		    uint64_t count, bool drop);
/* Another element type; sizes are computed, too. */
int zarr_view_cast(struct zarr_view *v, enum dtype to);
/* Compute sizes; -EFBIG when they do not fit. Call after the last change. */
int zarr_view_finish(struct zarr_view *v);
/* Shape of the result: its rank is returned. */
unsigned zarr_view_result(const struct zarr_view *v, uint64_t ret_shape[LIMIT_RANK]);

/*
 * Bytes [off, off + n) of the view's elements in C order, little-endian, appended to g. The range
 * must lie inside the view. Decodes what it touches in parallel; waits for read_budget.
 * -EUCLEAN, -EBADMSG: a chunk is broken (the note names it, and where it is stored).
 */
int zarr_read(struct zarr *z, const struct zarr_view *v, uint64_t off, size_t n,
	      struct segments *g);
/* The same, copied to p. */
int zarr_read_into(struct zarr *z, const struct zarr_view *v, uint64_t off, size_t n, void *p);
/*
 * Begin to decode the chunks of a range in the background. Never fails: it is only a hint. guess
 * (guess.h): for a reader that may come; NULL for one that reads on.
 */
void zarr_prefetch(struct zarr *z, const struct zarr_view *v, uint64_t off, uint64_t n,
		   struct zarr_guess *guess);
/*
 * A reader in order that had read the first `from` bytes of the view has now read `to`, and will
 * not come back: decoded chunks that lie before that may go. Whole arrays only; nothing happens to
 * other views.
 */
void zarr_drop_behind(struct zarr *z, const struct zarr_view *v, uint64_t from, uint64_t to);

/*
 * The next hole or data at or after off (whence SEEK_HOLE or SEEK_DATA) in the bytes of the view:
 * chunks that are not stored and read as zeros. Returns v->bytes for "none before the end". An
 * array of very many chunks, or whose fill value is not zero, is all data.
 */
int zarr_seek(struct zarr *z, const struct zarr_view *v, uint64_t off, int whence, uint64_t *ret);

/* Where the first chunk of an array is stored. */
struct zarr_place {
	uint64_t ino, off; /* of its file; in it */
};
/* 1; 0 when it is not stored, or not in a file of its own. */
int zarr_place(struct zarr *z, struct zarr_place *ret);

/* Bytes and number of stored chunk objects, metadata not counted. */
int zarr_stored(struct zarr *z, uint64_t *ret_bytes, uint64_t *ret_objects);
/*
 * Of those bytes, how many no checksum covers: neither the codecs', nor that of the value, nor
 * (has_nodes: what is inline lies in one) that of a node.
 */
int zarr_unsummed(struct zarr *z, bool has_nodes, uint64_t *ret);
/* The plan of a read without doing it, one line per box, chunk, key and place, or a JSON array; for
 * `explain`. */
int zarr_explain(struct zarr *z, const struct zarr_view *v, uint64_t off, uint64_t n, bool json,
		 struct buf *out);

#endif
