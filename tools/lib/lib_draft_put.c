/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lib_draft_put.c - writes values to files of a draft, several at once.
 *
 * A value becomes what a program would write through a mount: the header and elements of an .npy
 * file, or a text. Threads copy; the pool encodes.
 */
#include <pthread.h>
#include <string.h>

#include "core/base/thread.h"
#include "handlers/format/npy.h"
#include "tools/lib/lib_draft.h"

#define PIECE (1 * MiB)
#define THREADS 8u

_Static_assert(PYTREEFS_DEPTH == LIMIT_TREE_DEPTH, "the header has the limit of the tree");

int lib_value_elements(const struct pytreefs_value *v, enum dtype *ret, uint64_t *ret_bytes)
{
	enum dtype t = v->dtype ? dtype_by_user(span_str(v->dtype)) : DTYPE_UNKNOWN;
	size_t ndim = v->kind == PYTREEFS_SCALAR ? 0 : v->ndim;
	uint64_t n;

	if (t == DTYPE_UNKNOWN)
		return fail(-EINVAL, "'%s' is not a dtype", v->dtype ? v->dtype : "");
	if (ndim > LIMIT_RANK)
		return fail(-EINVAL, "an array of %zu axes, the limit is %d", ndim, LIMIT_RANK);
	n = dtype_info(t)->size;
	for (size_t i = 0; i < ndim; i++)
		if (!mul_fits(n, v->shape[i], &n) || n > INT64_MAX)
			return fail(-EFBIG, "an array of more than 2^63 bytes");
	*ret = t;
	*ret_bytes = n;
	return 0;
}

/* ---- a job ---- */

struct put {
	struct pytreefs_draft *d;
	const struct pytreefs_value *value;
	struct draft_node **node;
	size_t n;
	unsigned threads; /* number of threads that copy */
	atomic_size_t next;
	atomic_bool stop;       /* a value has failed */
	pthread_mutex_t lock;   /* protects the following member */
	struct err_note failed; /* the first error */
};

static bool put_is_stopped(struct put *p)
{
	return atomic_load(&p->stop) || atomic_load(&p->d->work.stop);
}

/* ---- one value ---- */

struct sink {
	struct put *p; /* NULL: no progress reports */
	struct draft_file *file;
	uint64_t off;
};

static int sink_add(struct sink *s, const void *data, size_t n)
{
	const uint8_t *at = data;

	while (n > 0) {
		ssize_t got = draft_file_write(s->file, s->off, at, MIN(n, (size_t)PIECE));

		if (got < 0)
			return (int)got;
		s->off += (uint64_t)got;
		at += got;
		n -= (size_t)got;
		if (s->p) {
			atomic_fetch_add(&s->p->d->work.done, (unsigned long long)got);
			/* The thread that stopped it reports the reason. */
			if (put_is_stopped(s->p))
				return fail(-ECANCELED, "canceled");
		}
	}
	return 0;
}

static bool is_in_order(const struct pytreefs_value *v, size_t item)
{
	int64_t stride = (int64_t)item;

	for (size_t i = v->strides ? v->ndim : 0; i > 0; i--) {
		if (v->shape[i - 1] > 1 && v->strides[i - 1] != stride)
			return false;
		stride *= (int64_t)v->shape[i - 1];
	}
	return true;
}

static void copy_elements(uint8_t *out, const uint8_t *in, int64_t stride, size_t item, uint64_t n)
{
#define COPY(size)                                                                \
	case size:                                                                \
		for (uint64_t i = 0; i < n; i++)                                  \
			memcpy(out + i * (size), in + (int64_t)i * stride, size); \
		break
	if (stride == (int64_t)item) {
		memcpy(out, in, n * item);
		return;
	}
	switch (item) {
		COPY(1);
		COPY(2);
		COPY(4);
		COPY(8);
		COPY(16);
	}
#undef COPY
}

/* Write elements with any strides, copied piece by piece. */
static int add_strided(struct sink *s, const struct pytreefs_value *v, size_t item, uint64_t bytes)
{
	auto_free uint8_t *piece = malloc(PIECE);
	uint64_t index[LIMIT_RANK] = { 0 }, left = bytes / item;
	const uint8_t *at = v->data;
	size_t last = v->ndim - 1, n = 0;
	int r = piece ? 0 : fail(-ENOMEM, "cannot allocate %d bytes", (int)PIECE);

	while (left > 0 && r >= 0) {
		uint64_t k = MIN(v->shape[last] - index[last], (PIECE - n) / item);

		copy_elements(piece + n, at, v->strides[last], item, k);
		n += k * item;
		left -= k;
		index[last] += k;
		at += (int64_t)k * v->strides[last];
		for (size_t i = v->ndim; i > 1 && index[i - 1] == v->shape[i - 1]; i--) {
			at -= (int64_t)v->shape[i - 1] * v->strides[i - 1];
			at += v->strides[i - 2];
			index[i - 1] = 0;
			index[i - 2]++;
		}
		if (n == PIECE || left == 0) {
			r = sink_add(s, piece, n);
			n = 0;
		}
	}
	return r;
}

