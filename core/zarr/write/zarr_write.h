/* SPDX-License-Identifier: Apache-2.0 */
/*
 * zarr_write.h - write arrays as a stream: bytes in C order in, encoded chunks out.
 *
 * The stream is cut into bands: runs of bytes that contain whole chunks. A job of the pool encodes
 * a full band while the next one is being filled. Memory comes from the write budget, band by band.
 * A writer that gets none waits while any band is being encoded, since that will return some. Only
 * when none is (every band is partly filled) does it get -EAGAIN, and must keep its bytes
 * elsewhere.
 *
 * Accepted bytes are never lost: a band that cannot be stored (-ENOSPC) stays in memory, and the
 * next call tries again.
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
	pthread_cond_t done; /* signals that a band was encoded */
	unsigned under_way;  /* bands being encoded; protected by lock */
	/*
	 * Counters: encoded chunks, their bytes before and after encoding; chunks copied as stored.
	 */
	atomic_ullong chunks, chunk_bytes, stored_bytes, copied_chunks, copied_bytes;
	/*
	 * Asked between pieces of work, by any thread: an error of it ends them, and a failed band
	 * can be encoded again later. Set before the first writer is opened. NULL: nothing stops
	 * them.
	 */
	int (*check)(void *arg);
	void *check_arg;
	/* Arrays for which compression=auto chose each enum compression_kind by a sample. */
	atomic_ullong chosen[COMPRESSION_AUTO];
};
void write_env_init(struct write_env *we, struct zarr_env *env, struct budget *budget);
void write_env_release(struct write_env *we);
/* 0, or the error of check(). */
int write_env_check(const struct write_env *we);

/* The elements at [start, start + count) on each axis. All are borrowed. */
struct zarr_box {
	const uint64_t *start, *count;
	const uint64_t *stride; /* bytes between neighbours in memory; 0: one element is repeated */
	const void *p;          /* the first element */
};

struct zarr_writer;

/* The treatment of chunks that consist of the fill value. */
enum zarr_fill {
	ZARR_FILL_STORE, /* stored like others: an absent chunk is damage */
	ZARR_FILL_OMIT,  /* not stored, except those too large to be examined as a whole */
};

/*
 * Write the array that the document json describes into kv, to which the writer takes a reference;
 * its keys have no prefix. The document is put first, then chunks. Elements must be in C order and
 * little-endian (-EOPNOTSUPP).
 */
int zarr_writer_open(struct write_env *we, struct kv *kv, struct span json, enum zarr_fill fill,
		     struct zarr_writer **ret);
/*
 * The array's codecs are not decided yet. Before anything is encoded, choose() gets the first band,
 * which has all bytes of the first chunk that are inside the array, and appends another document of
 * the same array that differs only in codecs. Call before the first byte is written.
 */
typedef int zarr_choose_fn(void *arg, struct span band, struct buf *ret_json);
void zarr_writer_defer(struct zarr_writer *w, zarr_choose_fn *choose, void *arg);
/* The bytes of the budget that one band takes. */
uint64_t zarr_writer_cost(const struct zarr_writer *w);
/* The array as stored so far, for reading. Borrowed. */
struct zarr *zarr_writer_array(const struct zarr_writer *w);

enum zarr_writer_wait {
	ZARR_WRITER_TRY, /* -EAGAIN when memory is short and no writer will return any */
	/*
	 * Wait for the budget, of which the caller holds nothing. A band that fails is lost, and
	 * all later calls return its error: it would hold what this caller waits for.
	 */
	ZARR_WRITER_BLOCK,
};
/*
 * Append the next n bytes. For one thread at a time. ret_taken is the number of accepted bytes: all
 * on success, possibly some on failure. -EAGAIN: memory is short, nothing is lost. -EFBIG: beyond
 * the array's end. Any other error is that of an earlier band; the call may be repeated.
 */
int zarr_writer_append(struct zarr_writer *w, const void *p, size_t n, enum zarr_writer_wait wait,
		       size_t *ret_taken);
/*
 * Wait until all accepted bytes are stored; tries failed bands again. At the end of the array this
 * completes it; before that, the last, partly filled band stays in memory.
 */
int zarr_writer_flush(struct zarr_writer *w);
/* Read back bytes [off, off + n) of those accepted. */
int zarr_writer_read(struct zarr_writer *w, uint64_t off, size_t n, void *p);
/* Return all memory. Bytes that were not flushed are lost. Waits for jobs. Accepts NULL. */
void zarr_writer_close(struct zarr_writer *w);
DEFINE_AUTO(zarr_writer, struct zarr_writer, zarr_writer_close);

/* A source of the array's bytes: copy n bytes at off of the C-order stream to p. */
typedef int zarr_source_fn(void *arg, uint64_t off, size_t n, void *p);
/*
 * Write a whole array from a source in bounded memory, whatever the size of its chunks: chunks that
 * exceed the budget are encoded as streams. Blocks for the budget.
 */
int zarr_write_all(struct write_env *we, struct kv *kv, struct span json, enum zarr_fill fill,
		   zarr_source_fn *source, void *arg);

#endif
