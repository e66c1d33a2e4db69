/* SPDX-License-Identifier: Apache-2.0 */
/*
 * read_many_chunk.c - bring one chunk into the result: decide how, decode, copy through strides.
 */
#include <string.h>

#include "core/base/blocks.h"
#include "core/base/crc32c.h"
#include "core/dtype/cast.h"
#include "core/zarr/read_many/read_many_impl.h"

/* of a stream; small enough to be cast while it is in the processor's cache */
#define PIECE (256 * KiB)
#define RETAINED (1 * MiB)      /* pieces of a result from which the decoder can read history */
#define INPUT (1 * MiB)         /* bytes of a stream's stored data that are read at once */
#define THROUGH_BYTES (4 * MiB) /* bytes that are read through the cache at once */
#define FRONT_CHUNK (4 * MiB)   /* of larger chunks, only the part to be decoded is read */
#define WATCHED (16 * MiB)      /* larger chunks check now and then whether to continue */

int many_at(const struct many_job *job, int r)
{
	struct chunk c = { .loc.where = KV_ABSENT };
	auto_buf where = { 0 };
	struct grid_part p;

	many_part(job->t, job->number, c.index, &p);
	chunk_text(job->t->r.z, &c, &where);
	return err_at(r, "%s", buf_str(&where));
}

/* ---- deciding how ---- */

static void raw_init(struct many *m, const struct many_job *job, bool one_run, bool summed,
		     struct many_work *k)
{
	const struct many_target *t = job->t;
	uint64_t n = strided_span(&k->copy);

	k->how = MANY_RAW;
	k->at = k->first + job->from;
	k->n = job->n ? job->n : n;
	if (one_run && t->r.view.dtype == t->r.z->meta.dtype &&
	    (!summed || n == t->r.z->leaf->bytes)) {
		if (summed && !job->n && n > WATCHED)
			k->how = MANY_PIECES;
		return;
	}
	k->how = n <= m->big_bytes ? MANY_WHOLE : MANY_THROUGH;
	k->n = n;
	k->shown = true;
}

void many_work_init(struct many *m, struct many_job *job, struct many_work *ret)
{
	struct many_work *k = ret;
	const struct many_target *t = job->t;
	const struct zarr *z = t->r.z;
	bool one_run, whole, summed;
	uint64_t room;
	int64_t to;

	*k = (struct many_work){ .job = job, .req = -1 };
	many_part(t, job->number, NULL, &k->part);
	if (job->loc.where == KV_ABSENT)
		return;
	k->first = reading_part(&t->rd, &k->part, &k->copy, &to);
	k->to = t->r.to + to;
	one_run = strided_is_run(&k->copy);
	whole = one_run && z->leaf_in_order && strided_span(&k->copy) == z->leaf->bytes;
	summed = kv_loc_may_have_sum(&job->loc) && job->loc.len - job->len <= KV_SUM_REST;
	k->direct = whole && t->r.view.dtype == z->meta.dtype;
	if (z->leaf_raw && job->loc.where == KV_FILE && job->len == z->leaf->bytes &&
	    (!summed || (k->direct && !job->off))) {
		raw_init(m, job, one_run, summed, k);
		return;
	}
	k->need = k->first + strided_span(&k->copy);
	k->all = summed;
	k->n = summed ? job->loc.len + job->loc.tail : job->len;
	room = (job->loc.where == KV_FILE ? k->n : 0) + (k->direct ? 0 : z->leaf->bytes);
	k->how = room <= m->big_bytes ? MANY_WHOLE : whole ? MANY_STREAM : MANY_THROUGH;
	/* A large part of the chunk is not needed. */
	if (!whole && job->loc.where == KV_FILE && z->leaf->bytes > FRONT_CHUNK &&
	    k->need <= z->leaf->bytes / 4 * 3 && k->need + 2 * INPUT <= m->big_bytes) {
		k->how = MANY_FRONT;
		k->all = false;
		k->n = 0;
	}
}

/* ---- whole chunks ---- */

static int scratch_grow(struct many_worker *w, size_t n)
{
	if (n <= w->n_scratch)
		return 0;
	block_free(take(w->scratch), w->n_scratch);
	w->n_scratch = 0;
	w->scratch = block_alloc(n);
	if (!w->scratch)
		return fail(-ENOMEM, "cannot allocate %zu bytes", n);
	w->n_scratch = n;
	return 0;
}

