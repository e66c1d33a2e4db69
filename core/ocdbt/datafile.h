/* SPDX-License-Identifier: Apache-2.0 */
/*
 * datafile.h - one data file that is being written. Private to data.c and datafile.c.
 */
#ifndef PYTREEFS_OCDBT_DATAFILE_H
#define PYTREEFS_OCDBT_DATAFILE_H

#include <pthread.h>

#include "core/io/io.h"

#define DATAFILE_BUFFER ((size_t)1 << 20) /* pieces up to this size are gathered */

/* Bytes that were written at once, so that they can be distinguished from what a failed sync made
 * of them. */
struct datafile_part {
	uint64_t off;
	uint32_t len;
	uint32_t from, crc; /* crc32c of the value's bytes before it, and with it */
	bool is_unknown;    /* cut by a rewind, and not read back: crc means nothing */
};

/*
 * Of one thread at a time, but for datafile_peek(). Bytes below start have been written, the rest
 * is in buf; start + buf.n is the end of the last piece that was accepted.
 */
struct datafile {
	struct datafile *next;      /* of all files, the newest first; data.c's */
	struct datafile *idle_next; /* data.c's */
	struct io_file *file;       /* NULL: closed */
	uint64_t high;              /* bytes ever written: more than start after a rewind */
	uint64_t behind;            /* the disk was asked to begin with the bytes below */
	uint64_t flushed; /* the disk has the bytes below, and the page cache forgot them */
	int refused;    /* the disk said so meanwhile: what the next sync reports; 0: it did not */
	bool is_dirty;  /* written to since it was synced */
	bool is_lost;   /* a sync failed: datafile_mend() before anything else */
	bool is_mended; /* after that: what the next sync says is believed only when it was read
			   back */
	struct datafile_part *part; /* all bytes below start, in order: n_parts of them */
	size_t n_parts, cap_parts;

	pthread_mutex_t lock; /* its thread takes it to change what follows */
	uint64_t start;
	struct buf buf;
	char name[]; /* path below the directory */
};

/* Make the file `<prefix><id in hex>`, and its directories when they are absent. */
int datafile_new(struct io_dir *dir, const char *prefix, const uint8_t id[16], unsigned dir_mode,
		 struct datafile **ret);
/* The file on the disk stays. Accepts NULL. */
void datafile_free(struct datafile *f);

static inline uint64_t datafile_end(const struct datafile *f)
{
	return f->start + f->buf.n;
}

/*
 * All of the piece or, with an error, nothing of it. crc: NULL, or continued by the piece (crc32c),
 * at no cost where the piece is large: the checksums of parts are continued from it.
 */
int datafile_add(struct datafile *f, struct span piece, uint32_t *crc);
/* Drop what was added since the end was at `end`. */
void datafile_rewind(struct datafile *f, uint64_t end);
/* Write what is gathered. */
int datafile_flush(struct datafile *f);
/*
 * What the file holds is on the disk; its name is not yet. When it is the sync itself that fails the
 * kernel may have dropped pages, and a second one would succeed and mean nothing: the file is lost
 * until it is mended. A disk that failed once is not believed: then all is read back and compared.
 */
int datafile_sync(struct datafile *f);
/*
 * Read everything that was written back, compare it with its checksums, and write it again, so that
 * the next sync means what it says. -EIO: it is not what was written; nothing but writing it anew
 * helps.
 */
int datafile_mend(struct datafile *f);
/* Give up descriptor and buffer; everything is written. */
void datafile_close(struct datafile *f);
/*
 * Any thread: copy the range when it is still gathered, and say so. False: it is in the file, or no
 * such range.
 */
int datafile_peek(struct datafile *f, uint64_t off, uint64_t len, struct buf *ret,
		  bool *ret_gathered);

#endif
