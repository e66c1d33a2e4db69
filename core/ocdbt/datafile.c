/* SPDX-License-Identifier: Apache-2.0 */
/*
 * datafile.c - one data file that is being written: collecting, large writes, taking back.
 *
 * Small pieces are collected in a buffer; large ones are written from where they are. data.c
 * decides which thread writes to the file.
 *
 * Invariants: the end moves only when a piece is accepted, so a failed call adds nothing; accepted
 * bytes are overwritten only after a rewind; the parts cover the bytes below start without a gap.
 */
#include "core/ocdbt/datafile.h"

#include <fcntl.h>
#include <stdio.h>

#include "core/base/array.h"
#include "core/base/crc32c.h"
#include "core/base/err.h"
#include "core/base/limits.h"
#include "core/base/log.h"

#define REQUEST_BYTES ((size_t)(8 * MiB)) /* size of one write request */
#define REQUESTS 8                        /* requests in one batch */
#define DIRTY_MAX ((uint64_t)16 * MiB) /* the most bytes that may be written but not yet on disk */
#define BEHIND_BYTES ((uint64_t)4 * MiB) /* amount that is written behind at a time */

static int create(struct datafile *f, struct io_dir *dir, unsigned dir_mode)
{
	const int flags = O_RDWR | O_CREAT | O_EXCL;
	int r = io_file_open(dir, f->name, flags, IO_FILE_MODE, &f->file);

	if (r == -ENOENT) {
		r = io_make_parents(dir, f->name, dir_mode);
		if (r < 0)
			return r;
		r = io_file_open(dir, f->name, flags, IO_FILE_MODE, &f->file);
	}
	/* Memory may have run out after the file was created; nothing else knows about it. */
	if (r == -ENOMEM)
		io_dirop(dir, IO_UNLINK, f->name, NULL, 0);
	return r;
}

int datafile_new(struct io_dir *dir, const char *prefix, const uint8_t id[16], unsigned dir_mode,
		 const struct ocdbt_data_watcher *watcher, struct datafile **ret)
{
	size_t at = strlen(prefix);
	struct datafile *f = calloc(1, sizeof(*f) + at + 33);
	int r;

	if (!f)
		return fail(-ENOMEM, "cannot allocate a data file");
	pthread_mutex_init(&f->lock, NULL);
	f->watcher = watcher;
	memcpy(f->name, prefix, at);
	hex_text(span_of(id, 16), f->name + at);
	trace(TRACE_OCDBT, "new data file '%s'", f->name);
	r = create(f, dir, dir_mode);
	if (r < 0) {
		datafile_free(f);
		return r;
	}
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
	free(f->part);
	free(f);
}

/* crc is that of the value's bytes before s. Returns the one that includes s. */
static uint32_t note_parts(struct datafile *f, struct span s, uint64_t off, uint32_t crc)
{
	while (s.n) {
		size_t n = MIN(s.n, REQUEST_BYTES);
		struct datafile_part *p = &f->part[f->n_parts++];

		*p = (struct datafile_part){ .off = off, .len = (uint32_t)n, .from = crc };
		p->crc = crc = crc32c_more(crc, span_of(s.p, n));
		s = span_from(s, n);
		off += n;
	}
	return crc;
}

/*
 * Drop pages that are on disk from the page cache. After an error drop none: the lost bytes are
 * still in the cache, and datafile_mend() needs them.
 */
static void flush_written(struct datafile *f)
{
	uint64_t to = f->behind - MIN(f->behind, DIRTY_MAX);
	int r;

	if (f->refused || to <= f->flushed)
		return;
	r = io_file_flush_range(f->file, f->flushed, to - f->flushed);
	if (r < 0)
		f->refused = r;
	else
		f->flushed = to;
}

/*
 * The disk writes while the next values are encoded, so that the sync waits only for the last
 * bytes. Only whole pieces are written behind: a page that is still being filled would be written
 * twice.
 */
