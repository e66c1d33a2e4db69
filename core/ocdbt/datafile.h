/* SPDX-License-Identifier: Apache-2.0 */
/*
 * datafile.h - one data file that is being written. Private to data.c and datafile.c.
 */
#ifndef PYTREEFS_OCDBT_DATAFILE_H
#define PYTREEFS_OCDBT_DATAFILE_H

#include <pthread.h>

#include "core/ocdbt/ocdbt.h"

/* pieces up to this size are collected before they are written */
#define DATAFILE_BUFFER ((size_t)1 << 20)

/*
 * Bytes that were written together, with the checksum that tells whether a failed sync changed
 * them.
 */
struct datafile_part {
	uint64_t off;
	uint32_t len;
	uint32_t from, crc; /* crc32c of the value's bytes before the part, and including it */
	bool is_unknown;    /* shortened by a rewind and not read back: crc is invalid */
};

/*
 * Used by one thread at a time, except for datafile_peek(). Bytes below `start` have been written,
 * the others are in buf; start + buf.n is the end of the last accepted piece.
 */
struct datafile {
	struct datafile *next;      /* list of all files, newest first; owned by data.c */
	struct datafile *idle_next; /* owned by data.c */
	uint64_t padding;           /* bytes that align values; owned by data.c */
	struct io_file *file;       /* NULL: closed */
	uint64_t high;    /* end of all bytes ever written; above `start` after a rewind */
	uint64_t behind;  /* the kernel was asked to begin writing the bytes below */
	uint64_t flushed; /* the bytes below are on disk, and dropped from the page cache */
	int refused;    /* error of an earlier write-behind, which the next sync reports; 0: none */
	bool is_dirty;  /* written to since the last sync */
	bool is_lost;   /* a sync failed: datafile_mend() must come first */
	bool is_mended; /* mended: the next sync is believed only after reading everything back */
	const struct ocdbt_data_watcher *watcher; /* borrowed */
	void *watched;                            /* private to the watcher */
	struct datafile_part *part; /* n_parts parts, in order, that cover all bytes below start */
	size_t n_parts, cap_parts;

	pthread_mutex_t lock; /* the using thread takes it to change the members below */
	uint64_t start;
	struct buf buf;
	char name[]; /* path below the directory */
};

/* Create the file `<prefix><id in hex>`, and its directories if they do not exist. */
int datafile_new(struct io_dir *dir, const char *prefix, const uint8_t id[16], unsigned dir_mode,
		 const struct ocdbt_data_watcher *watcher, struct datafile **ret);
/* Does not remove the file. Accepts NULL. */
void datafile_free(struct datafile *f);

static inline uint64_t datafile_end(const struct datafile *f)
{
	return f->start + f->buf.n;
}

/*
 * Append a piece; on error nothing of it. crc is NULL, or a crc32c that the piece continues; for a
 * large piece that costs nothing, since the checksums of parts continue from it.
 */
int datafile_add(struct datafile *f, struct span piece, uint32_t *crc);
/* Drop everything after the offset `end`. */
void datafile_rewind(struct datafile *f, uint64_t end);
/* Write the collected pieces. */
int datafile_flush(struct datafile *f);
/*
 * Write everything to disk; the file's name may not be durable yet. When the sync itself fails, the
 * kernel may have dropped pages, and a second sync would succeed without writing them: the file is
 * then lost until it is mended. After that the next sync is not believed until everything has been
 * read back and compared.
 */
int datafile_sync(struct datafile *f);
/*
 * Read everything that was written back, compare it with its checksums, and write it again, so that
 * the next sync covers it. -EIO: the bytes have changed; the values must be written anew.
 */
int datafile_mend(struct datafile *f);
/* Release descriptor and buffer; everything must be written. */
void datafile_close(struct datafile *f);
/*
 * Any thread may call: copy the range if it is still in the buffer. ret_gathered is false when the
 * range is in the file, or does not exist.
 */
int datafile_peek(struct datafile *f, uint64_t off, uint64_t len, struct buf *ret,
		  bool *ret_gathered);

#endif
