/* SPDX-License-Identifier: Apache-2.0 */
/*
 * zip_data.h - reads the data of a zip member from front to back, and checks it.
 */
#ifndef PYTREEFS_ZIP_DATA_H
#define PYTREEFS_ZIP_DATA_H

#include "tools/convert/zip.h"

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
/* Returns the checksum of zip archives, continued from crc. */
uint32_t zip_crc(uint32_t crc, const void *p, size_t n);

DEFINE_AUTO(zip_stream, struct zip_stream, zip_stream_close);

#endif
