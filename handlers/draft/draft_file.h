/* SPDX-License-Identifier: Apache-2.0 */
/*
 * draft_file.h - the contents of a file of a draft.
 *
 * Contents are in one of four places, and move from one to the next by themselves:
 *
 *     memory     all bytes of a small file
 *     stream     an .npy or safetensors file that is written from front to back: the header is in
 *                memory, and the elements are encoded into chunks
 *     staged     an unlinked file beside the draft, for everything else: files that are written out
 *                of order, mapped, rewritten or truncated, and unknown formats
 *     stored     the header is in memory, and all elements are encoded
 *
 * Contents read back byte for byte from each place. A file that is written again becomes staged.
 * When a write fails, the bytes that were accepted remain where they are.
 *
 * All functions lock the file.
 */
#ifndef PYTREEFS_DRAFT_FILE_H
#define PYTREEFS_DRAFT_FILE_H

#include "core/base/err.h"
#include "handlers/draft/draft.h"
#include "handlers/draft/draft_array.h"
#include "handlers/format/npy.h"
#include "handlers/format/safetensors.h"

enum draft_place { PLACE_MEMORY, PLACE_STREAM, PLACE_STAGED, PLACE_STORED };

struct draft_file {
	struct draft_node *node; /* not counted, since the node owns the file */
	pthread_mutex_t lock;    /* protects all members below */
	enum draft_place place;
	uint64_t size;   /* of the whole file */
	uint64_t pos;    /* MEMORY, STREAM: number of bytes written in order from the front */
	struct buf head; /* MEMORY: all bytes; STREAM, STORED: the header */
	struct io_file *staged;
	struct safetensors st; /* for a safetensors file that streams or is stored */
	struct draft_array *array;
	size_t n_arrays, at_array;
	unsigned writers; /* handles open for writing */
	/* the writers whose program has not closed its file descriptor since its last write */
	unsigned unflushed;
	int failed; /* errno of background work, which is reported once */
	/* the note of that error, allocated since it is long and rare; or NULL */
	struct err_note *why;
	/*
	 * errno with which bytes from a map were lost; reported until the file is written anew or
	 * synced
	 */
	int lost;
	bool nameless;    /* removed or replaced: staged for good, and not a leaf of the step */
	unsigned readers; /* open handles, of any kind */
	/* A copy of all bytes for open handles, while a commit moves the chunks elsewhere. */
	struct io_file *retained;
	bool moving; /* such a commit is in progress */
	/*
	 * a commit moved its chunks to another array while it was not open: -ESTALE for new readers
	 */
	bool moved;
};

int draft_file_new(struct draft_node *n, struct draft_file **ret);
void draft_file_free(struct draft_file *f);

uint64_t draft_file_size(struct draft_file *f);
/* Returns the bytes that the contents take on disk so far. */
uint64_t draft_file_stored_bytes(struct draft_file *f);
int draft_file_read(struct draft_file *f, uint64_t off, size_t n, struct segments *g);
/* Read into memory, for commits. Does not append zeros: -EINVAL beyond the end. */
int draft_file_read_into(struct draft_file *f, uint64_t off, size_t n, void *p);
/* The same of its first `size` bytes, in place of what ret has. ret->p is never NULL. */
int draft_file_read_whole(struct draft_file *f, uint64_t size, struct buf *ret);
/* Returns the number of bytes that were accepted: all, unless an error occurred. */
ssize_t draft_file_write(struct draft_file *f, uint64_t off, const void *p, size_t n);
int draft_file_truncate(struct draft_file *f, uint64_t size);
/*
 * Handles for writing. The `flushed` flag of a handle is set after close(2) until the next write.
 * Threads may share a handle, so the flag is only accessed with the file's lock held.
 */
/*
 * Open a handle. No commit begins until it is closed. Fails like draft_check_life() when a commit
 * has begun, or the draft has ended.
 */
int draft_file_opened(struct draft_file *f);
void draft_file_flush(struct draft_file *f, bool *flushed, bool now);
/*
 * Release a handle. After the last one, contents are encoded where possible, and memory is freed.
 */
