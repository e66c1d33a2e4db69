/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kv_slice.c - a kv that stages the chunks of other ranks' slices.
 *
 * Invariants: a key is in exactly one of the two stores; keys that are not chunks are in the store
 * of the step.
 */
#include "handlers/draft/kv_slice.h"

#include <pthread.h>

#include "core/base/crc32c.h"
#include "core/base/err.h"
#include "core/base/lock.h"

struct kv_slice {
	struct kv base;
	struct kv *own, *rest; /* owned */
	struct zarr_meta meta;
	struct slice slice;
	atomic_ullong *staged; /* borrowed */
	char *dir;
	pthread_mutex_t lock; /* protects all members below */
	struct io_file *file; /* the file of `rest`; NULL until it is needed */
	uint64_t end;
};

static struct kv_slice *slice_own_of(struct kv *kv)
{
	return container_of(kv, struct kv_slice, base);
}

/* Whether a key is in the slice. Metadata keys are in every slice. */
static bool is_in(const struct kv_slice *s, const struct slice *slice, struct span key)
{
	uint64_t index[LIMIT_RANK];

	if (zarr_chunk_key_parse(&s->meta, key, index) != 1)
		return true;
	return index[slice->axis] >= slice->from && index[slice->axis] < slice->to;
}

/* ---- values of the rest ---- */

static int stage_value(struct kv_slice *s, struct span key, struct span value)
{
	struct io_file *f;
	uint64_t off;
	int r = 0;

	/* Reserve the value's bytes in the file, which the first value creates. */
	pthread_mutex_lock(&s->lock);
	if (!s->file)
		r = io_file_temp(s->base.io, NULL, s->dir, &s->file);
	f = s->file;
	off = s->end;
	s->end += value.n;
	pthread_mutex_unlock(&s->lock);
	if (r < 0)
		return r;
	r = io_write_exact(f, value.p, value.n, off);
	if (r < 0)
		return r;
	pthread_mutex_lock(&s->lock);
	f->size = MAX(f->size, off + value.n);
	pthread_mutex_unlock(&s->lock);
	atomic_fetch_add(s->staged, value.n);
	return kv_mem_put_summed(s->rest, key, f, off, value.n, crc32c(value));
}

/*
 * A value that is written in pieces has a file of its own, since others are written at the same
 * time.
 */
struct staged {
	struct kv_stream base;
	struct kv_slice *s;
	struct io_file *file;
	struct buf key;
	uint64_t at;
	uint32_t crc;
};

static int staged_add(struct kv_stream *stream, struct span piece)
{
	struct staged *a = container_of(stream, struct staged, base);
	int r = io_write_exact(a->file, piece.p, piece.n, a->at);

	if (r < 0)
		return r;
	a->at += piece.n;
	a->crc = crc32c_more(a->crc, piece);
	return 0;
}

static void staged_abort(struct kv_stream *stream)
{
	struct staged *a = container_of(stream, struct staged, base);

	io_file_unref(a->file);
	buf_release(&a->key);
	free(a);
}

static int staged_close(struct kv_stream *stream)
{
	struct staged *a = container_of(stream, struct staged, base);
	int r;

	a->file->size = a->at;
	atomic_fetch_add(a->s->staged, a->at);
	r = stream->unchecked ?
		    kv_mem_put_file(a->s->rest, buf_span(&a->key), a->file, 0, a->at) :
		    kv_mem_put_summed(a->s->rest, buf_span(&a->key), a->file, 0, a->at, a->crc);
	if (r < 0)
		return r;
	staged_abort(stream);
	return 0;
}

static const struct kv_stream_ops staged_ops = { .add = staged_add,
						 .close = staged_close,
						 .abort = staged_abort };

/* ---- the kv ---- */

static int slice_put(struct kv *kv, struct span key, struct span value)
{
	struct kv_slice *s = slice_own_of(kv);

	return is_in(s, &s->slice, key) ? kv_put(s->own, key, value) : stage_value(s, key, value);
}

