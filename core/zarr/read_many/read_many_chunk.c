/* SPDX-License-Identifier: Apache-2.0 */
/*
 * read_many_chunk.c - bring one chunk into the result: decide how, and do it.
 */
#include <string.h>

#include "core/base/blocks.h"
#include "core/base/crc32c.h"
#include "core/zarr/read_many/read_many_impl.h"

#define INPUT (1 * MiB)       /* stored bytes that are read at once */
#define FRONT_CHUNK (4 * MiB) /* of larger chunks, no more is read than the part needs */
#define WATCHED (16 * MiB)    /* larger chunks check now and then whether to go on */
#define RUN_BYTES 4096        /* longer runs of a raw chunk are read without the cache */
/* Pieces of a result: their decoder's history is in them up to the window of zstd's level 3. */
#define RESULT_PIECE (4 * MiB)
#define SCRATCH_PIECE (1 * MiB) /* of scratch memory; stays in the processor's cache */

int many_at(const struct many_job *job, int r)
{
	struct chunk c = { .src.loc.where = KV_ABSENT };
	struct grid_part p;

	many_part(job->t, job->number, c.index, &p);
	return chunk_err(job->t->r.z, &c, r);
}

/* ---- deciding how ---- */

/* The stored bytes are the elements, and only those of the part are read. */
static void raw_init(struct many *m, bool is_run, struct many_work *k)
{
	const struct many_job *job = k->job;

	k->n = job->n ? job->n : strided_span(&k->copy);
	k->off = job->src.loc.off + job->src.off + k->first + job->from;
	k->is_elements = true;
	if (is_run)
		k->how = MANY_RAW;
	else
		k->how = k->n <= m->big_bytes ? MANY_WHOLE : MANY_THROUGH;
}

/* Bytes of the result that a part has. */
static uint64_t part_bytes(const struct many_target *t, const struct grid_part *p)
{
	return grid_part_elements(&t->rd.grid, p) * t->rd.out_item;
}

/* The part of a twin, as a copy from byte `first` of the decoded chunk on; returns its bytes. */
static uint64_t twin_part(const struct many_job *j, struct strided *copy, uint64_t *first,
			  uint8_t **to)
{
	struct grid_part p;
	int64_t at;

	many_part(j->t, j->number, NULL, &p);
	*first = reading_part(&j->t->rd, &p, copy, &at);
	*to = j->t->r.to + at;
	return part_bytes(j->t, &p);
}

void many_work_init(struct many *m, struct many_job *job, struct many_work *ret)
{
	struct many_work *k = ret;
	const struct many_target *t = job->t;
	const struct zarr *z = t->r.z;
	bool is_run, is_whole, is_file = job->src.loc.where == KV_FILE, summed, is_raw;
	struct strided copy;
	uint64_t span, first;
	uint8_t *twin_to;
	int64_t to;

	*k = (struct many_work){ .job = job, .req = -1 };
	many_part(t, job->number, NULL, &k->part);
	k->bytes = job->n ? job->n : part_bytes(t, &k->part);
	if (job->src.loc.where == KV_ABSENT)
		return;
	k->first = reading_part(&t->rd, &k->part, &k->copy, &to);
	k->to = t->r.to + to;
	span = strided_span(&k->copy);
	k->need = k->first + span;
	for (const struct many_job *j = job->twin; j; j = j->twin) {
		k->bytes += twin_part(j, &copy, &first, &twin_to);
		k->need = MAX(k->need, first + strided_span(&copy));
	}
	is_run = strided_is_run(&k->copy) && t->r.view.dtype == z->meta.dtype;
	is_whole = strided_is_run(&k->copy) && z->leaf_in_order && span == z->leaf->bytes;
	k->direct = is_run && is_whole;
	summed = chunk_source_is_all(&job->src);
	is_raw = z->leaf_raw && is_file && job->src.len == z->leaf->bytes;
	if (is_raw && (job->n || !summed || (k->direct && !job->src.off))) {
		raw_init(m, is_run, k);
		return;
	}
	k->n = chunk_source_range(&job->src, &k->off);
	k->how = k->n + (k->direct ? 0 : z->leaf->bytes) <= m->big_bytes ? MANY_WHOLE : MANY_STREAM;
	/* A large part is not needed. */
	if (is_file && z->leaf->bytes > FRONT_CHUNK && !many_is_most(z, k->need))
		k->how = MANY_STREAM;
	/* Of elements as they are stored only the range is read. */
	if (k->how == MANY_STREAM && is_raw)
		raw_init(m, is_run, k);
	else if (k->how == MANY_STREAM)
		k->n = 0;
}

/* ---- pieces ---- */

