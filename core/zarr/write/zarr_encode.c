/* SPDX-License-Identifier: Apache-2.0 */
/*
 * zarr_encode.c - encode bands of an array to chunk objects.
 *
 * The layout is that of Orbax: little-endian elements in C order, one inner chunk per shard in v3.
 * Chunks at the edge are stored in full size, padded with the fill value.
 */
#include "core/zarr/write/zarr_encode.h"

#include "core/base/blocks.h"
#include "core/base/err.h"
#include "core/base/log.h"
#include "core/dtype/cast.h"
#include "core/dtype/strided.h"
#include "core/zarr/meta/shard.h"

#define BLOCKS_BESIDE (2 * MiB) /* memory of a codec that works in blocks */
#define WRAP_BYTES 64           /* of encode_wrap(), at most */
#define PIECE (128 * KiB)       /* a slow codec takes less than a tenth of a second for it */
#define TASK_BYTES (256 * KiB)  /* less is encoded sooner than another thread wakes up */

int encode_check(const struct zarr *z, const uint8_t *p, size_t n)
{
	enum dtype t = z->meta.dtype;

	if (cast_check(t, p, n / dtype_info(t)->size) < 0)
		return fail(-EINVAL, "a bool is neither 0 nor 1, which TensorStore does not read");
	return 0;
}

bool encode_is_plain(const struct zarr *z)
{
	return !z->leaf->codecs.n && !z->meta.level.shard;
}

/* Several chunks at a time take at most half as much as their band, and what the budget has. */
static unsigned tasks_of(const struct zarr *z, uint64_t budget, const struct encode_plan *p)
{
	const struct pool *pool = z->env->pool;
	uint64_t most = pool ? pool_threads(pool) : 1;
	uint64_t spare = MIN(p->band_bytes / 2, budget - MIN(budget, p->band_bytes));

	most = MIN(most, p->band_bytes / MAX(z->leaf->bytes, (uint64_t)TASK_BYTES));
	return (unsigned)MAX(MIN(most, spare / p->chunk_cost), (uint64_t)1);
}

uint64_t encode_band_cost(const struct encode_plan *plan)
{
	return plan->band_bytes + plan->tasks * plan->chunk_cost;
}

int encode_plan(const struct zarr *z, uint64_t budget, struct encode_plan *ret)
{
	const struct zarr_meta *m = &z->meta;
	const struct dtype_info *t = dtype_info(m->dtype);
	struct encode_plan p = { .axis = m->rank };

	if (!z->leaf_in_order || z->leaf->big_endian ||
	    (m->level.shard && (m->level.shard->entries != 1 || m->level.shard->inner.shard)))
		return fail(-EOPNOTSUPP, "arrays of this layout can be read, not written");
	for (unsigned i = 0; i < m->rank; i++)
		if (m->shape[i] > 1 && m->chunk[i] > 1) {
			p.axis = i;
			break;
		}
	/*
	 * All axes of several positions have chunks of one position: the last such axis is the
	 * band.
	 */
	if (p.axis == m->rank && m->rank > 0) {
		p.axis = m->rank - 1;
		p.rows = m->shape[p.axis];
	} else if (m->rank > 0) {
		p.rows = MIN(m->chunk[p.axis], m->shape[p.axis]);
	} else {
		p.rows = 1;
	}
	p.row_bytes = t->size;
	for (unsigned i = p.axis + 1; i < m->rank; i++)
		p.row_bytes *= m->shape[i];
	p.band_bytes = MAX(p.rows * p.row_bytes, (uint64_t)1);
	p.band_is_chunk = true;
	for (unsigned i = 0; i < m->rank; i++)
		p.band_is_chunk &= m->chunk[i] == (i < p.axis  ? 1 :
						   i == p.axis ? p.rows :
								 m->shape[i]);
	/* A copy of the chunk, unless the band is the chunk, and its encoded form. */
	p.chunk_cost = z->leaf->bytes * (!p.band_is_chunk + !encode_is_plain(z)) + 64 * KiB;
	if (!codec_writes_pieces(&z->leaf->codecs))
		p.chunk_cost += MIN(4 * z->leaf->bytes, BLOCKS_BESIDE);
	p.tasks = tasks_of(z, budget, &p);
	*ret = p;
	return 0;
}