static int slice_put_open(struct kv *kv, struct span key, struct kv_stream **ret)
{
	struct kv_slice *s = slice_own_of(kv);
	auto_of(kv_stream) struct kv_stream *stream = NULL;
	struct staged *a;
	int r;

	if (is_in(s, &s->slice, key))
		return kv_put_open(s->own, key, ret);
	a = calloc(1, sizeof(*a));
	if (!a)
		return fail(-ENOMEM, "cannot store '%.*s'", SPAN_ARG(key));
	a->base.ops = &staged_ops;
	a->s = s;
	stream = &a->base;
	r = buf_add_span(&a->key, key);
	if (r < 0)
		return r;
	r = io_file_temp(s->base.io, NULL, s->dir, &a->file);
	if (r < 0)
		return r;
	*ret = take(stream);
	return 0;
}

static int slice_locate(struct kv *kv, const struct span *key, struct kv_loc *ret, size_t n)
{
	struct kv_slice *s = slice_own_of(kv);
	int r = 0;

	for (size_t i = 0; i < n && r >= 0; i++)
		r = kv_locate(is_in(s, &s->slice, key[i]) ? s->own : s->rest, &key[i], &ret[i], 1);
	return r;
}

static int slice_list(struct kv *kv, struct span prefix, kv_each_fn *each, void *arg)
{
	struct kv_slice *s = slice_own_of(kv);
	int r = kv_list(s->own, prefix, each, arg);

	return r != 0 ? r : kv_list(s->rest, prefix, each, arg);
}

static int slice_where_text(struct kv *kv, struct span key, struct buf *ret)
{
	struct kv_slice *s = slice_own_of(kv);

	return kv_where_text(is_in(s, &s->slice, key) ? s->own : s->rest, key, ret);
}

static void slice_free(struct kv *kv)
{
	struct kv_slice *s = slice_own_of(kv);

	kv_free(s->own);
	kv_free(s->rest);
	zarr_meta_release(&s->meta);
	io_file_unref(s->file);
	pthread_mutex_destroy(&s->lock);
	free(s->dir);
	free(s);
}

static const struct kv_ops slice_ops = {
	.name = "slice",
	.locate = slice_locate,
	.list = slice_list,
	.put = slice_put,
	.put_open = slice_put_open,
	.where_text = slice_where_text,
	.free = slice_free,
};

int kv_slice_new(struct kv *own, struct span json, const struct slice *slice, const char *dir,
		 atomic_ullong *staged, struct kv **ret)
{
	struct kv_slice *s = calloc(1, sizeof(*s));
	auto_of(kv) struct kv *kv = NULL;
	int r;

	if (!s)
		return fail(-ENOMEM, "cannot write a slice");
	kv = &s->base;
	pthread_mutex_init(&s->lock, NULL);
	kv->ops = &slice_ops;
	kv->io = own->io;
	kv->name = strdup("slice");
	s->dir = strdup(dir);
	s->slice = *slice;
	s->staged = staged;
	if (!kv->name || !s->dir)
		return fail(-ENOMEM, "cannot write a slice");
	r = kv_mem_new(own->io, &s->rest);
	if (r < 0)
		return r;
	r = zarr_meta_parse(json, "an array in slices", &s->meta);
	if (r < 0)
		return r;
	s->own = kv->below = own;
	*ret = take(kv);
	return 0;
}

/* ---- the commit ---- */

struct moving {
	struct kv_slice *s;
	const struct slice *want;
};

static int slice_move_one(void *arg, struct span key, uint64_t len)
{
	struct moving *m = arg;
	auto_kv_loc at = { 0 };
	int r = 0;

	if (m->want && !is_in(m->s, m->want, key))
		return 0;
	r = kv_locate(m->s->rest, &key, &at, 1);
	return r < 0 ? r : kv_copy(m->s->own, key, &(struct kv_copying){ .from = &at, .len = len });
}

int kv_slice_give(struct kv *kv, const struct slice *want, struct kv **ret)
{
	struct moving m = { .want = want };

	*ret = kv;
	if (kv->ops != &slice_ops)
		return 0;
	m.s = slice_own_of(kv);
	*ret = m.s->own;
	/* A repeated attempt moves the same values to the same places. */
	return kv_list(m.s->rest, span_of(NULL, 0), slice_move_one, &m);
}