static void count(struct many *m, uint64_t bytes, uint64_t stored)
{
	struct zarr_env *env = m->env;

	atomic_fetch_add_explicit(&env->chunks_decoded, 1, memory_order_relaxed);
	atomic_fetch_add_explicit(&env->chunk_bytes_decoded, bytes, memory_order_relaxed);
	atomic_fetch_add_explicit(&env->chunk_bytes_stored, stored, memory_order_relaxed);
}

/* ---- inside of a large chunk ---- */

struct watched {
	struct many_worker *w;
	struct many_work *k;
};

int many_go_on(struct many_worker *w, struct many_work *k, uint64_t done)
{
	if (k->direct) {
		atomic_fetch_add(&w->many->done, done - k->reported);
		k->reported = done;
	}
	if (w->is_caller)
		many_report_progress(w->many);
	return many_is_off(k->job->t) ? fail(-ECANCELED, "canceled") : 0;
}

/* A codec_watch function. */
static int go_on(void *arg, size_t done)
{
	const struct watched *x = arg;

	return many_go_on(x->w, x->k, done);
}

/* The chunk is not stored: fill its longest axis, a part at a time. */
static int run_fill(struct many_worker *w, struct many_work *k)
{
	const struct many_target *t = k->job->t;
	struct grid_part piece = k->part;
	unsigned axis = 0;
	uint64_t count = 1, per, room;

	for (unsigned i = 0; i < t->rd.grid.rank; i++)
		if (piece.hi[i] - piece.lo[i] > piece.hi[axis] - piece.lo[axis])
			axis = i;
	if (t->rd.grid.rank)
		count = piece.hi[axis] - piece.lo[axis];
	per = grid_part_elements(&t->rd.grid, &k->part) / MAX(count, (uint64_t)1) * t->rd.out_item;
	room = MAX((uint64_t)1, WATCHED / MAX(per, (uint64_t)1));
	if (count <= room) {
		reading_fill_part(&t->rd, &piece, t->r.to);
		return 0;
	}
	for (uint64_t at = 0; at < count && !many_is_off(t); at += room) {
		piece.lo[axis] = k->part.lo[axis] + at;
		piece.hi[axis] = MIN(piece.lo[axis] + room, k->part.hi[axis]);
		reading_fill_part(&t->rd, &piece, t->r.to);
		per = grid_part_elements(&t->rd.grid, &piece) * t->rd.out_item;
		atomic_fetch_add(&w->many->done, per);
		k->reported += per;
		if (w->is_caller)
			many_report_progress(w->many);
	}
	return 0;
}

/* ---- chunks in memory ---- */

static int run_whole(struct many_worker *w, struct many_work *k)
{
	const struct codec_watch watch = { go_on, &(struct watched){ w, k } };
	const struct many_job *job = k->job;
	const struct many_target *t = job->t;
	const struct zarr *z = t->r.z;
	/* The bytes that were read: all of the value and its trailer, or those of the job. An empty
	 * file has none. */
	struct span bytes = span_of(k->in, k->n), in;
	uint8_t *out;
	int r = 0;

	if (job->loc.where == KV_INLINE)
		in = span_from(buf_span(&job->loc.bytes), job->off);
	else
		in = span_from(bytes, k->all ? job->off : 0);
	in.n = job->len;
	if (k->all && job->loc.where == KV_FILE)
		r = kv_loc_compare(&job->loc, span_of(k->in, job->loc.len),
				   span_of(span_from(bytes, job->loc.len).p, job->loc.tail));
	/* Only some of the stored elements were read, and they are as shown. */
	if (r >= 0 && k->shown) {
		strided_copy(&k->copy, k->in, k->to);
		return 0;
	}
	if (r >= 0 && !k->direct)
		r = scratch_grow(w, z->leaf->bytes);
	if (r < 0)
		return r;
	out = k->direct ? k->to : w->scratch;
	r = codec_decode_front(&z->leaf->codecs, in, out, z->leaf->bytes, k->need,
			       z->leaf->bytes > WATCHED ? &watch : NULL);
	if (r < 0)
		return io_why_bad(r, job->loc.file);
	zarr_to_shown(z, out, k->need);
	count(w->many, k->need, job->len);
	if (!k->direct)
		strided_copy(&k->copy, out + k->first, k->to);
	return 0;
}

/* ---- streams ---- */

struct input {
	const struct many_job *job;
	uint8_t *buf[2];
	struct io_req req;
	bool asked; /* req is in flight */
	unsigned turn;
	uint64_t given;
	uint32_t crc;
	bool summed;
};

