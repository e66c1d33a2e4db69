/* SPDX-License-Identifier: Apache-2.0 */
/*
 * draft_file.c - the place of a file's bytes, and moves from one place to the next.
 *
 * draft_stream.c has streams; draft_array.c encodes staged contents.
 *
 * Invariants: bytes [0, pos) of a file in memory or in a stream were written in order; bytes from
 * pos to size read as zeros. A staged file has all bytes.
 */
#include "handlers/draft/draft_file.h"

#include "core/base/blocks.h"
#include "core/base/err.h"
#include "core/base/lock.h"
#include "core/base/log.h"
#include "core/base/wire.h"

/* largest size of contents that stay in memory while they are written */
#define MEMORY_MAX ((size_t)64 << 10)
#define MEMORY_HEADER_MAX ((size_t)8 << 20) /* largest header of a safetensors file that streams */
#define PIECE ((size_t)1 << 20)

int draft_file_new(struct draft_node *n, struct draft_file **ret)
{
	struct draft_file *f = calloc(1, sizeof(*f));

	if (!f)
		return fail(-ENOMEM, "cannot create '%s'", n->name);
	pthread_mutex_init(&f->lock, NULL);
	f->node = n;
	*ret = f;
	return 0;
}

void draft_file_free(struct draft_file *f)
{
	if (!f)
		return;
	draft_arrays_release(f);
	io_file_unref(f->staged);
	io_file_unref(f->retained);
	buf_release(&f->head);
	pthread_mutex_destroy(&f->lock);
	free(f->why);
	free(f);
}

void draft_file_set_error(struct draft_file *f, int r)
{
	f->failed = r;
	if (!f->why)
		f->why = malloc(sizeof(*f->why));
	if (f->why)
		err_save(r, f->why);
}

int draft_file_take_error_locked(struct draft_file *f)
{
	auto_free struct err_note *why = take(f->why);
	int r = f->failed;

	f->failed = 0;
	return r < 0 && why ? err_restore(why) : r;
}

uint64_t draft_file_size(struct draft_file *f)
{
	auto_unlock pthread_mutex_t *held = lock_hold(&f->lock);

	return f->size;
}

static int add_len(void *arg, struct span key, uint64_t len)
{
	*(uint64_t *)arg += len;
	return 0;
}

uint64_t draft_file_stored_bytes(struct draft_file *f)
{
	uint64_t bytes = 0;
	auto_unlock pthread_mutex_t *held = lock_hold(&f->lock);

	for (size_t i = 0; i < f->n_arrays; i++)
		if (f->array[i].kv)
			kv_list(f->array[i].kv, span_of(NULL, 0), add_len, &bytes);
	if (!f->n_arrays)
		bytes = f->size;
	return bytes;
}

/* ---- staging ---- */

/* Read bytes that were written, from any place. The caller adds the zeros after them. */
static int read_written(struct draft_file *f, uint64_t off, size_t n, uint8_t *p)
{
	switch (f->place) {
	case PLACE_MEMORY:
		memcpy(p, f->head.p + off, n);
		return 0;
	case PLACE_STAGED:
		return io_read_exact(f->staged, p, n, off);
	case PLACE_STREAM:
	case PLACE_STORED:
		return draft_stream_read(f, off, n, p);
	}
	return -EINVAL;
}

/* The number of bytes at their place; bytes from there to the file's size are zeros. */
static uint64_t written(const struct draft_file *f)
{
	return f->place == PLACE_STAGED ? f->staged->size :
	       f->place == PLACE_STORED ? f->size :
					  f->pos;
}

static int staged_write(struct io_file *file, uint64_t off, const void *p, size_t n)
{
	int r = io_write_exact(file, p, n, off);

	if (r >= 0)
		file->size = MAX(file->size, off + n);
	return r;
}

int draft_file_copy_contents(struct draft_file *f, struct io_file **ret)
{
	auto_of(io_file) struct io_file *file = NULL;
	auto_buf piece = { .in_block = true };
	uint64_t n = written(f);
	int r;

	r = io_file_temp(f->node->draft->env->ckpt->io, f->node->draft->dir->dir, NULL, &file);
	if (r < 0)
		return r;
	r = n ? buf_reserve(&piece, PIECE) : 0;
	if (r < 0)
		return r;
	for (uint64_t at = 0; at < n; at += PIECE) {
		size_t part = (size_t)MIN((uint64_t)PIECE, n - at);

		r = read_written(f, at, part, piece.p);
		if (r < 0)
			return r;
		r = staged_write(file, at, piece.p, part);
		if (r < 0)
			return r;
	}
	r = f->size > file->size ? io_file_truncate(file, f->size) : 0;
	if (r < 0)
		return r;
	file->size = f->size;
	*ret = take(file);
	return 0;
}