uint64_t encode_band_len(const struct zarr *z, const struct encode_plan *plan, uint64_t at)
{
	uint64_t row;

	if (z->meta.rank == 0)
		return plan->band_bytes;
	row = at / plan->row_bytes % z->meta.shape[plan->axis];
	return MIN(plan->rows, z->meta.shape[plan->axis] - row) * plan->row_bytes;
}

int encode_wrap(const struct zarr *z, uint64_t stored_len, struct buf *ret_tail)
{
	const uint64_t entry[2] = { 0, stored_len };

	return z->meta.level.shard ? shard_index_encode(z->meta.level.shard, entry, ret_tail) : 0;
}

static int add_output(void *arg, struct span out)
{
	return buf_add_span(arg, out);
}

int encode_chunk(const struct write_env *we, const struct zarr *z, const uint8_t *bytes,
		 struct buf *ret)
{
	auto_of(codec_encoder) struct codec_encoder *e = NULL;
	const struct codec_chain *codecs = &z->leaf->codecs;
	size_t was = ret->n;
	/* Room for the index of a shard after a plain chunk; codecs reserve more than they need. */
	int r = codecs->n ? 0 : buf_reserve(ret, z->leaf->bytes + WRAP_BYTES);

	if (r < 0)
		return r;
	if (!we->check || !codec_encodes_slowly(codecs) || !codec_writes_pieces(codecs)) {
		r = codec_encode(codecs, span_of(bytes, z->leaf->bytes), ret);
		return r < 0 ? r : encode_wrap(z, ret->n - was, ret);
	}
	/* Between the pieces of a slow codec, check whether to go on. */
	r = codec_encoder_open(codecs, z->leaf->bytes, add_output, ret, &e);
	for (uint64_t at = 0; at < z->leaf->bytes && r >= 0; at += PIECE) {
		uint64_t n = MIN((uint64_t)PIECE, z->leaf->bytes - at);

		r = write_env_check(we);
		r = r < 0 ? r : codec_encoder_push(e, span_of(bytes + at, n));
	}
	r = r < 0 ? r : codec_encoder_finish(e);
	return r < 0 ? r : encode_wrap(z, ret->n - was, ret);
}

void encode_fill(const struct zarr *z, uint8_t *p)
{
	size_t item = dtype_info(z->meta.dtype)->size;
	bool zero = true;

	for (size_t i = 0; i < item; i++)
		zero &= z->meta.fill[i] == 0;
	if (zero)
		memset(p, 0, z->leaf->bytes);
	for (uint64_t at = 0; !zero && at < z->leaf->bytes; at += item)
		memcpy(p + at, z->meta.fill, item);
}

static bool is_fill(const struct zarr *z, const uint8_t *p)
{
	size_t item = dtype_info(z->meta.dtype)->size;

	/* All elements are equal when each equals its predecessor. */
	return !memcmp(p, z->meta.fill, item) && !memcmp(p, p + item, z->leaf->bytes - item);
}

void box_chunk_place(struct box_chunk *c, uint64_t number)
{
	const struct zarr_meta *m = &c->z->meta;
	const struct zarr_box *box = c->box;
	uint64_t index[LIMIT_RANK];

	c->elements = (struct strided){ .have = c->have, .want = m->dtype };
	c->p = box->p;
	c->bytes = dtype_info(c->have)->size;
	c->is_full = true;
	for (unsigned i = m->rank; i-- > 0;) {
		uint64_t n = div_up(box->count[i], m->chunk[i]);

		index[i] = number % n;
		number /= n;
	}
	for (unsigned i = 0; i < m->rank; i++) {
		uint64_t from = index[i] * m->chunk[i];
		uint64_t count = MIN(m->chunk[i], box->count[i] - from);

		c->chunk[i] = box->start[i] / m->chunk[i] + index[i];
		c->p += from * box->stride[i];
		c->bytes *= count;
		c->is_full &= count == m->chunk[i];
		strided_add(&c->elements, count, box->stride[i], (int64_t)c->z->leaf_stride[i]);
	}
	c->is_there = c->is_full && c->have == m->dtype &&
		      (c->elements.rank == 0 ||
		       (c->elements.rank == 1 && strided_run(&c->elements) == c->elements.n[0]));
}

