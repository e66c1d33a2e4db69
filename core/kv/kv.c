/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kv.c - the only caller of kv_ops: batches, whole values, trace.
 */
#include "core/kv/kv.h"

#include "core/base/crc32c.h"
#include "core/base/err.h"
#include "core/base/lfs.h"
#include "core/base/log.h"
#include "core/kv/kv_sum.h"

void kv_loc_release(struct kv_loc *loc)
{
	buf_release(&loc->bytes);
	io_file_unref(loc->file);
	*loc = (struct kv_loc){ 0 };
}

int kv_loc_read(const struct kv_loc *loc, uint64_t at, size_t n, void *p)
{
	if (loc->where == KV_FILE)
		return io_read_exact(loc->file, p, n, loc->off + at);
	if (n)
		memcpy(p, kv_loc_inline(loc, at, n).p, n);
	return 0;
}

int kv_locate(struct kv *kv, const struct span *key, struct kv_loc *ret, size_t n)
{
	int r;

	for (size_t i = 0; i < n; i++) {
		trace(TRACE_KV, "locate %s '%.*s'", kv->name, SPAN_ARG(key[i]));
		ret[i] = (struct kv_loc){ 0 };
	}
	r = kv->ops->locate(kv, key, ret, n);
	for (size_t i = 0; i < n && r < 0; i++)
		kv_loc_release(&ret[i]);
	return r;
}

/* Check that the range of get lies in the value, and set ret_len to its length. */
static int get_range(const struct kv_get *get, const struct kv_loc *loc, uint64_t *ret_len)
{
	uint64_t len = get->len == UINT64_MAX && get->off <= loc->len ? loc->len - get->off :
									get->len;

	if (get->off > loc->len || len > loc->len - get->off)
		return fail(-EUCLEAN,
			    "value of '%.*s' has %llu bytes, %llu at offset %llu were wanted",
			    SPAN_ARG(get->key), (unsigned long long)loc->len,
			    (unsigned long long)len, (unsigned long long)get->off);
	*ret_len = len;
	return 0;
}

/*
 * The number of bytes to read after len bytes of a value, for its checksum: only a whole value can
 * be compared.
 */
static size_t tail_of(const struct kv_get *get, const struct kv_loc *loc, uint64_t len)
{
	return get->off == 0 && len == loc->len && len ? loc->tail : 0;
}

/* Copy an inline value; add a request for a range of a file. */
static int get_one(struct kv_get *get, const struct kv_loc *loc, struct io_req *req, size_t *n_req)
{
	uint64_t len = 0;
	int r;

	get->found = loc->where != KV_ABSENT;
	if (!get->found)
		return 0;
	r = get_range(get, loc, &len);
	if (r < 0)
		return r;
	if (loc->where == KV_INLINE)
		return buf_add(get->ret, loc->bytes.p + get->off, len);
	r = buf_reserve(get->ret, len + tail_of(get, loc, len));
	if (r < 0 || len == 0)
		return r;
	req[(*n_req)++] = (struct io_req){ .op = IO_READ,
					   .file = loc->file,
					   .p = buf_end(get->ret),
					   .n = len + tail_of(get, loc, len),
					   .off = loc->off + get->off };
	get->ret->n += len;
	return 0;
}

/* Compare a whole value with its checksum, if it has one; the trailer was read after the value. */
static int check_one(const struct kv_get *get, const struct kv_loc *loc, size_t was)
{
	size_t len = get->ret->n - was;
	int r = 0;

	/* A part of a value cannot be checked. */
	if (loc->where == KV_FILE && get->off == 0 && len == loc->len)
		r = kv_loc_compare(loc, span_from(buf_span(get->ret), was),
				   span_of(buf_end(get->ret), tail_of(get, loc, len)));
	return r < 0 ? err_at(r, "value of '%.*s' (value:%s:%llu:%llu)", SPAN_ARG(get->key),
			      loc->file->name, (unsigned long long)loc->off,
			      (unsigned long long)loc->len) :
		       0;
}

