/* SPDX-License-Identifier: Apache-2.0 */
/*
 * document.c - read small files, and map a copy of large ones.
 */
#include "core/step/document.h"

#include <fcntl.h>
#include <sys/mman.h>

#include "core/base/err.h"
#include "core/base/meter.h"
#include "core/zarr/stream.h"

#define IN_MEMORY (16 * MiB) /* a larger file is mapped */

void document_release(struct document *d)
{
	if (d->map)
		munmap(d->map, d->text.n);
	io_file_unref(d->copy);
	buf_release(&d->buf);
	*d = (struct document){ 0 };
}

/* The number of bytes of the file outside of holes. */
static uint64_t count_data(const struct io_file *file)
{
	uint64_t from, to = 0, n = 0;

	while (io_file_data(file, to, &from, &to))
		n += to - from;
	return n;
}

/*
 * Copy all bytes outside of holes, at most `most`, which is their number when they were counted;
 * the file may be written meanwhile.
 */
static int copy_data(struct io_file *file, struct io_file *copy, uint64_t most)
{
	uint64_t from, to = 0, n = 0;
	int r = 0;

	while (r >= 0 && io_file_data(file, to, &from, &to)) {
		n += to - from;
		r = n > most ?
			    fail(-EUCLEAN,
				 "'%s' was written while it was read: it had %llu bytes of data, "
				 "and %llu more appeared at offset %llu",
				 file->name, (unsigned long long)most,
				 (unsigned long long)(to - from), (unsigned long long)from) :
			    io_copy_range(file, copy, from, to - from);
	}
	if (r < 0)
		return r;
	/*
	 * Beyond the end of a file that was truncated meanwhile, no data is found, which is not a
	 * hole.
	 */
	r = io_file_check_size(file);
	return r < 0 ? r : io_file_truncate(copy, file->size);
}

static int map_copy(struct ckpt *ckpt, struct io_file *file, struct document *d)
{
	uint64_t data = count_data(file);
	int r = streams_file(ckpt->streams, ckpt->io, data, &d->copy);

	if (r < 0)
		return r;
	r = copy_data(file, d->copy, data);
	if (r < 0)
		return r;
	d->map = mmap(NULL, file->size, PROT_READ, MAP_SHARED, d->copy->fd, 0);
	if (d->map == MAP_FAILED) {
		d->map = NULL;
		return err_sys("cannot map", file->name);
	}
	d->text = span_of(d->map, file->size);
	return 0;
}

int document_of(struct ckpt *ckpt, struct io_file *file, struct document *ret)
{
	auto_document d = { .buf.metered = true };
	int r;

	if (file->size > MIN((uint64_t)IN_MEMORY, meter_most() / 8)) {
		r = map_copy(ckpt, file, &d);
	} else {
		r = buf_reserve(&d.buf, file->size);
		if (r >= 0)
			r = io_read_exact(file, d.buf.p, file->size, 0);
		d.text = span_of(d.buf.p, file->size);
	}
	if (r < 0)
		return err_at(r, "'%s', which has %llu bytes", file->name,
			      (unsigned long long)file->size);
	*ret = d;
	d = (struct document){ 0 };
	return 0;
}

int document_read(struct ckpt *ckpt, struct io_dir *dir, const char *name, uint64_t limit,
		  struct document *ret)
{
	auto_of(io_file) struct io_file *file = NULL;
	int r = io_file_open(dir, name, O_RDONLY, 0, &file);

	if (r == -EISDIR)
		return fail(-EUCLEAN, "'%s' is not a regular file", name);
	if (r < 0)
		return r;
	if (file->size > limit)
		return fail(-EFBIG, "'%s' has %llu bytes, the limit is %llu", name,
			    (unsigned long long)file->size, (unsigned long long)limit);
	return document_of(ckpt, file, ret);
}