static int sink_add_value(struct sink *s, const struct pytreefs_value *v)
{
	auto_buf text = { 0 };
	enum dtype t;
	uint64_t bytes;
	int r;

	if (v->kind == PYTREEFS_STRING || v->kind == PYTREEFS_FILE)
		return sink_add(s, v->data, v->size);
	if (v->kind != PYTREEFS_ARRAY && v->kind != PYTREEFS_SCALAR)
		return 0;
	r = lib_value_elements(v, &t, &bytes);
	if (r < 0)
		return r;
	if (v->kind == PYTREEFS_SCALAR) {
		r = dtype_value_print(t, v->data, &text);
		return r < 0 ? r : sink_add(s, text.p, text.n);
	}
	r = npy_header(&(struct array_type){ t, (unsigned)v->ndim, v->shape }, &text);
	if (r < 0)
		return r;
	r = sink_add(&(struct sink){ .file = s->file }, text.p, text.n);
	s->off = text.n;
	if (r < 0 || !bytes)
		return r;
	return is_in_order(v, dtype_info(t)->size) ? sink_add(s, v->data, bytes) :
						     add_strided(s, v, dtype_info(t)->size, bytes);
}

static int end_file(struct draft_file *f, int r)
{
	const bool flushed = false;
	struct err_note why;

	/* Save the note, since closing an incomplete file may replace it. */
	err_save(r, &why);
	/* Drop what was encoded, since keeping it would mean to decode and copy it. */
	if (r < 0)
		draft_file_truncate(f, 0);
	draft_file_closed(f, &flushed);
	return r < 0 ? err_restore(&why) : draft_file_take_error(f);
}

/* ---- threads ---- */

static void *put_some(void *arg)
{
	struct put *p = arg;
	size_t i;

	while (!put_is_stopped(p) && (i = atomic_fetch_add(&p->next, 1)) < p->n) {
		const struct pytreefs_value *v = &p->value[i];
		struct draft_node *node = p->node[i];
		struct sink s = { .p = p, .file = node->file };
		auto_buf name = { 0 };
		int r;

		if (node->is_dir)
			continue;
		r = draft_file_opened(node->file);
		if (r >= 0)
			r = end_file(node->file, sink_add_value(&s, v));
		if (r >= 0)
			continue;
		if (r != -ECANCELED)
			lib_key_text(v->key, v->n_keys, &name);
		if (name.n)
			err_at(r, "'%.*s'", SPAN_ARG(buf_span(&name)));
		pthread_mutex_lock(&p->lock);
		if (!p->failed.code)
			err_save(r, &p->failed);
		pthread_mutex_unlock(&p->lock);
		atomic_store(&p->stop, true);
	}
	return NULL;
}

static int lib_draft_put_values(void *arg)
{
	struct put *p = arg;
	pthread_t thread[THREADS];
	unsigned n = 0;

	/* With fewer threads than wanted it is only slower. */
	while (n + 1 < p->threads && thread_start(&thread[n], "put", put_some, p) >= 0)
		n++;
	err_clear();
	put_some(p);
	for (unsigned i = 0; i < n; i++)
		pthread_join(thread[i], NULL);
	if (p->failed.code)
		return err_restore(&p->failed);
	return atomic_load(&p->d->work.stop) ? fail(-ECANCELED, "canceled") : 0;
}

static int make_names(struct put *p, uint64_t *ret_bytes)
{
	uint64_t sum = 0;
	int r = 0;

	for (size_t i = 0; i < p->n; i++) {
		const struct pytreefs_value *v = &p->value[i];
		enum dtype t;
		uint64_t bytes = v->size;

		if (v->kind == PYTREEFS_ARRAY || v->kind == PYTREEFS_SCALAR)
			r = lib_value_elements(v, &t, &bytes);
		if (r >= 0)
			r = lib_draft_make(p->d, v, &p->node[i]);
		if (r < 0)
			return lib_at_key(r, v->key, v->n_keys);
		sum += v->kind >= PYTREEFS_DICT && v->kind != PYTREEFS_FILE ? 0 : bytes;
	}
	*ret_bytes = sum;
	return r;
}

