/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_zip.c - zip archives: members lie in the file, and their data is read to the end or refused;
 * the directory written anew for them parses, and says the same.
 */
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/base/err.h"
#include "tests/fuzz/fuzz.h"
#include "tools/convert/zip.h"

#define READ_MAX ((uint64_t)1 << 20) /* of a member: what is packed may say that it is large */

static int file_of(struct span bytes)
{
	int fd = memfd_create("zip", MFD_CLOEXEC);

	must(fd >= 0 && pwrite(fd, bytes.p, bytes.n, 0) == (ssize_t)bytes.n);
	return fd;
}

static void read_member(int fd, const struct zip_reader *z, const struct zip_member *m)
{
	auto_of(zip_stream) struct zip_stream *s = NULL;
	uint8_t piece[4096];
	uint64_t at;

	if (zip_member_at(fd, "input", m, z->file_size, &at) >= 0)
		must(at <= z->file_size && m->packed <= z->file_size - at);
	if (zip_stream_open(fd, "input", m, z->file_size, &s) < 0) {
		must(!s);
		return;
	}
	for (uint64_t off = 0; off < MIN(m->size, READ_MAX); off += sizeof(piece))
		if (zip_stream_read(s, piece, (size_t)MIN(m->size - off, (uint64_t)sizeof(piece))) <
		    0)
			return;
}

static void check_again(const struct zip_reader *z)
{
	struct zip_reader again = { 0 };
	auto_buf out = { 0 };
	uint64_t most = 0;
	int fd;

	for (size_t i = 0; i < z->n; i++) {
		/* Ours are stored, as long as they are, and lie in the file with their heads. */
		if (z->member[i].is_deflated)
			return;
		most = MAX(most, z->member[i].header + z->member[i].packed);
	}
	if (buf_add_zero(&out, most) < 0)
		return;
	must(zip_put_directory(z->member, z->n, most, z->comment, &out) == 0);
	fd = file_of(buf_span(&out));
	must(zip_open(fd, "written", &again) == 0);
	must(again.n == z->n && span_eq(again.comment, z->comment));
	for (size_t i = 0; i < z->n; i++) {
		const struct zip_member *a = &z->member[i], *b = &again.member[i];

		must(span_eq(a->name, b->name) && a->header == b->header && a->crc == b->crc);
		must(a->packed == b->packed && a->size == b->size && !b->is_deflated);
	}
	zip_reader_release(&again);
	close(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct zip_reader z = { 0 };
	int fd = file_of(span_of(data, size));

	if (zip_open(fd, "input", &z) < 0) {
		must(!z.member && !z.n);
	} else {
		for (size_t i = 0; i < MIN(z.n, (size_t)16); i++)
			read_member(fd, &z, &z.member[i]);
		check_again(&z);
		zip_reader_release(&z);
	}
	close(fd);
	return 0;
}
