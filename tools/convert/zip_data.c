/* SPDX-License-Identifier: Apache-2.0 */
/*
 * zip_data.c - reads members of a zip archive, and inflates deflated ones.
 */
#include "tools/convert/zip.h"

#include <zlib.h>

#include "core/base/err.h"

#define IN_BYTES 65536

struct zip_stream {
	int fd;
	const char *what;
	const struct zip_member *m;
	uint64_t at, end; /* the range of packed bytes in the file that were not read yet */
	uint64_t given;
	uint32_t crc;
	bool is_inflating;
	z_stream z;
	uint8_t in[IN_BYTES];
};

uint32_t zip_crc(uint32_t crc, const void *p, size_t n)
{
	return (uint32_t)crc32_z(crc, p, n);
}

int zip_stream_open(int fd, const char *what, const struct zip_member *m, uint64_t file_size,
		    struct zip_stream **ret)
{
	auto_of(zip_stream) struct zip_stream *s = calloc(1, sizeof(*s));
	int r = s ? 0 : fail(-ENOMEM, "cannot open '%.*s'", SPAN_ARG(m->name));

	if (r < 0)
		return r;
	s->fd = fd;
	s->what = what;
	s->m = m;
	r = zip_member_at(fd, what, m, file_size, &s->at);
	s->end = s->at + m->packed;
	if (r < 0)
		return r;
	/* Raw deflate, without header and checksum. */
	if (m->is_deflated && inflateInit2(&s->z, -MAX_WBITS) != Z_OK)
		return fail(-ENOMEM, "cannot inflate '%.*s'", SPAN_ARG(m->name));
	s->is_inflating = m->is_deflated;
	*ret = take(s);
	return 0;
}

void zip_stream_close(struct zip_stream *s)
{
	if (s && s->is_inflating)
		inflateEnd(&s->z);
	free(s);
}

/* Read up to n packed bytes. */
static ssize_t read_packed(struct zip_stream *s, void *p, size_t n)
{
	ssize_t got = pread(s->fd, p, MIN((uint64_t)n, s->end - s->at), (off_t)s->at);

	if (got < 0)
		return err_sys("cannot read", s->what);
	if (got == 0)
		return fail(-EUCLEAN, "'%s': member '%.*s' is truncated", s->what,
			    SPAN_ARG(s->m->name));
	s->at += (uint64_t)got;
	return got;
}

static int inflate_some(struct zip_stream *s, uint8_t *p, size_t n)
{
	s->z.next_out = p;
	s->z.avail_out = (uInt)n;
	while (s->z.avail_out > 0) {
		int status;

		if (s->z.avail_in == 0) {
			ssize_t got = read_packed(s, s->in, IN_BYTES);

			if (got < 0)
				return (int)got;
			s->z.next_in = s->in;
			s->z.avail_in = (uInt)got;
		}
		status = inflate(&s->z, Z_NO_FLUSH);
		if (status == Z_STREAM_END && s->z.avail_out == 0)
			return 0;
		if (status != Z_OK)
			return fail(
				-EUCLEAN,
				"'%s': member '%.*s' does not inflate to what the directory says",
				s->what, SPAN_ARG(s->m->name));
	}
	return 0;
}

int zip_stream_read(struct zip_stream *s, void *p, size_t n)
{
	uint8_t *to = p;
	int r = 0;

	if (s->is_inflating) {
		r = inflate_some(s, p, n);
	} else {
		for (size_t done = 0; done < n && r >= 0;) {
			ssize_t got = read_packed(s, to + done, n - done);

			r = got < 0 ? (int)got : 0;
			done += got > 0 ? (size_t)got : 0;
		}
	}
	if (r < 0)
		return r;
	s->crc = zip_crc(s->crc, p, n);
	s->given += n;
	if (s->given == s->m->size && s->crc != s->m->crc)
		return fail(-EBADMSG, "'%s': member '%.*s': crc32 %08x, stored %08x", s->what,
			    SPAN_ARG(s->m->name), s->crc, s->m->crc);
	return 0;
}