static void write_behind(struct datafile *f, uint64_t end)
{
	uint64_t to = end - end % BEHIND_BYTES;

	if (to <= f->behind)
		return;
	io_file_write_behind(f->file, f->behind, to - f->behind);
	f->behind = to;
	flush_written(f);
}

/* Write s at off, and continue *crc by s. */
static int write_at(struct datafile *f, struct span s, uint64_t off, uint32_t *crc)
{
	struct span all = s;
	uint64_t at = off;

	/* So that noting the parts cannot fail. */
	if (!array_reserve(f->part, f->cap_parts, f->n_parts + s.n / REQUEST_BYTES + 1))
		return fail(-ENOMEM, "cannot write to '%s'", f->name);
	while (s.n) {
		struct io_req req[REQUESTS] = { 0 };
		size_t n = 0;
		int r;

		for (; n < REQUESTS && s.n; n++) {
			size_t part = MIN(s.n, REQUEST_BYTES);

			/* The engine does not write to the buffer. */
			req[n] = (struct io_req){ .op = IO_WRITE,
						  .file = f->file,
						  .off = off,
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
	*crc = note_parts(f, all, at, *crc);
	write_behind(f, off);
	return 0;
}

static void report_growth(struct datafile *f)
{
	if (f->watcher->grew)
		f->watcher->grew(f->watcher->arg, &f->watched, f->name, f->file, f->start);
}

int datafile_flush(struct datafile *f)
{
	uint32_t crc = 0;
	int r = write_at(f, buf_span(&f->buf), f->start, &crc);

	if (r < 0)
		return r;
	pthread_mutex_lock(&f->lock);
	f->start += f->buf.n;
	buf_clear(&f->buf);
	pthread_mutex_unlock(&f->lock);
	report_growth(f);
	return 0;
}

int datafile_add(struct datafile *f, struct span piece, uint32_t *crc)
{
	uint32_t unasked = 0;
	int r = f->buf.cap < DATAFILE_BUFFER ? buf_reserve(&f->buf, DATAFILE_BUFFER - f->buf.n) : 0;

	if (r < 0)
		return r;
	if (f->buf.n + piece.n > DATAFILE_BUFFER)
		r = datafile_flush(f);
	if (r < 0)
		return r;
	if (piece.n > DATAFILE_BUFFER)
		r = write_at(f, piece, f->start, crc ? crc : &unasked);
	if (r < 0)
		return r;
	if (crc && piece.n <= DATAFILE_BUFFER)
		*crc = crc32c_more(*crc, piece);
	pthread_mutex_lock(&f->lock);
	if (piece.n > DATAFILE_BUFFER)
		f->start += piece.n;
	else
		buf_add_span(&f->buf, piece); /* into room that was reserved above */
	pthread_mutex_unlock(&f->lock);
	if (piece.n > DATAFILE_BUFFER)
		report_growth(f);
	return 0;
}

/*
 * Compute the checksums of a part as it is in the file now: of its first `cut` bytes and of all.
 * again: write it once more.
 */
static int read_part(struct datafile *f, const struct datafile_part *p, bool again, uint32_t cut,
		     uint32_t *ret_cut, uint32_t *ret_crc)
{
	auto_free uint8_t *piece = malloc(DATAFILE_BUFFER);
	uint32_t crc = p->from;
	int r;

	if (!piece)
		return fail(-ENOMEM, "cannot read '%s' back", f->name);
	for (uint32_t at = 0, n; at < p->len; at += n) {
		n = MIN((uint32_t)DATAFILE_BUFFER, (at < cut ? cut : p->len) - at);
		r = io_read_exact(f->file, piece, n, p->off + at);
		if (r < 0)
			return r;
		crc = crc32c_more(crc, span_of(piece, n));
		if (at + n == cut)
			*ret_cut = crc;
		r = again ? io_write_exact(f->file, piece, n, p->off + at) : 0;
		if (r < 0)
			return r;
	}
	*ret_crc = crc;
	return 0;
}

/* Check all parts; again: write them once more. */
static int read_parts(struct datafile *f, bool again)
{
	int r = 0;

	for (size_t i = 0; i < f->n_parts && r >= 0; i++) {
		const struct datafile_part *p = &f->part[i];
		uint32_t crc = ~p->crc;

		r = read_part(f, p, again, 0, NULL, &crc);
		if ((r >= 0 && (p->is_unknown || crc != p->crc)) || r == -EUCLEAN)
			return fail(
				-EIO,
				"'%s' lost %u bytes at offset %llu when a sync failed: remove this "
				"item from the draft and write it again",
				f->name, p->len, (unsigned long long)p->off);
	}
	return r;
}

int datafile_sync(struct datafile *f)
{
	int r = datafile_flush(f);

	if (r < 0)
		return r;
	/* Truncate what a rewind left after the end. */
	if (f->high > f->start) {
		r = io_file_truncate(f->file, f->start);
		if (r < 0)
			return r;
		f->high = f->start;
	}
	if (!f->is_dirty)
		return r;
	r = io_file_sync(f->file);
	if (r >= 0 && f->refused)
		r = fail(f->refused, "cannot sync '%s': %s", f->name, strerror(-f->refused));
	f->refused = 0;
	f->is_dirty = f->is_lost = r < 0;
	if (r < 0)
		return r;
	if (f->behind)
		io_file_drop_cache(f->file, 0, f->start);
	f->flushed = f->behind;
	if (!f->is_mended)
		return 0;
	/* Some file systems lose bytes that they failed to write, and still report a sync. */
	io_file_reread(f->file);
	r = read_parts(f, false);
	f->is_lost = f->is_mended = r < 0;
	return r;
}

int datafile_mend(struct datafile *f)
{
	int r = read_parts(f, true);

	if (r < 0)
		return r;
	trace(TRACE_OCDBT, "data file '%s' is written again", f->name);
	f->is_lost = false;
	f->is_mended = true;
	f->is_dirty = true;
	return 0;
}

/* Keep the parts below `end`; the last one may be shortened. */
static void cut_parts(struct datafile *f, uint64_t end)
{
	struct datafile_part *p;
	uint32_t crc = 0, all = 0;

	while (f->n_parts && f->part[f->n_parts - 1].off >= end)
		f->n_parts--;
	p = f->n_parts ? &f->part[f->n_parts - 1] : NULL;
	if (!p || p->off + p->len <= end)
		return;
	/*
	 * The bytes after the cut are still in the file: the shortened part is known to be right
	 * only if the whole part is.
	 */
	if (f->is_lost || read_part(f, p, false, (uint32_t)(end - p->off), &crc, &all) < 0 ||
	    all != p->crc)
		p->is_unknown = true;
	p->len = (uint32_t)(end - p->off);
	p->crc = crc;
	err_clear();
}

void datafile_rewind(struct datafile *f, uint64_t end)
{
	if (end < f->start) {
		cut_parts(f, end);
		if (f->watcher->cut)
			f->watcher->cut(f->watcher->arg, f->watched, end);
	}
	f->behind = MIN(f->behind, end);
	f->flushed = MIN(f->flushed, end);
	pthread_mutex_lock(&f->lock);
	if (end >= f->start) {
		f->buf.n = (size_t)(end - f->start);
	} else {
		buf_clear(&f->buf);
		f->start = end;
	}
	pthread_mutex_unlock(&f->lock);
}

void datafile_close(struct datafile *f)
{
	io_file_unref(f->file);
	f->file = NULL;
	pthread_mutex_lock(&f->lock);
	buf_release(&f->buf);
	pthread_mutex_unlock(&f->lock);
	if (f->watcher->closed)
		f->watcher->closed(f->watcher->arg, f->watched);
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