int kv_get(struct kv *kv, struct kv_get *get, size_t n)
{
	auto_free struct span *keys = calloc(n ? n : 1, sizeof(*keys));
	auto_free struct kv_loc *locs = calloc(n ? n : 1, sizeof(*locs));
	auto_free struct io_req *reqs = calloc(n ? n : 1, sizeof(*reqs));
	auto_free size_t *old = calloc(n ? n : 1, sizeof(*old));
	size_t n_req = 0;
	int r;

	if (!keys || !locs || !reqs || !old)
		return fail(-ENOMEM, "cannot get %zu keys: not enough memory", n);
	for (size_t i = 0; i < n; i++) {
		keys[i] = get[i].key;
		old[i] = get[i].ret->n;
	}
	r = kv_locate(kv, keys, locs, n);
	if (r < 0)
		return r;
	for (size_t i = 0; i < n && r >= 0; i++)
		r = get_one(&get[i], &locs[i], reqs, &n_req);
	if (r >= 0 && n_req)
		r = io_run_exact(kv->io, reqs, n_req);
	for (size_t i = 0; i < n && r >= 0; i++)
		r = check_one(&get[i], &locs[i], old[i]);
	for (size_t i = 0; i < n; i++) {
		kv_loc_release(&locs[i]);
		if (r < 0)
			get[i].ret->n = old[i];
	}
	return r;
}

/* Append the value of a file, and compare its checksum, if it has one. */
static int get_from_file(const struct kv_get *get, const struct kv_loc *loc)
{
	struct buf *ret = get->ret;
	size_t was = ret->n;
	int r = buf_reserve(ret, loc->len + loc->tail);

	if (r < 0)
		return r;
	if (loc->len + loc->tail)
		r = io_read_exact(loc->file, buf_end(ret), loc->len + loc->tail, loc->off);
	if (r < 0)
		return r;
	ret->n += loc->len;
	return check_one(get, loc, was);
}

int kv_get_all(struct kv *kv, struct span key, uint64_t limit, struct buf *ret)
{
	struct kv_get get = { .key = key, .len = UINT64_MAX, .ret = ret };
	auto_kv_loc loc = { 0 };
	size_t was = ret->n;
	int r = kv_locate(kv, &key, &loc, 1);

	if (r < 0 || loc.where == KV_ABSENT)
		return r;
	if (loc.len > limit)
		return fail(-EFBIG, "value of '%.*s' has %llu bytes, the limit is %llu",
			    SPAN_ARG(key), (unsigned long long)loc.len, (unsigned long long)limit);
	if (loc.where == KV_INLINE) {
		r = buf_add_span(ret, buf_span(&loc.bytes));
	} else {
		r = get_from_file(&get, &loc);
		r = r < 0 ? io_why_bad(r, loc.file) :
			    lfs_check(loc.file->name, span_from(buf_span(ret), was));
		if (r < 0)
			ret->n = was;
	}
	return r < 0 ? r : 1;
}

int kv_list(struct kv *kv, struct span prefix, kv_each_fn *each, void *arg)
{
	trace(TRACE_KV, "list %s '%.*s'", kv->name, SPAN_ARG(prefix));
	return kv->ops->list(kv, prefix, each, arg);
}

int kv_put(struct kv *kv, struct span key, struct span value)
{
	trace(TRACE_KV, "put %s '%.*s' %zu", kv->name, SPAN_ARG(key), value.n);
	if (!kv->ops->put)
		return fail(-EROFS, "'%s' cannot be written", kv->name);
	return kv->ops->put(kv, key, value);
}

/* ---- values in pieces, for stores that take whole ones ---- */

struct kv_gather {
	struct kv_stream base;
	struct kv *kv; /* borrowed */
	struct buf key, value;
};

static int gather_add(struct kv_stream *s, struct span piece)
{
	return buf_add_span(&container_of(s, struct kv_gather, base)->value, piece);
}

static void gather_abort(struct kv_stream *s)
{
	struct kv_gather *g = container_of(s, struct kv_gather, base);

	buf_release(&g->key);
	buf_release(&g->value);
	free(g);
}

static int gather_close(struct kv_stream *s)
{
	struct kv_gather *g = container_of(s, struct kv_gather, base);
	int r = kv_put(g->kv, buf_span(&g->key), buf_span(&g->value));

	if (r < 0)
		return r;
	gather_abort(s);
	return 0;
}

