/* SPDX-License-Identifier: Apache-2.0 */
/*
 * zip.h - zip archives in the form of npz files: members that are stored or deflated, of any size.
 */
#ifndef PYTREEFS_ZIP_H
#define PYTREEFS_ZIP_H

#include "core/base/arena.h"

struct zip_member {
	struct span name;
	uint64_t header; /* offset of its local header */
	uint64_t packed, size;
	uint32_t crc;
	bool is_deflated;
};

struct zip_reader {
	struct arena arena;
	struct zip_member *member; /* in the order of the directory */
	size_t n;
	struct span comment;
	uint64_t file_size;
};

/* The comment of an npz file that has the manifest elsewhere: where, and how long it is. */
#define NPZ_AT "at"
#define NPZ_BYTES "bytes"

#define ZIP_COMMENT_MAX 65535                   /* the format has two bytes for its length */
#define ZIP_DIRECTORY_MAX ((uint64_t)256 << 20) /* limit of this program: about a million members */

/*
 * Read the directory of an archive. -EUCLEAN: malformed; -EOPNOTSUPP: encrypted, in several parts,
 * or another compression method.
 */
int zip_open(int fd, const char *what, struct zip_reader *ret);
void zip_reader_release(struct zip_reader *z);
#define auto_zip_reader __attribute__((cleanup(zip_reader_release))) struct zip_reader
/* Read exactly n bytes at an offset. -EUCLEAN: the file ends before. */
int zip_read_at(int fd, const char *what, uint64_t off, void *p, size_t n);
/* Get the offset of a member's data. */
int zip_member_at(int fd, const char *what, const struct zip_member *m, uint64_t file_size,
		  uint64_t *ret);

/* ---- writing: members are stored, and their positions are known before their data ---- */

/* Returns the size of a member's local header; its data follows. */
uint64_t zip_local_size(struct span name);
/* Append the local header. The crc may be set later, since the length does not depend on it. */
int zip_put_local(const struct zip_member *m, struct buf *ret);
/* Append the directory for the end of the file; `at` is its offset there. */
int zip_put_directory(const struct zip_member *m, size_t n, uint64_t at, struct span comment,
		      struct buf *ret);

/* ---- data of a member, from front to back (zip_data.c) ---- */

struct zip_stream;

/* m and what are borrowed. */
int zip_stream_open(int fd, const char *what, const struct zip_member *m, uint64_t file_size,
		    struct zip_stream **ret);
/*
 * Read exactly the next n bytes. The last ones fail with -EBADMSG if the checksum of the member
 * does not match.
 */
int zip_stream_read(struct zip_stream *s, void *p, size_t n);
/* Accepts NULL. */
void zip_stream_close(struct zip_stream *s);
DEFINE_AUTO(zip_stream, struct zip_stream, zip_stream_close);

/* Returns the checksum of zip archives, continued from crc. */
uint32_t zip_crc(uint32_t crc, const void *p, size_t n);

#endif
