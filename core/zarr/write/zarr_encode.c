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

int encode_put(const struct write_env *we, struct kv *kv, const struct zarr *z,
	       const uint64_t *chunk, const uint8_t *bytes, size_t *ret_stored)
{
	auto_buf object = { .in_block = true }, key = { 0 };
	struct span stored = span_of(bytes, z->leaf->bytes);
	int r = encode_check(z, stored.p, stored.n);

	if (r < 0)
		return r;
	r = zarr_chunk_key(&z->meta, chunk, &key);
	if (r < 0)
		return r;
	if (!encode_is_plain(z)) {
		r = encode_chunk(we, z, bytes, &object);
		stored = buf_span(&object);
	}
	if (ret_stored)
		*ret_stored = stored.n;
	return r < 0 ? r : kv_put(kv, buf_span(&key), stored);
}

/* One band while its chunks are encoded; each task has a copy. */
struct encoding {
	struct write_env *we;
	struct kv *kv;
	const struct zarr *z;
	const struct encode_plan *plan;
	const uint8_t *bytes;
	uint64_t first[LIMIT_RANK]; /* position of the band's first element */
	uint64_t rows;              /* number of rows of the band, on the axis that is cut */
	/* the chunks of the band: on each axis count[] from from[] on */
	uint64_t from[LIMIT_RANK], count[LIMIT_RANK];
	uint64_t chunk[LIMIT_RANK]; /* the current chunk */
};

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

/* Copy the chunk's part of the band into a chunk of its own. */
static void encode_cut_chunk(const struct encoding *e, uint8_t *out)
{
	const struct zarr_meta *m = &e->z->meta;
	unsigned axis = e->plan->axis;
	struct strided s = { .have = m->dtype, .want = m->dtype };
	uint64_t count[LIMIT_RANK], stride[LIMIT_RANK], n = dtype_info(m->dtype)->size, base = 0;

	for (unsigned i = m->rank; i > axis; i--) {
		uint64_t lo = e->chunk[i - 1] * m->chunk[i - 1];
		uint64_t extent = i - 1 == axis ? e->rows : m->shape[i - 1];
		uint64_t from = i - 1 == axis ? lo - e->first[axis] : lo;

		stride[i - 1] = n;
		base += from * n;
		count[i - 1] = MIN(m->chunk[i - 1], extent - from);
		n *= extent;
	}
	for (unsigned i = axis; i < m->rank; i++)
		strided_add(&s, count[i], stride[i], (int64_t)e->z->leaf_stride[i]);
	encode_fill(e->z, out);
	strided_copy(&s, e->bytes + base, out);
}

static bool is_fill(const struct zarr *z, const uint8_t *p)
{
	size_t item = dtype_info(z->meta.dtype)->size;

	/* All elements are equal when each equals its predecessor. */
	return !memcmp(p, z->meta.fill, item) && !memcmp(p, p + item, z->leaf->bytes - item);
}

static int encode_put_chunk(struct encoding *e)
{
	const struct zarr *z = e->z;
	bool whole = e->plan->band_is_chunk && (z->meta.rank == 0 || e->rows == e->plan->rows);
	uint8_t *copy = NULL;
	size_t stored;
	int r;

	if (!whole) {
		copy = block_alloc(z->leaf->bytes);
		if (!copy)
			return fail(-ENOMEM, "cannot allocate a chunk of %llu bytes",
				    (unsigned long long)z->leaf->bytes);
		encode_cut_chunk(e, copy);
	}
	if (e->plan->omit_fill && is_fill(z, copy ? copy : e->bytes)) {
		block_free(copy, z->leaf->bytes);
		return 0;
	}
	trace(TRACE_CODEC, "encode %llu", (unsigned long long)z->leaf->bytes);
	r = encode_put(e->we, e->kv, z, e->chunk, copy ? copy : e->bytes, &stored);
	block_free(copy, z->leaf->bytes);
	if (r < 0)
		return r;
	atomic_fetch_add_explicit(&e->we->chunks, 1, memory_order_relaxed);
	atomic_fetch_add_explicit(&e->we->chunk_bytes, z->leaf->bytes, memory_order_relaxed);
	atomic_fetch_add_explicit(&e->we->stored_bytes, stored, memory_order_relaxed);
	return 0;
}

/* Shared by the tasks of one band. */
struct band_tasks {
	const struct encoding *e;
	uint64_t n;            /* number of chunks */
	_Atomic uint64_t next; /* the next chunk that no task has taken; n after an error */
};

static int encode_some(void *arg)
{
	struct band_tasks *t = arg;
	struct encoding e = *t->e;
	uint64_t i;

	while ((i = atomic_fetch_add(&t->next, 1)) < t->n) {
		int r;

		for (unsigned axis = e.z->meta.rank; axis > 0; axis--) {
			e.chunk[axis - 1] = e.from[axis - 1] + i % e.count[axis - 1];
			i /= e.count[axis - 1];
		}
		r = write_env_check(e.we);
		r = r < 0 ? r : encode_put_chunk(&e);
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
	struct encoding e = { .we = we, .kv = kv, .z = z, .plan = plan, .bytes = bytes };
	struct band_tasks t = { .e = &e, .n = 1 };
	uint64_t row = at / plan->row_bytes;

	if (m->n_elements == 0)
		return 0;
	/*
	 * The start of the band, and its chunks: there are several only on axes after the one that
	 * is cut, or on that axis when its chunks have one position.
	 */
	e.rows = 1;
	for (unsigned i = MIN(plan->axis + 1, m->rank); i > 0; i--) {
		e.first[i - 1] = row % m->shape[i - 1];
		row /= m->shape[i - 1];
	}
	if (m->rank > 0)
		e.rows = MIN(plan->rows, m->shape[plan->axis] - e.first[plan->axis]);
	for (unsigned i = 0; i < m->rank; i++) {
		e.from[i] = e.first[i] / m->chunk[i];
		e.count[i] =
			i < plan->axis  ? 1 :
			i == plan->axis ? (e.first[i] + e.rows - 1) / m->chunk[i] - e.from[i] + 1 :
					  m->grid[i];
		t.n *= e.count[i];
	}
	/* All tasks have the same argument. */
	return pool_run(z->env->pool, encode_some, &t, 0, MIN(t.n, (uint64_t)plan->tasks));
}
