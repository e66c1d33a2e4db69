/*
 * datafile.c - one data file that is being written: gathering, large writes, taking back.
 *
 * Small pieces are gathered in a buffer; large ones are written from where they
 * are. Who may write to the file at what time is for data.c.
 *
 * Kept true: the end only moves when a piece is accepted, so a failed call leaves
 * nothing; nothing that was accepted is written over but by a rewind.
 */
#include "core/ocdbt/datafile.h"

#include <fcntl.h>
#include <stdio.h>

#include "core/base/err.h"
#include "core/base/limits.h"
#include "core/base/log.h"

#define REQUEST_BYTES ((size_t)(8 * MiB))	/* of one write request */
#define REQUESTS 8				/* in one batch */

static int make_dirs(struct io_dir *dir, const char *path, unsigned mode)
{
	for (const char *slash = strchr(path, '/'); slash; slash = strchr(slash + 1, '/')) {
		auto_free char *name = span_dup_str(span_of(path, (size_t)(slash - path)));
		int r;

		if (!name)
			return fail(-ENOMEM, "cannot make the directories of '%s'", path);
		r = io_dirop(dir, IO_MKDIR, name, NULL, mode);
		if (r < 0 && r != -EEXIST)
			return r;
	}
	return 0;
}

static int create(struct datafile *f, struct io_dir *dir, unsigned file_mode, unsigned dir_mode)
{
	const int flags = O_RDWR | O_CREAT | O_EXCL;
	int r = io_file_open(dir, f->name, flags, file_mode, &f->file);

	if (r == -ENOENT) {
		r = make_dirs(dir, f->name, dir_mode);
		if (r >= 0)
			r = io_file_open(dir, f->name, flags, file_mode, &f->file);
	}
	/* Memory may have run out behind the creation, and nobody else will know of the file. */
	if (r == -ENOMEM)
		io_dirop(dir, IO_UNLINK, f->name, NULL, 0);
	return r;
}

int datafile_new(struct io_dir *dir, const char *prefix, const uint8_t id[16], unsigned file_mode,
		 unsigned dir_mode, struct datafile **ret)
{
	size_t at = strlen(prefix), n = at + 33;
	struct datafile *f = calloc(1, sizeof(*f) + n);
	int r;

	if (!f)
		return fail(-ENOMEM, "cannot allocate a data file");
	pthread_mutex_init(&f->lock, NULL);
	memcpy(f->name, prefix, at);
	for (size_t i = 0; i < 16; i++, at += 2)
		snprintf(f->name + at, n - at, "%02x", id[i]);
	r = create(f, dir, file_mode, dir_mode);
	if (r < 0) {
		datafile_free(f);
		return r;
	}
	trace(TRACE_OCDBT, "new data file '%s'", f->name);
	*ret = f;
	return 0;
}

void datafile_free(struct datafile *f)
{
	if (!f)
		return;
	io_file_unref(f->file);
	buf_release(&f->buf);
	pthread_mutex_destroy(&f->lock);
	free(f);
}

static int write_at(struct datafile *f, struct span s, uint64_t off)
{
	while (s.n) {
		struct io_req req[REQUESTS] = { 0 };
		size_t n = 0;
		int r;

		for (; n < REQUESTS && s.n; n++) {
			size_t part = MIN(s.n, REQUEST_BYTES);

			/* The engine writes from the memory only. */
			req[n] = (struct io_req){ .op = IO_WRITE, .file = f->file, .off = off,
						 .n = part,
						  .p = (void *)(uintptr_t)s.p };
			s = span_from(s, part);
			off += part;
		}
		f->is_dirty = true;
		f->high = MAX(f->high, off);
		r = io_run(f->file->io, req, n);
		if (r < 0)
			return r;
	}
	return 0;
}

int datafile_flush(struct datafile *f)
{
	int r = write_at(f, buf_span(&f->buf), f->start);

	if (r < 0)
		return r;
	pthread_mutex_lock(&f->lock);
	f->start += f->buf.n;
	buf_clear(&f->buf);
	pthread_mutex_unlock(&f->lock);
	return 0;
}

int datafile_add(struct datafile *f, struct span piece)
{
	int r = f->buf.cap < DATAFILE_BUFFER ? buf_reserve(&f->buf, DATAFILE_BUFFER - f->buf.n) : 0;

	if (r >= 0 && f->buf.n + piece.n > DATAFILE_BUFFER)
		r = datafile_flush(f);
	if (r >= 0 && piece.n > DATAFILE_BUFFER)
		r = write_at(f, piece, f->start);
	if (r < 0)
		return r;
	pthread_mutex_lock(&f->lock);
	if (piece.n > DATAFILE_BUFFER)
		f->start += piece.n;
	else
		buf_add_span(&f->buf, piece);	/* into room that was made above */
	pthread_mutex_unlock(&f->lock);
	return 0;
}

void datafile_rewind(struct datafile *f, uint64_t end)
{
	pthread_mutex_lock(&f->lock);
	if (end >= f->start) {
		f->buf.n = (size_t)(end - f->start);
	} else {
		buf_clear(&f->buf);
		f->start = end;
	}
	pthread_mutex_unlock(&f->lock);
}

int datafile_sync(struct datafile *f, bool *ret_lost)
{
	int r = datafile_flush(f);

	/* What a rewind left behind the end. */
	if (r >= 0 && f->high > f->start) {
		r = io_file_truncate(f->file, f->start);
		if (r >= 0)
			f->high = f->start;
	}
	if (r < 0 || !f->is_dirty)
		return r;
	r = io_file_sync(f->file);
	f->is_dirty = r < 0;
	*ret_lost |= r < 0;
	return r;
}

void datafile_close(struct datafile *f)
{
	io_file_unref(f->file);
	f->file = NULL;
	pthread_mutex_lock(&f->lock);
	buf_release(&f->buf);
	pthread_mutex_unlock(&f->lock);
}

int datafile_peek(struct datafile *f, uint64_t off, uint64_t len, struct buf *ret,
		  bool *ret_gathered)
{
	int r = 0;

	pthread_mutex_lock(&f->lock);
	*ret_gathered = off >= f->start && off + len <= datafile_end(f);
	if (*ret_gathered)
		r = buf_add(ret, f->buf.p + (off - f->start), (size_t)len);
	pthread_mutex_unlock(&f->lock);
	return r;
}
