/* SPDX-License-Identifier: Apache-2.0 */
/*
 * draft_file.h - the contents of a file of a draft.
 *
 * Contents are in one of four places, and move on by themselves:
 *
 *     memory     all bytes, while they are few
 *     stream     an .npy or safetensors file that is written from front to back:
 *                the header in memory, the elements on their way into chunks
 *     staged     an unlinked file beside the draft: everything else (written out of
 *                order, mapped, rewritten, truncated, no known format)
 *     stored     header in memory, all elements encoded
 *
 * What was written reads back byte for byte from each of them. A file that is
 * written again goes back to staged. Nothing is lost on the way when a write
 * fails: the bytes that were accepted stay where they are.
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
	struct draft_node *node; /* not counted: the node owns the file */
	pthread_mutex_t lock;    /* protects all below */
	enum draft_place place;
	uint64_t size;   /* of the file */
	uint64_t pos;    /* MEMORY, STREAM: bytes written from the front without a gap */
	struct buf head; /* MEMORY: all of them; else the header */
	struct io_file *staged;
	struct safetensors st; /* of a safetensors file that streams or is stored */
	struct draft_array *array;
	size_t n_arrays, at_array;
	unsigned writers;     /* handles open for writing */
	unsigned unflushed;   /* of them: not closed by their program since it wrote */
	int failed;           /* of background work: reported once */
	struct err_note *why; /* its note, which is long and mostly not there; or NULL */
	int lost; /* why bytes from a map are lost: reported until it is written anew, or synced */
	bool nameless;    /* staged for good: no leaf of the step any more */
	unsigned readers; /* handles open, for whatever */
	/* During a commit that takes its chunks away: all bytes, for those that have it open. */
	struct io_file *retained;
	bool moving; /* such a commit is under way */
	bool moved;  /* its chunks belong to another array since the commit, and nobody had it open:
		      * -ESTALE for readers */
};

int draft_file_new(struct draft_node *n, struct draft_file **ret);
void draft_file_free(struct draft_file *f);

uint64_t draft_file_size(struct draft_file *f);
/* Bytes that its contents take on the disk so far. */
uint64_t draft_file_stored(struct draft_file *f);
int draft_file_read(struct draft_file *f, uint64_t off, size_t n, struct segments *g);
/* The same into memory; zeros are not added: -EINVAL beyond the end. For commits. */
int draft_file_read_into(struct draft_file *f, uint64_t off, size_t n, void *p);
/* Bytes accepted, all of them unless an error follows. */
ssize_t draft_file_write(struct draft_file *f, uint64_t off, const void *p, size_t n);
int draft_file_truncate(struct draft_file *f, uint64_t size);
/*
 * One handle for writing. Its flushed flag says that close(2) was seen, and nothing written since;
 * several threads may use one handle, so that the flag is only read and set under the file's lock.
 */
/* No commit begins until it is closed. As draft_check_life() when one has begun, or has ended. */
int draft_file_opened(struct draft_file *f);
void draft_file_flush(struct draft_file *f, bool *flushed, bool now);
/* It is gone. After the last one what can be encoded is, and memory is given back. */
void draft_file_closed(struct draft_file *f, const bool *flushed);
/* CLOSING: all handles were closed by their programs, and the kernel has yet to let go of them. */
enum draft_open { DRAFT_OPEN_CLOSED, DRAFT_OPEN_CLOSING, DRAFT_OPEN_WRITING };
enum draft_open draft_file_is_open(struct draft_file *f);
/* The error of background work, reported once; 0 when there was no error. */
int draft_file_failed(struct draft_file *f);
/* Bytes that were written through a map are lost, by that errno. */
void draft_file_lose(struct draft_file *f, int code);
/* One handle more, or less. -ESTALE for one more: its chunks are another array's. */
int draft_file_used(struct draft_file *f, bool begins);
/*
 * For a commit that will give its chunks to another array. Before: when somebody has it open, or
 * opens it meanwhile, its bytes are copied, so that they are there until it is closed; without room
 * for that the log says so. After: it has become a part of another one. Or the commit failed.
 */
void draft_file_keep(struct draft_file *f);
void draft_file_moved(struct draft_file *f);
void draft_file_stays(struct draft_file *f);
/* The failure of a commit when some are; else 0. */
int draft_file_check_lost(struct draft_file *f);
/*
 * Its name is gone, or another file's: whoever has it open goes on with a file of its own, and
 * nothing that is written to it comes near the step.
 */
void draft_file_unname(struct draft_file *f);
/* Everything accepted is encoded or staged, and its values are durable: fsync(2). */
int draft_file_sync(struct draft_file *f);

/*
 * Move the stored chunks of a leaf into this empty file without decoding them: 1 when that was
 * possible, 0 when the file must be written in the ordinary way.
 */
int draft_file_copy_leaf(struct draft_file *f, struct zarr *source);

/* ---- between draft_file.c, draft_stream.c and draft_array.c; called with the file's lock held
 * ---- */

/* Background work failed: the next call that touches the file, or the commit, tells. */
void draft_file_fail(struct draft_file *f, int r);
/* That error, which is reported by now; 0: none. */
int draft_file_report(struct draft_file *f);
/* Whether a stream can begin with what the head has: 1 arrays are set; 0 not; errors only for
 * memory. */
int draft_stream_begin(struct draft_file *f);
/* The next bytes of the elements; ret_taken of them were accepted. -EAGAIN: no memory for a stream.
 */
int draft_stream_append(struct draft_file *f, const uint8_t *p, size_t n, size_t *ret_taken);
/* Any bytes of the file, zeros where nothing was written. */
int draft_file_read_locked(struct draft_file *f, uint64_t off, size_t n, uint8_t *p);
/* Bytes of a file that streams or is stored. */
int draft_stream_read(struct draft_file *f, uint64_t off, size_t n, uint8_t *p);
/* All arrays complete: the file becomes stored. 1, or 0 when bytes are missing. */
int draft_stream_finish(struct draft_file *f);
/* Let go of the arrays. */
void draft_arrays_release(struct draft_file *f);
/* All contents in an unlinked file beside the draft. */
int draft_file_copy_contents(struct draft_file *f, struct io_file **ret);
/* Move all contents to a staged file. On failure nothing has changed. */
int draft_file_stage(struct draft_file *f);
/* Encode the arrays of a staged (or small) file; the file becomes stored, or stays staged when it
 * is cast. */
int draft_file_encode(struct draft_file *f);
/* What the contents are by their first bytes, and the header when they are arrays: 1; 0 more bytes
 * are needed; -EUCLEAN or -EOPNOTSUPP: none. Sets array, st and the length of the header. */
int draft_file_sniff(struct draft_file *f, struct span head, uint64_t *ret_head);

/*
 * For the commit: the file's arrays encoded as the options in force ask for. Encodes what is not,
 * or encodes again what was encoded for other options. -EINVAL: malformed, incomplete, or no leaf
 * at all.
 */
int draft_file_seal(struct draft_file *f);
/* For the commit: the contents are bytes and no arrays, and leave their item's store. On failure
 * nothing has changed. */
int draft_file_unstore(struct draft_file *f);
/* Called with the file's lock held: what was encoded is an .npy array. */
static inline bool draft_file_is_npy(const struct draft_file *f)
{
	return f->n_arrays == 1 && !f->array[0].name.p;
}

#endif
