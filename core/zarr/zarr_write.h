/* SPDX-License-Identifier: Apache-2.0 */
/*
 * zarr_write.h - arrays written as a stream: C-order bytes in, encoded chunks out.
 *
 * The stream is cut into bands: runs of bytes that hold whole chunks. A full band
 * is encoded by a job of the pool while the next one is being filled. Memory
 * comes from the write budget, band by band; a writer that gets none waits as
 * long as encoding is under way somewhere, which gives some back. Only when none
 * is (every band is half full) is it told to keep its bytes elsewhere (-EAGAIN).
 *
 * Nothing that was accepted is lost: a band that cannot be stored (-ENOSPC) stays
 * in memory and is tried again by the next call.
 */
#ifndef PYTREEFS_ZARR_WRITE_H
#define PYTREEFS_ZARR_WRITE_H

#include <pthread.h>

#include "core/zarr/zarr.h"

/* Resources that all writers of a process share. */
struct write_env {
	struct zarr_env *env;  /* pool, cache, engine; borrowed */
	struct budget *budget; /* write_budget */
	pthread_mutex_t lock;
	pthread_cond_t done; /* a band was encoded */
	unsigned under_way;  /* bands being encoded; protected by lock */
	/* Counters: encoded chunks, their bytes before and after; those that were copied as stored.
	 */
	atomic_ullong chunks, chunk_bytes, stored_bytes, copied_chunks, copied_bytes;
	/* Arrays for which compression=auto chose each enum compression_kind by a sample. */
	atomic_ullong chosen[COMPRESSION_AUTO];
};
void write_env_init(struct write_env *we, struct zarr_env *env, struct budget *budget);
void write_env_release(struct write_env *we);

struct zarr_writer;

/* Chunks that hold nothing but the fill value. */
enum zarr_fill {
	ZARR_FILL_STORE, /* as any other: a chunk that is absent is damage */
	ZARR_FILL_OMIT,  /* not stored; those that are too large to be looked at as a whole are */
};

/*
 * Write the array that meta describes (borrowed; kept by the caller until the writer is closed) into
 * kv, a reference, whose keys have no prefix: the metadata document is put first, then chunks. meta
 * must have been made from `json` by zarr_meta_parse(), its elements in C order and little-endian.
 */
int zarr_writer_open(struct write_env *we, struct kv *kv, struct span json, enum zarr_fill fill,
		     struct zarr_writer **ret);
/*
 * The array's document is not settled: before anything is encoded, choose() gets the first band,
 * which has all bytes of the first chunk that are within the array, and appends another document
 * of the same array, other codecs apart. To be called before the first byte is written.
 */
typedef int zarr_choose_fn(void *arg, struct span band, struct buf *ret_json);
void zarr_writer_defer(struct zarr_writer *w, zarr_choose_fn *choose, void *arg);
/* Bytes that one band takes from the budget. */
uint64_t zarr_writer_cost(const struct zarr_writer *w);
const struct zarr_meta *zarr_writer_meta(const struct zarr_writer *w);
/* What is stored so far, as an array to be read. Borrowed. */
struct zarr *zarr_writer_array(const struct zarr_writer *w);

enum zarr_writer_wait {
	ZARR_WRITER_TRY,   /* -EAGAIN when memory is short and no writer will give any back */
	ZARR_WRITER_BLOCK, /* wait for the budget; the caller holds nothing of it */
};
/*
 * The next n bytes. For one thread at a time. ret_taken is how many were accepted: all of them on
 * success, perhaps some on failure. -EAGAIN: no memory, nothing is lost. Another error: of a band
 * before; the call may be made again. -EFBIG: beyond the array's end.
 */
int zarr_writer_append(struct zarr_writer *w, const void *p, size_t n, enum zarr_writer_wait wait,
		       size_t *ret_taken);
/*
 * Wait until everything accepted is stored; tries failed bands again. At the end of the array this
 * completes it; earlier it leaves the last, half full band where it is.
 */
int zarr_writer_flush(struct zarr_writer *w);
/* Bytes [off, off + n) of what was accepted. */
int zarr_writer_read(struct zarr_writer *w, uint64_t off, size_t n, void *p);
/* Gives back all memory; what is not flushed is lost. Waits for jobs. Accepts NULL. */
void zarr_writer_close(struct zarr_writer *w);
DEFINE_AUTO(zarr_writer, struct zarr_writer, zarr_writer_close);

/* Where a long write gets its bytes: n bytes at off of the array's C-order stream. */
typedef int zarr_source_fn(void *arg, uint64_t off, size_t n, void *p);
/*
 * Write the whole array from a source, with bounded memory whatever the size of a chunk: chunks
 * beyond the budget are encoded as streams. Blocks for the budget.
 */
int zarr_write_all(struct write_env *we, struct kv *kv, struct span json, enum zarr_fill fill,
		   zarr_source_fn *source, void *arg);

#endif