/*
 * Called within a large chunk when `done` bytes of its result are there: the calling thread reports
 * progress, and an error tells the decoder to stop.
 */
static int many_go_on(struct many *m, bool is_caller, struct many_work *k, uint64_t done)
{
	atomic_fetch_add(&m->done, done - k->reported);
	k->reported = done;
	if (is_caller)
		many_report_progress(m);
	return many_job_is_off(k->job) ? fail(-ECANCELED, "canceled") : 0;
}

/*
 * The chunk is not stored, or is read through the cache: fill or copy it along its longest axis, a
 * slice at a time.
 */
static int in_slices(struct many *m, bool is_caller, struct many_work *k, struct chunk *c)
{
	const struct many_target *t = k->job->t;
	struct grid_part slice = k->part;
	uint64_t count = 1, room, done = 0;
	unsigned axis = 0;
	int r = 0;

	for (unsigned i = 0; i < t->rd.grid.rank; i++)
		if (slice.hi[i] - slice.lo[i] > slice.hi[axis] - slice.lo[axis])
			axis = i;
	if (t->rd.grid.rank)
		count = slice.hi[axis] - slice.lo[axis];
	room = MAX((uint64_t)1, WATCHED / MAX(part_bytes(t, &slice) / count, (uint64_t)1));
	for (uint64_t at = 0; at < count && r >= 0; at += room) {
		struct strided s;
		uint64_t from;
		int64_t to;

		if (t->rd.grid.rank) {
			slice.lo[axis] = k->part.lo[axis] + at;
			slice.hi[axis] = MIN(slice.lo[axis] + room, k->part.hi[axis]);
			slice.from[axis] = k->part.from[axis] + at * t->rd.grid.axis[axis].step;
		}
		if (!c || c->mode == CHUNK_FILL) {
			reading_fill_part(&t->rd, &slice, t->r.to);
		} else {
			from = reading_part(&t->rd, &slice, &s, &to);
			r = chunk_copy(t->r.z, c, &s, from, t->r.to + to);
		}
		done += part_bytes(t, &slice);
		if (r < 0)
			return r;
		r = many_go_on(m, is_caller, k, done);
	}
	return r;
}

/* Copy to all views the elements in bytes [begin, end) of the decoded chunk; p has the first. */
static void copy_parts(const struct many_work *k, const uint8_t *p, uint64_t begin, uint64_t end)
{
	if (!k->direct)
		strided_copy_window(&k->copy, k->first, p, begin, end, k->to);
	for (const struct many_job *j = k->job->twin; j; j = j->twin) {
		struct strided copy;
		uint64_t first;
		uint8_t *to;

		twin_part(j, &copy, &first, &to);
		strided_copy_window(&copy, first, p, begin, end, to);
	}
}

struct many_pieces {
	struct many_worker *w;
	struct many_work *k;
	uint64_t need;
};

static int take_piece(void *arg, uint64_t at, const uint8_t *p, size_t n)
{
	struct many_pieces *x = arg;
	struct many_work *k = x->k;
	double part = (double)(at + n) / (double)x->need;

	copy_parts(k, p, at, at + n);
	return many_go_on(x->w->many, x->w->is_caller, k, (uint64_t)(part * (double)k->bytes));
}

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

/* Decode the first `need` bytes piece by piece. -EFBIG: the frame's window is above `window`. */
static int run_pieces(struct many_worker *w, struct many_work *k, struct chunk_input *in,
		      uint64_t need, uint64_t window)
{
	struct many_pieces x = { w, k, need };
	struct chunk_pieces to = { .size = k->direct ? RESULT_PIECE : SCRATCH_PIECE,
				   .window = window,
				   .need = need,
				   .sink = take_piece,
				   .arg = &x };
	int r = k->direct ? 0 : scratch_grow(w, 2 * SCRATCH_PIECE);

	if (r < 0)
		return r;
	if (k->direct)
		to.whole = k->to;
	else
		to.scratch = w->scratch;
	return chunk_source_decode_pieces(k->job->t->r.z, in, &to);
}

static uint64_t usual_window(const struct many_worker *w)
{
	return MAX(w->many->big_bytes, 8 * MiB);
}