static void input_ask(struct input *in, uint64_t at)
{
	const struct many_job *job = in->job;
	size_t n = (size_t)MIN(INPUT, job->len - at);

	if (!n)
		return;
	in->req = (struct io_req){ .op = IO_READ,
				   .file = job->loc.file,
				   .p = in->buf[in->turn],
				   .n = n,
				   .off = job->loc.off + job->off + at };
	io_submit(job->t->many->env->io, &in->req, 1);
	in->asked = true;
	in->turn ^= 1;
}

/* A codec_pull_fn: the next piece is read while the current one is decoded. */
static int input_pull(void *arg, struct span *ret)
{
	struct input *in = arg;
	const struct many_job *job = in->job;
	struct io_engine *io = job->t->many->env->io;
	int r;

	*ret = span_of(NULL, 0);
	if (job->loc.where == KV_INLINE) {
		*ret = span_from(buf_span(&job->loc.bytes), job->off);
		ret->n = in->given ? 0 : job->len;
		in->given = job->len;
		return 0;
	}
	if (in->given == job->len)
		return 0;
	if (!in->asked)
		input_ask(in, in->given);
	in->asked = false;
	r = io_wait(io, &in->req, 1);
	if (r >= 0 && (size_t)in->req.result != in->req.n)
		r = fail(-EUCLEAN, "'%s' ends at byte %llu", job->loc.file->name,
			 (unsigned long long)(in->req.off + (uint64_t)in->req.result));
	if (r < 0)
		return r;
	*ret = span_of(in->req.p, in->req.n);
	if (in->summed)
		in->crc = crc32c_more(in->crc, *ret);
	in->given += in->req.n;
	if (in->given < job->len)
		input_ask(in, in->given);
	else if (in->summed)
		r = MIN(kv_loc_check_end(&job->loc, job->len, in->crc), 0);
	return r;
}

/*
 * Bytes of each read that stay as they are until the next one has returned: those of a result which
 * nobody converts, and of scratch memory that has room for all.
 */
static size_t retained_by(const struct many_work *k)
{
	bool stays = k->how == MANY_FRONT || (k->direct && k->job->t->r.z->leaf_as_shown);

	return stays ? RETAINED : 0;
}

static int stream_pieces(struct many_worker *w, struct many_work *k, struct codec_stream *s)
{
	const struct many_target *t = k->job->t;
	const struct zarr *z = t->r.z;
	uint8_t *to = k->to;
	bool in_place = codec_stream_needs_before(s);
	size_t piece = in_place ? RETAINED : PIECE;
	int r = k->direct ? 0 : scratch_grow(w, piece);

	for (uint64_t at = 0; at < z->leaf->bytes && r >= 0 && !many_is_off(t);) {
		size_t n = (size_t)MIN(piece, z->leaf->bytes - at);
		uint8_t *out = k->direct ? to + at : w->scratch;

		r = codec_stream_read_after(s, in_place && at ? out - piece : NULL, out, n);
		if (r < 0)
			break;
		zarr_to_shown(z, out, n);
		if (!k->direct)
			cast(t->r.view.dtype, to + at / t->rd.item * t->rd.out_item, z->meta.dtype,
			     out, n / t->rd.item);
		at += n;
		atomic_fetch_add(&w->many->done, n / t->rd.item * t->rd.out_item);
		if (w->is_caller)
			many_report_progress(w->many);
	}
	return r;
}

/* Decode as far as needed, and no further: neither the end nor a checksum after it is checked. */
static int stream_front(struct many_worker *w, struct many_work *k, struct codec_stream *s)
{
	const struct many_target *t = k->job->t;
	int r = scratch_grow(w, k->need);

	for (size_t at = 0, n; at < k->need && r >= 0 && !many_is_off(t); at += n) {
		uint8_t *out = w->scratch + at;

		n = MIN(RETAINED, k->need - at);
		r = codec_stream_read_after(s, at ? out - RETAINED : NULL, out, n);
		if (r >= 0 && w->is_caller)
			many_report_progress(w->many);
	}
	if (r < 0 || many_is_off(t))
		return r;
	zarr_to_shown(t->r.z, w->scratch, k->need);
	strided_copy(&k->copy, w->scratch + k->first, k->to);
	return 0;
}