int draft_file_stage(struct draft_file *f)
{
	struct io_file *file;
	int r;

	if (f->place == PLACE_STAGED)
		return 0;
	trace(TRACE_LEAF, "stage '%s': %llu bytes", f->node->name, (unsigned long long)written(f));
	r = draft_file_copy_contents(f, &file);
	if (r < 0)
		return r;
	draft_arrays_release(f);
	buf_release(&f->head);
	f->staged = file;
	f->place = PLACE_STAGED;
	return 0;
}

int draft_file_unstore(struct draft_file *f)
{
	auto_unlock pthread_mutex_t *held = lock_hold(&f->lock);

	if (f->n_arrays && (f->place == PLACE_STORED || f->place == PLACE_STREAM))
		return draft_file_stage(f);
	/* Chunks that were encoded from contents at another place are not needed either. */
	draft_arrays_release(f);
	return 0;
}

/* ---- reading ---- */

int draft_file_read_locked(struct draft_file *f, uint64_t off, size_t n, uint8_t *p)
{
	uint64_t have = written(f);
	size_t part = off < have ? (size_t)MIN((uint64_t)n, have - off) : 0;
	int r = part ? read_written(f, off, part, p) : 0;

	memset(p + part, 0, n - part);
	return r;
}

int draft_file_read(struct draft_file *f, uint64_t off, size_t n, struct segments *g)
{
	auto_unlock pthread_mutex_t *held = lock_hold(&f->lock);
	uint8_t *block;
	int r;

	if (f->moved)
		return fail(-ESTALE, "'%s' is part of a committed array now", f->node->name);
	n = off < f->size ? (size_t)MIN((uint64_t)n, f->size - off) : 0;
	if (!n)
		return 0;
	block = block_alloc(n);
	if (!block)
		return fail(-ENOMEM, "cannot allocate %zu bytes", n);
	r = draft_file_read_locked(f, off, n, block);
	if (r >= 0)
		return segments_add_block(g, block, n, n);
	block_free(block, n);
	return r;
}

int draft_file_read_into(struct draft_file *f, uint64_t off, size_t n, void *p)
{
	auto_unlock pthread_mutex_t *held = lock_hold(&f->lock);

	if (off > f->size || n > f->size - off)
		return fail(-EINVAL, "'%s' has %llu bytes, %zu at %llu were wanted", f->node->name,
			    (unsigned long long)f->size, n, (unsigned long long)off);
	return draft_file_read_locked(f, off, n, p);
}

int draft_file_read_whole(struct draft_file *f, uint64_t size, struct buf *ret)
{
	int r = buf_reserve(ret, size + 1);

	r = r < 0 ? r : draft_file_read_into(f, 0, size, ret->p);
	ret->n = r < 0 ? 0 : size;
	return r;
}

/* ---- writing ---- */

/*
 * The number of bytes that may stay in memory: more for a long header, which is parsed as a whole.
 */
static size_t memory_max(const struct draft_file *f)
{
	uint64_t header;

	if (f->head.n < 9 || f->head.p[0] == 0x93 || f->head.p[8] != '{')
		return MEMORY_MAX;
	header = get_u64le(f->head.p);
	return header < MEMORY_HEADER_MAX ? MAX(MEMORY_MAX, (size_t)header + 8) : MEMORY_MAX;
}

/*
 * Turn contents in memory into a stream: the bytes after the header are the first elements. 1; 0:
 * not possible.
 */
static int memory_to_stream(struct draft_file *f)
{
	uint64_t all = f->pos;
	auto_buf rest = { 0 };
	size_t taken = 0;
	int r = draft_stream_begin(f);

	if (r <= 0)
		return r;
	/* head now ends with the header. */
	r = buf_add(&rest, f->head.p + f->head.n, all - f->head.n);
	f->pos = f->head.n;
	r = r < 0 ? r : draft_stream_append(f, rest.p, rest.n, &taken);
	if (r >= 0)
		return 1;
	/* Restore the state before the attempt: all bytes are still there. */
	draft_arrays_release(f);
	f->place = PLACE_MEMORY;
	f->head.n = f->pos = all;
	return r == -EAGAIN ? 0 : r;
}