static int lib_draft_put_all(struct pytreefs_draft *d, const struct pytreefs_value *value, size_t n,
			     const struct pytreefs_progress *progress)
{
	auto_free struct draft_node **node = calloc(n + 1, sizeof(*node));
	struct lib_progress report = { .p = progress };
	struct put p = { .d = d,
			 .value = value,
			 .node = node,
			 .n = n,
			 .threads = (unsigned)MIN(pool_threads(d->step.ns->ckpt->pool), THREADS),
			 .lock = PTHREAD_MUTEX_INITIALIZER };
	int r = node ? make_names(&p, &report.total) : fail(-ENOMEM, "cannot write %zu values", n);

	p.threads = (unsigned)MIN((size_t)p.threads, n);
	atomic_store(&d->work.done, 0);
	if (r >= 0)
		r = lib_call(&d->work, &report, lib_draft_put_values, &p);
	for (size_t i = 0; node && i < n; i++)
		draft_node_unref(node[i]);
	if (r < 0)
		return r;
	d->bytes += report.total;
	return lib_progress(&report, report.total);
}

int pytreefs_draft_put(struct pytreefs_draft *d, const struct pytreefs_value *value, size_t n,
		       const struct pytreefs_progress *progress)
{
	int r = lib_begin_pid(d->pid, "draft", d->step.name);

	return (int)lib_end(r < 0 ? r : lib_draft_put_all(d, value, n, progress));
}

/* ---- streams ---- */

struct pytreefs_writer {
	struct pytreefs_draft *d;
	struct draft_node *node;
	struct sink sink;
	uint64_t end; /* of the file */
	int failed;
};

static int stream_open(struct pytreefs_draft *d, const struct pytreefs_value *v,
		       struct pytreefs_writer *w)
{
	auto_of(draft_node) struct draft_node *node = NULL;
	auto_buf head = { 0 };
	enum dtype t;
	uint64_t bytes;
	int r = v->kind == PYTREEFS_ARRAY ? lib_value_elements(v, &t, &bytes) :
					    fail(-EINVAL, "only arrays are written piece by piece");

	if (r < 0)
		return r;
	r = npy_header(&(struct array_type){ t, (unsigned)v->ndim, v->shape }, &head);
	if (r < 0)
		return r;
	r = lib_draft_make(d, v, &node);
	if (r < 0)
		return r;
	w->d = d;
	w->sink.file = node->file;
	w->end = head.n + bytes;
	r = draft_file_opened(w->sink.file);
	if (r < 0)
		return r;
	r = sink_add(&w->sink, head.p, head.n);
	if (r < 0)
		return end_file(w->sink.file, r);
	w->node = take(node);
	return 0;
}

int pytreefs_draft_stream(struct pytreefs_draft *d, const struct pytreefs_value *value,
			  struct pytreefs_writer **ret)
{
	int r = lib_begin_pid(d->pid, "draft", d->step.name);
	auto_free struct pytreefs_writer *w = NULL;

	if (r < 0)
		return (int)lib_end(r);
	w = calloc(1, sizeof(*w));
	r = w ? stream_open(d, value, w) : fail(-ENOMEM, "cannot write an array");
	if (r < 0)
		return (int)lib_end(lib_at_key(r, value->key, value->n_keys));
	*ret = take(w);
	return 0;
}

int pytreefs_writer_write(struct pytreefs_writer *w, const void *p, size_t n)
{
	int r = lib_begin_pid(w->d->pid, "draft", w->node->name);

	if (r < 0)
		return (int)lib_end(r);
	if (n > w->end - w->sink.off)
		r = fail(-EINVAL, "'%s' has %llu bytes left, %zu are too many", w->node->name,
			 (unsigned long long)(w->end - w->sink.off), n);
	else
		r = sink_add(&w->sink, p, n);
	if (r < 0)
		w->failed = r;
	return (int)lib_end(r);
}

int pytreefs_writer_close(struct pytreefs_writer *w)
{
	int r = lib_begin_pid(w->d->pid, "draft", w->node->name);

	if (r >= 0) {
		if (w->failed)
			r = fail(w->failed, "'%s' could not be written", w->node->name);
		else if (w->sink.off != w->end)
			r = fail(-EINVAL, "'%s' ends %llu bytes too early", w->node->name,
				 (unsigned long long)(w->end - w->sink.off));
		r = end_file(w->sink.file, r);
		w->d->bytes += r < 0 ? 0 : w->sink.off;
		draft_node_unref(w->node);
	}
	free(w);
	return (int)lib_end(r);
}