static int run_stream(struct many_worker *w, struct many_work *k)
{
	const struct zarr *z = k->job->t->r.z;
	struct input in = { .job = k->job, .summed = k->all && !k->job->off };
	bool front = k->how == MANY_FRONT;
	auto_of(codec_stream) struct codec_stream *s = NULL;
	int r = 0;

	for (unsigned i = 0; i < ARRAY_LEN(in.buf) && r >= 0; i++) {
		in.buf[i] = block_alloc(INPUT);
		r = in.buf[i] ? 0 : fail(-ENOMEM, "cannot allocate a decoder's input");
	}
	if (r >= 0)
		r = codec_stream_open_retained(&z->leaf->codecs, input_pull, &in, z->leaf->bytes,
					       MAX(w->many->big_bytes, 8 * MiB), retained_by(k),
					       &s);
	if (r >= 0)
		r = front ? stream_front(w, k, s) : stream_pieces(w, k, s);
	if (in.asked) {
		struct err_note why;

		/* It reads into memory that will be freed. */
		err_save(r, &why);
		io_wait(w->many->env->io, &in.req, 1);
		r = r < 0 ? err_restore(&why) : r;
	}
	codec_stream_close(take(s));
	for (unsigned i = 0; i < ARRAY_LEN(in.buf); i++)
		block_free(in.buf[i], INPUT);
	if (r >= 0)
		count(w->many, front ? k->need : z->leaf->bytes, in.given);
	return r;
}

int many_work_run(struct many_worker *w, struct many_work *k)
{
	const struct many_target *t = k->job->t;
	int r = 0;

	if (k->how == MANY_FILL)
		r = run_fill(w, k);
	else if (k->how == MANY_RAW)
		r = many_run_raw(k);
	else if (k->how == MANY_PIECES)
		r = many_run_pieces(w, k);
	else if (k->how == MANY_WHOLE)
		r = run_whole(w, k);
	else
		r = run_stream(w, k);
	if (r < 0)
		return many_at(k->job, r);
	if (k->how != MANY_STREAM)
		atomic_fetch_add(&w->many->done,
				 (k->job->n ? k->job->n / t->rd.item :
					      grid_part_elements(&t->rd.grid, &k->part)) *
						 t->rd.out_item -
					 k->reported);
	return 0;
}

/* ---- through the cache ---- */

/* A view of the part alone. */
static int part_view(const struct many_target *t, const struct grid_part *p, struct zarr_view *v)
{
	*v = t->r.view;
	v->plain = false;
	for (unsigned i = 0; i < t->rd.grid.rank; i++) {
		v->axis[i].start += v->axis[i].step * p->lo[i];
		v->axis[i].count = p->hi[i] - p->lo[i];
	}
	return zarr_view_finish(v);
}

/* Copy elements [at, at + n) of a part from `in` to their places. */
static void scatter(const struct many_target *t, const struct grid_part *p, uint64_t at, uint64_t n,
		    const uint8_t *in)
{
	struct strided s;
	int64_t base;

	reading_part(&t->rd, p, &s, &base);

	for (uint64_t i = 0; i < n; i++) {
		uint64_t rest = at + i;
		int64_t to = 0;

		for (unsigned k = t->rd.grid.rank; k > 0; k--) {
			uint64_t count = p->hi[k - 1] - p->lo[k - 1];

			if (count > 1)
				to += (int64_t)(rest % count) * t->r.stride[k - 1];
			rest /= count;
		}
		memcpy(t->r.to + base + to, in + i * t->rd.out_item, t->rd.out_item);
	}
}

int many_through(struct many_job *job)
{
	struct many_target *t = job->t;
	size_t room = THROUGH_BYTES / t->rd.out_item * t->rd.out_item;
	struct zarr_view v;
	struct grid_part p;
	uint8_t *buf;
	int r;

	many_part(t, job->number, NULL, &p);
	r = part_view(t, &p, &v);
	buf = r < 0 ? NULL : block_alloc(room);
	if (r >= 0 && !buf)
		r = fail(-ENOMEM, "cannot allocate %zu bytes", room);
	for (uint64_t off = 0; r >= 0 && off < v.bytes && !many_is_off(t);) {
		size_t n = (size_t)MIN((uint64_t)room, v.bytes - off);

		r = zarr_read_into(t->r.z, &v, off, n, buf);
		if (r >= 0)
			scatter(t, &p, off / t->rd.out_item, n / t->rd.out_item, buf);
		off += n;
		atomic_fetch_add(&t->many->done, n);
		many_report_progress(t->many);
	}
	block_free(buf, room);
	return r;
}