/* Whether the write repeats the present header. */
static bool same_header(const struct draft_file *f, uint64_t off, const void *p, size_t n)
{
	return off + n <= f->head.n && !memcmp(f->head.p + off, p, n);
}

/*
 * Try to write at the present place. Returns the number of accepted bytes; 0: the contents moved to
 * another place, where the caller tries again.
 */
static ssize_t write_here(struct draft_file *f, uint64_t off, const uint8_t *p, size_t n)
{
	size_t taken;
	int r;

	switch (f->place) {
	case PLACE_MEMORY:
		if (off <= f->pos && off < memory_max(f)) {
			n = MIN(n, memory_max(f) - (size_t)off);
			r = off + n > f->head.n ? buf_reserve(&f->head, off + n - f->head.n) : 0;
			if (r < 0)
				return r;
			/* Arrays that were encoded from the contents are out of date. */
			draft_arrays_release(f);
			memcpy(f->head.p + off, p, n);
			f->pos = f->head.n = MAX(f->head.n, off + n);
			f->size = MAX(f->size, f->pos);
			return (ssize_t)n;
		}
		r = off == f->pos && !f->nameless ? memory_to_stream(f) : 0;
		if (r == 0)
			r = draft_file_stage(f);
		return r < 0 ? r : 0;
	case PLACE_STREAM:
		if (off == f->pos) {
			r = draft_stream_append(f, p, n, &taken);
			if (taken)
				return (ssize_t)taken;
			if (r < 0 && r != -EAGAIN && r != -EFBIG)
				return r;
		} else if (same_header(f, off, p, n)) {
			return (ssize_t)n;
		}
		return (r = draft_file_stage(f)) < 0 ? r : 0;
	case PLACE_STORED:
		if (same_header(f, off, p, n))
			return (ssize_t)n;
		return (r = draft_file_stage(f)) < 0 ? r : 0;
	case PLACE_STAGED:
		/* Arrays that were encoded from the contents are out of date. */
		draft_arrays_release(f);
		r = staged_write(f->staged, off, p, n);
		if (r < 0)
			return r;
		f->size = MAX(f->size, off + n);
		return (ssize_t)n;
	}
	return -EINVAL;
}

ssize_t draft_file_write(struct draft_file *f, uint64_t off, const void *p, size_t n)
{
	auto_unlock pthread_mutex_t *held = lock_hold(&f->lock);
	const uint8_t *from = p;
	size_t done = 0;
	ssize_t r = draft_file_take_error_locked(f);

	/* Contents move at most three times: memory, stream, staged. */
	for (int moves = 0; done < n && r >= 0 && moves < 4;) {
		r = write_here(f, off + done, from + done, n - done);
		moves += r == 0;
		done += r > 0 ? (size_t)r : 0;
	}
	if (!done)
		return r;
	if (f->place != PLACE_STAGED)
		f->size = MAX(f->size, f->pos);
	draft_touch(f->node);
	return (ssize_t)done;
}

/* Cut the contents to at most `size` bytes. Of a larger size, the rest reads as zeros. */
static int cut_contents(struct draft_file *f, uint64_t size)
{
	int r;

	/* Arrays that were encoded from the contents are out of date. */
	if (size != f->size && (f->place == PLACE_MEMORY || f->place == PLACE_STAGED))
		draft_arrays_release(f);
	if (size == 0 && !f->nameless) {
		/* Start anew, from any place; errors concerned the bytes that are discarded. */
		draft_arrays_release(f);
		io_file_unref(take(f->staged));
		buf_release(&f->head);
		f->place = PLACE_MEMORY;
		f->pos = 0;
		f->lost = f->failed = 0;
		free(take(f->why));
		return 0;
	}
	if (f->place == PLACE_MEMORY && size < written(f)) {
		f->head.n = f->pos = size;
		return 0;
	}
	if (f->place != PLACE_STAGED && size >= written(f) &&
	    (f->place != PLACE_STORED || size == f->size))
		return 0;
	r = draft_file_stage(f);
	if (r < 0)
		return r;
	r = io_file_truncate(f->staged, size);
	if (r >= 0)
		f->staged->size = size;
	return r;
}

int draft_file_truncate(struct draft_file *f, uint64_t size)
{
	auto_unlock pthread_mutex_t *held = lock_hold(&f->lock);
	int r = cut_contents(f, size);

	if (r < 0)
		return r;
	f->size = size;
	draft_touch(f->node);
	return r;
}