static const struct kv_stream_ops gather_ops = { .add = gather_add,
						 .close = gather_close,
						 .abort = gather_abort };

int kv_put_open(struct kv *kv, struct span key, struct kv_stream **ret)
{
	struct kv_gather *g;
	int r;

	trace(TRACE_KV, "put %s '%.*s' in pieces", kv->name, SPAN_ARG(key));
	if (kv->ops->put_open)
		return kv->ops->put_open(kv, key, ret);
	g = calloc(1, sizeof(*g));
	if (!g)
		return fail(-ENOMEM, "cannot store '%.*s'", SPAN_ARG(key));
	r = buf_add_span(&g->key, key);
	if (r < 0) {
		free(g);
		return r;
	}
	g->base.ops = &gather_ops;
	g->kv = kv;
	*ret = &g->base;
	return 0;
}

int kv_stream_add(struct kv_stream *s, struct span piece)
{
	return s->ops->add(s, piece);
}

int kv_stream_close(struct kv_stream **s)
{
	int r = (*s)->ops->close(*s);

	if (r < 0)
		return r;
	*s = NULL;
	return r;
}

void kv_stream_abort(struct kv_stream *s)
{
	if (s)
		s->ops->abort(s);
}

/* ---- copies ---- */

#define PIECE ((uint64_t)1 << 20) /* a chunk may be larger than memory */

/* Add the bytes of the piece at `at` that belong to the part. */
static int add_part(struct kv_stream *out, const struct kv_copying *y, uint64_t at,
		    struct span piece)
{
	uint64_t from = MAX(at, y->off), to = MIN(at + piece.n, y->off + y->len);

	return from < to ? kv_stream_add(out, span_of(piece.p + (from - at), (size_t)(to - from))) :
			   0;
}

/* Returns 1 when the checksum of the value was compared. */
static int copy_pieces(struct kv_stream *out, const struct kv_copying *y, uint8_t *room)
{
	bool all = kv_loc_may_have_sum(y->from) && y->from->len - y->len <= KV_SUM_REST;
	uint64_t at = all ? 0 : y->off, end = all ? y->from->len : y->off + y->len, n;
	uint32_t crc = 0;

	for (; at < end; at += n) {
		int r;

		n = MIN(end - at, PIECE);
		r = kv_loc_read(y->from, at, (size_t)n, room);
		if (r < 0)
			return r;
		r = add_part(out, y, at, span_of(room, (size_t)n));
		if (r < 0)
			return r;
		if (all)
			crc = crc32c_more(crc, span_of(room, (size_t)n));
	}
	return all ? kv_loc_check_end(y->from, end, crc) : 0;
}

int kv_copy(struct kv *kv, struct span key, const struct kv_copying *y)
{
	auto_of(kv_stream) struct kv_stream *out = NULL;
	auto_free uint8_t *room = malloc(MIN(y->from->len, PIECE) + 1);
	int r = room ? kv_put_open(kv, key, &out) :
		       fail(-ENOMEM, "cannot copy '%.*s'", SPAN_ARG(key));

	if (r < 0)
		return r;
	r = copy_pieces(out, y, room);
	if (r < 0)
		return r;
	out->unchecked = !y->checked && r == 0;
	r = kv_stream_add(out, y->tail);
	return r < 0 ? r : kv_stream_close(&out);
}

int kv_where_text(struct kv *kv, struct span key, struct buf *ret)
{
	return kv->ops->where_text(kv, key, ret);
}

void kv_close_files(struct kv *kv)
{
	if (kv->ops->close_files)
		kv->ops->close_files(kv);
}

struct kv *kv_ref(struct kv *kv)
{
	atomic_fetch_add_explicit(&kv->more_refs, 1, memory_order_relaxed);
	return kv;
}

void kv_free(struct kv *kv)
{
	if (!kv || atomic_fetch_sub_explicit(&kv->more_refs, 1, memory_order_acq_rel) != 0)
		return;
	free(kv->name);
	kv->ops->free(kv);
}