/* Neither the end nor a checksum after it is checked when only the first part is needed. */
static int run_stream(struct many_worker *w, struct many_work *k)
{
	const struct zarr *z = k->job->t->r.z;
	uint64_t bytes = z->leaf->bytes, need = many_is_most(z, k->need) ? bytes : k->need;
	uint8_t *buf = block_alloc(2 * INPUT);
	struct chunk_input in = { .src = &k->job->src, .buf = buf, .size = INPUT };
	int r;

	if (!buf)
		return fail(-ENOMEM, "cannot allocate a decoder's input");
	r = run_pieces(w, k, &in, need, usual_window(w));
	/* The window of a frame of a high level is the chunk, which the caller asked for. */
	if (r == -EFBIG && 2 * bytes > usual_window(w)) {
		err_clear();
		in = (struct chunk_input){ .src = &k->job->src, .buf = buf, .size = INPUT };
		r = run_pieces(w, k, &in, need, 2 * bytes);
	}
	block_free(buf, 2 * INPUT);
	return r;
}

/* ---- chunks whose stored bytes are in memory ---- */

/*
 * Whether the first part of the object is decoded alone. One with a checksum is decoded to its end,
 * and so is one of which only the end tells its size, which may be that of another array.
 */
static bool may_stop_early(const struct zarr *z, struct span object)
{
	const struct codec_chain *codecs = &z->leaf->codecs;

	return !codecs->n ||
	       (!codec_is_summed(codecs, object) && codec_declares_size(codecs, object));
}

static int run_whole(struct many_worker *w, struct many_work *k)
{
	const struct many_job *job = k->job;
	const struct zarr *z = job->t->r.z;
	struct chunk_input in = { .src = &job->src };
	uint64_t need = z->leaf->bytes;
	uint8_t *out = k->to;
	int r;

	if (k->is_elements) {
		strided_copy(&k->copy, k->in, k->to);
		return 0;
	}
	r = chunk_source_compare(&job->src, k->in, &in.stored);
	if (r < 0)
		return r;
	if (!many_is_most(z, k->need) && may_stop_early(z, in.stored))
		need = k->need;
	if (in.stored.n && (need < z->leaf->bytes || need > WATCHED)) {
		r = run_pieces(w, k, &in, need, usual_window(w));
		if (r != -EFBIG)
			return r;
		err_clear();
	}
	if (!k->direct) {
		r = scratch_grow(w, z->leaf->bytes);
		if (r < 0)
			return r;
		out = w->scratch;
	}
	r = chunk_source_decode(z, &job->src, k->in, out);
	if (r < 0)
		return r;
	copy_parts(k, out, 0, z->leaf->bytes);
	return r;
}

/*
 * The stored bytes were read into the result. A trailer is read after the value, with whose last
 * bytes it came into the page cache.
 */
static int run_raw(struct many_work *k)
{
	struct many_job *job = k->job, *first = job - job->from / RAW_RANGE;
	struct many *m = job->t->many;
	const struct chunk_source *src = &job->src;
	uint64_t at = 0;
	uint32_t sum = 0;
	int r;

	atomic_fetch_add_explicit(&m->env->raw_bytes, k->n, memory_order_relaxed);
	if (!k->direct || src->off || !chunk_source_is_all(src))
		return 0;
	job->is_summed = job->n && !atomic_load(&m->no_sums);
	if (job->is_summed)
		job->sum = crc32c(span_of(k->to + job->from, k->n));
	if (job->n && atomic_fetch_add(&first->ended, 1) + 1 < div_up(src->len, RAW_RANGE))
		return 0;
	r = kv_loc_has_sum(&src->loc);
	atomic_store(&m->no_sums, r == 0);
	if (r <= 0)
		return r;
	/* This job is the last of the run that was read: join the checksums of all. */
	for (const struct many_job *j = first; at < src->len && j->is_summed; at += (j++)->n)
		sum = crc32c_join(sum, j->sum, j->n);
	return kv_loc_check_end(&src->loc, src->len,
				at == src->len ? sum : crc32c(span_of(k->to, src->len)));
}

int many_work_run(struct many_worker *w, struct many_work *k)
{
	int r;

	if (k->how == MANY_FILL)
		r = in_slices(w->many, w->is_caller, k, NULL);
	else if (k->how == MANY_RAW)
		r = run_raw(k);
	else if (k->how == MANY_WHOLE)
		r = run_whole(w, k);
	else
		r = run_stream(w, k);
	if (r < 0)
		return many_at(k->job, r);
	atomic_fetch_add(&w->many->done, k->bytes - k->reported);
	return 0;
}

int many_through(struct many *m, struct many_work *k)
{
	struct zarr *z = k->job->t->r.z;
	struct chunk c = { 0 };
	int r;

	many_part(k->job->t, k->job->number, c.index, &k->part);
	c.in_runs = strided_run(&k->copy) * dtype_info(z->meta.dtype)->size >= RUN_BYTES;
	r = chunk_open(z, &c, 1);
	if (r < 0)
		return r;
	r = in_slices(m, true, k, &c);
	chunk_close(z, &c, 1);
	return r;
}