/* ---- opening and closing ---- */

int draft_file_opened(struct draft_file *f)
{
	int r;

	pthread_mutex_lock(&f->lock);
	f->writers++;
	f->unflushed++;
	pthread_mutex_unlock(&f->lock);
	/* Check again: a commit that has begun in between may have missed this handle. */
	r = draft_check_life(f->node, true);
	if (r >= 0)
		return 0;
	/* The commit encodes what other writers have not finished. */
	pthread_mutex_lock(&f->lock);
	f->writers--;
	f->unflushed--;
	pthread_mutex_unlock(&f->lock);
	return r;
}

void draft_file_flush(struct draft_file *f, bool *flushed, bool now)
{
	auto_unlock pthread_mutex_t *held = lock_hold(&f->lock);

	if (now && !*flushed)
		f->unflushed--;
	else if (!now && *flushed)
		f->unflushed++;
	*flushed = now;
}

enum draft_open draft_file_is_open(struct draft_file *f)
{
	auto_unlock pthread_mutex_t *held = lock_hold(&f->lock);

	return f->unflushed ? DRAFT_OPEN_WRITING :
	       f->writers   ? DRAFT_OPEN_CLOSING :
			      DRAFT_OPEN_CLOSED;
}

/* Move everything accepted to a place that needs no memory. */
static int finish_writing(struct draft_file *f)
{
	int r = 0;

	if (f->nameless)
		return 0;
	if (f->place == PLACE_STREAM) {
		r = draft_stream_finish(f);
		if (r == 0)
			r = draft_file_stage(f);
	}
	/* Options may still change, and only arrays are worth encoding before the commit. */
	if (r >= 0 && (f->place == PLACE_STAGED || f->place == PLACE_MEMORY))
		r = draft_file_encode(f);
	/*
	 * Malformed or incomplete contents remain as they are; the commit reports what is wrong
	 * with them.
	 */
	return err_except(r, -EINVAL, -EUCLEAN, -EOPNOTSUPP);
}

void draft_file_unname(struct draft_file *f)
{
	auto_unlock pthread_mutex_t *held = lock_hold(&f->lock);
	int r;

	if (!f->writers || f->nameless)
		return;
	r = draft_file_stage(f);
	if (r < 0) {
		/* The writer gets the error. Its contents concern no other program. */
		draft_file_set_error(f, r);
		draft_arrays_release(f);
		buf_release(&f->head);
		f->place = PLACE_MEMORY;
		f->size = f->pos = 0;
	}
	f->nameless = true;
}

void draft_file_closed(struct draft_file *f, const bool *flushed)
{
	auto_unlock pthread_mutex_t *held = lock_hold(&f->lock);
	int r;

	f->writers--;
	f->unflushed -= !*flushed;
	r = f->writers == 0 ? finish_writing(f) : 0;
	if (r < 0) {
		/* No program waits for this result. */
		draft_file_set_error(f, r);
		log_warn("'%s' is not encoded yet: %s", f->node->name, err_text(r));
	}
}

int draft_file_take_error(struct draft_file *f)
{
	auto_unlock pthread_mutex_t *held = lock_hold(&f->lock);

	return draft_file_take_error_locked(f);
}

void draft_file_set_lost(struct draft_file *f, int code)
{
	auto_unlock pthread_mutex_t *held = lock_hold(&f->lock);

	f->lost = code;
}

int draft_file_check_lost(struct draft_file *f)
{
	auto_unlock pthread_mutex_t *held = lock_hold(&f->lock);

	if (!f->lost)
		return 0;
	return fail(f->lost,
		    "'%s': bytes that were written through a map are lost (%s): "
		    "write it again, and sync it",
		    f->node->name, strerror(-f->lost));
}

int draft_file_sync(struct draft_file *f)
{
	auto_unlock pthread_mutex_t *held = lock_hold(&f->lock);
	int r = draft_file_take_error_locked(f);

	/*
	 * The kernel has reported the loss to the program before this call, so a program that
	 * continues has written the bytes again.
	 */
	f->lost = 0;
	for (size_t i = 0; i < f->n_arrays && r >= 0; i++)
		if (f->array[i].writer)
			r = zarr_writer_flush(f->array[i].writer);
	return r >= 0 && f->place == PLACE_STAGED ? io_file_sync(f->staged) : r;
}
