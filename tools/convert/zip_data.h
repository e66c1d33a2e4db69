/* SPDX-License-Identifier: Apache-2.0 */
/*
 * zip_data.h - the data of a zip member, from its front to its end, checked.
 */
#ifndef PYTREEFS_ZIP_DATA_H
#define PYTREEFS_ZIP_DATA_H

#include "tools/convert/zip.h"

struct zip_stream;

/* m and what are borrowed. */
int zip_stream_open(int fd, const char *what, const struct zip_member *m, uint64_t file_size,
		    struct zip_stream **ret);
/* Exactly the next n bytes; the last ones are refused (-EBADMSG) when the checksum of all does not
 * match. */
int zip_stream_read(struct zip_stream *s, void *p, size_t n);
/* Accepts NULL. */
void zip_stream_close(struct zip_stream *s);
/* The checksum of zip archives, continued. */
uint32_t zip_crc(uint32_t crc, const void *p, size_t n);

DEFINE_AUTO(zip_stream, struct zip_stream, zip_stream_close);

#endif