void draft_file_closed(struct draft_file *f, const bool *flushed);
/* CLOSING: all programs have closed the file, but the kernel has not yet released the handles. */
enum draft_open { DRAFT_OPEN_CLOSED, DRAFT_OPEN_CLOSING, DRAFT_OPEN_WRITING };
enum draft_open draft_file_is_open(struct draft_file *f);
/* Returns the error of background work, once; 0: no error. */
int draft_file_take_error(struct draft_file *f);
/* Record that bytes written through a map were lost with errno `code`. */
void draft_file_set_lost(struct draft_file *f, int code);
/* Add or remove an open handle. -ESTALE when adding one: the chunks now belong to another array. */
int draft_file_used(struct draft_file *f, bool begins);
/*
 * For a commit that moves the chunks to another array. draft_file_keep() comes first: if the file
 * is open, or is opened during the commit, its bytes are copied, so that they can be read until it
 * is closed; without space for the copy it logs a warning. After the commit, draft_file_moved()
 * says that it succeeded, draft_file_stays() that it failed.
 */
void draft_file_keep(struct draft_file *f);
void draft_file_moved(struct draft_file *f);
void draft_file_stays(struct draft_file *f);
/* Returns the error for a commit of a file with lost bytes; else 0. */
int draft_file_check_lost(struct draft_file *f);
/*
 * The name was removed or given to another file. Programs that have the file open continue with a
 * file that is not part of the step.
 */
void draft_file_unname(struct draft_file *f);
/* Make everything accepted durable, encoded or staged: fsync(2). */
int draft_file_sync(struct draft_file *f);

/*
 * Move the stored chunks of a leaf into this empty file without decoding them. Returns 1 on
 * success, 0 when the file must be written in the ordinary way.
 */
int draft_file_copy_leaf(struct draft_file *f, struct zarr *source);

/*
 * ---- between draft_file.c, draft_stream.c and draft_array.c; called with the file's lock held
 * ----
 */

/* Record a failure of background work. The next call for the file, or the commit, reports it. */
void draft_file_set_error(struct draft_file *f, int r);
/* Returns that error and clears it; 0: no error. */
int draft_file_take_error_locked(struct draft_file *f);
/*
 * Try to begin a stream with the bytes in head. 1: the arrays are set; 0: no stream is possible.
 * Fails only for lack of memory.
 */
int draft_stream_begin(struct draft_file *f);
/*
 * Append the next bytes of the elements; *ret_taken is the number of accepted ones. -EAGAIN: no
 * memory for a stream.
 */
int draft_stream_append(struct draft_file *f, const uint8_t *p, size_t n, size_t *ret_taken);
/* Read any bytes of the file; bytes that were never written are zeros. */
int draft_file_read_locked(struct draft_file *f, uint64_t off, size_t n, uint8_t *p);
/* Read bytes of a file that streams or is stored. */
int draft_stream_read(struct draft_file *f, uint64_t off, size_t n, uint8_t *p);
/* Try to end a stream. 1: all arrays are complete, and the file is stored; 0: bytes are missing. */
int draft_stream_finish(struct draft_file *f);
/* Release all arrays of the file. */
void draft_arrays_release(struct draft_file *f);
/* Copy all contents to an unlinked file beside the draft. */
int draft_file_copy_contents(struct draft_file *f, struct io_file **ret);
/* Move all contents to a staged file. On failure nothing changes. */
int draft_file_stage(struct draft_file *f);
/*
 * Encode the arrays of a staged or small file. The file becomes stored, or remains staged when it
 * is cast.
 */
int draft_file_encode(struct draft_file *f);
/*
 * Detect the format from the first bytes, and parse the header of arrays: 1; 0: more bytes are
 * needed; -EUCLEAN or -EOPNOTSUPP: not a file of arrays. Sets array, st and the length of the
 * header.
 */
int draft_file_sniff(struct draft_file *f, struct span head, uint64_t *ret_head);

/*
 * For the commit: encode the file's arrays for the present options, including those that were
 * encoded for other ones. -EINVAL: malformed, incomplete, or not a leaf.
 */
int draft_file_seal(struct draft_file *f);
/*
 * For the commit: treat the contents as bytes, not as arrays, and remove them from the item's
 * store. On failure nothing changes.
 */
int draft_file_unstore(struct draft_file *f);
/* Whether the encoded contents are one .npy array. The caller holds the file's lock. */
static inline bool draft_file_is_npy(const struct draft_file *f)
{
	return f->n_arrays == 1 && !f->array[0].name.p;
}

#endif