int box_chunk_put(struct write_env *we, struct kv *kv, const struct box_chunk *c, bool omit_fill)
{
	const struct zarr *z = c->z;
	auto_buf object = { .in_block = true }, key = { 0 };
	struct span stored = span_of(c->p, z->leaf->bytes);
	uint8_t *copy = c->is_there ? NULL : block_alloc(z->leaf->bytes);
	int r = 0;

	if (!c->is_there) {
		if (!copy)
			return fail(-ENOMEM, "cannot allocate a chunk of %llu bytes",
				    (unsigned long long)z->leaf->bytes);
		if (!c->is_full)
			encode_fill(z, copy);
		strided_copy(&c->elements, c->p, copy);
		stored.p = copy;
	}
	if (omit_fill && is_fill(z, stored.p)) {
		block_free(copy, z->leaf->bytes);
		return 0;
	}
	trace(TRACE_CODEC, "encode %llu", (unsigned long long)z->leaf->bytes);
	r = encode_check(z, stored.p, stored.n);
	r = r < 0 ? r : zarr_chunk_key(&z->meta, c->chunk, &key);
	if (r >= 0 && !encode_is_plain(z)) {
		r = encode_chunk(we, z, stored.p, &object);
		stored = buf_span(&object);
	}
	r = r < 0 ? r : kv_put(kv, buf_span(&key), stored);
	block_free(copy, z->leaf->bytes);
	if (r < 0)
		return r;
	atomic_fetch_add_explicit(&we->chunks, 1, memory_order_relaxed);
	atomic_fetch_add_explicit(&we->chunk_bytes, z->leaf->bytes, memory_order_relaxed);
	atomic_fetch_add_explicit(&we->stored_bytes, stored.n, memory_order_relaxed);
	return 0;
}

/* Shared by the tasks of one band. */
struct band_tasks {
	struct write_env *we;
	struct kv *kv;
	const struct zarr *z;
	bool omit_fill;
	struct zarr_box box;   /* the band */
	uint64_t n;            /* number of chunks */
	_Atomic uint64_t next; /* the next chunk that no task has taken; n after an error */
};

static int encode_some(void *arg)
{
	struct band_tasks *t = arg;
	uint64_t i;

	while ((i = atomic_fetch_add(&t->next, 1)) < t->n) {
		struct box_chunk c = { .z = t->z, .have = t->z->meta.dtype, .box = &t->box };
		int r = write_env_check(t->we);

		box_chunk_place(&c, i);
		r = r < 0 ? r : box_chunk_put(t->we, t->kv, &c, t->omit_fill);
		if (r < 0) {
			atomic_store(&t->next, t->n);
			return r;
		}
	}
	return 0;
}

int encode_band(struct write_env *we, struct kv *kv, const struct zarr *z,
		const struct encode_plan *plan, uint64_t at, const uint8_t *bytes)
{
	const struct zarr_meta *m = &z->meta;
	uint64_t start[LIMIT_RANK] = { 0 }, count[LIMIT_RANK], stride[LIMIT_RANK];
	struct band_tasks t = { .we = we, .kv = kv, .z = z, .omit_fill = plan->omit_fill, .n = 1 };
	uint64_t row = at / plan->row_bytes, n = dtype_info(m->dtype)->size;

	if (m->n_elements == 0)
		return 0;
	t.box = (struct zarr_box){ start, count, stride, bytes };
	for (unsigned i = MIN(plan->axis + 1, m->rank); i-- > 0;) {
		start[i] = row % m->shape[i];
		row /= m->shape[i];
	}
	/* On axes before the one that is cut, the band has one position. */
	for (unsigned i = m->rank; i-- > 0;) {
		count[i] = i < plan->axis  ? 1 :
			   i == plan->axis ? MIN(plan->rows, m->shape[i] - start[i]) :
					     m->shape[i];
		stride[i] = n;
		n *= count[i];
		t.n *= div_up(count[i], m->chunk[i]);
	}
	/* All tasks have the same argument. */
	return pool_run(z->env->pool, encode_some, &t, 0, MIN(t.n, (uint64_t)plan->tasks));
}
