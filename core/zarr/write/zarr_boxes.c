/* SPDX-License-Identifier: Apache-2.0 */
/*
 * zarr_boxes.c - chunks of boxes in memory: cut, encoded and put by many threads.
 *
 * A chunk that is a run of elements in memory is encoded from where it is; others are copied first.
 */
#include "core/zarr/write/zarr_boxes.h"

#include "core/base/blocks.h"
#include "core/base/err.h"
#include "core/dtype/strided.h"
#include "core/zarr/write/zarr_encode.h"

#define SMALL_CHUNK (64 * MiB)  /* up to this, chunks are written in the order of their arrays */
#define ENCODED_MORE (64 * KiB) /* bytes by which an encoded chunk may be longer than the chunk */
#define CODEC_BESIDE (2 * MiB)  /* memory of a codec that works in blocks */

int zarr_boxes_check(const struct zarr_boxes *a)
{
	const struct zarr_meta *m = &a->z->meta;

	for (size_t i = 0; i < a->n; i++)
		for (unsigned axis = 0; axis < m->rank; axis++) {
			uint64_t start = a->box[i].start[axis], count = a->box[i].count[axis];

			if (start > m->shape[axis] || count > m->shape[axis] - start)
				return fail(-EINVAL,
					    "elements %llu to %llu on axis %u of an array that "
					    "has %llu",
					    (unsigned long long)start,
					    (unsigned long long)(start + count), axis,
					    (unsigned long long)m->shape[axis]);
			if (start % m->chunk[axis] ||
			    (count % m->chunk[axis] && start + count != m->shape[axis]))
				return fail(-EINVAL,
					    "elements %llu to %llu on axis %u are not whole "
					    "chunks of %llu",
					    (unsigned long long)start,
					    (unsigned long long)(start + count), axis,
					    (unsigned long long)m->chunk[axis]);
		}
	return 0;
}

/* ---- one chunk ---- */

/* A source of zarr_write.h: a run of elements on the last axis of the array. */
static int read_run(void *arg, uint64_t off, size_t n, void *p)
{
	const struct box_chunk *c = arg;
	const struct zarr_meta *m = &c->z->meta;
	struct strided s = { .have = c->have, .want = m->dtype };
	uint64_t item = dtype_info(m->dtype)->size, at = off / item, from = 0;

	for (unsigned i = m->rank; i > 0; i--) {
		from += (at % m->shape[i - 1] - c->box->start[i - 1]) * c->box->stride[i - 1];
		at /= m->shape[i - 1];
	}
	strided_add(&s, n / item, c->box->stride[m->rank - 1], (int64_t)item);
	strided_copy(&s, (const uint8_t *)c->box->p + from, p);
	return 0;
}

static int write_chunk(struct write_env *we, struct kv *kv, struct box_chunk *c)
{
	const struct zarr *z = c->z;
	bool in_pieces = codec_writes_pieces(&z->leaf->codecs);
	uint64_t cost = c->is_there ? 0 : z->leaf->bytes;
	int r = write_env_check(we);

	if (r < 0)
		return r;
	if (!encode_is_plain(z))
		cost += z->leaf->bytes + ENCODED_MORE;
	if (!in_pieces)
		cost += MIN(4 * z->leaf->bytes, CODEC_BESIDE);
	if (in_pieces && cost > budget_total(we->budget))
		return encode_long_chunk(we, kv, z, c->chunk, read_run, c);
	cost = budget_take_most(we->budget, cost);
	r = box_chunk_put(we, kv, c, false);
	budget_give(we->budget, cost);
	return r;
}

/* ---- all chunks ---- */

/* The chunks of one box. */
struct box_chunks {
	const struct zarr_boxes *a;
	const struct zarr_box *box;
	uint64_t first, n; /* number of the first one among all, and of chunks */
	size_t order;
};

struct boxes_job {
	struct write_env *we;
	const struct box_chunks *box;
	uint64_t n;            /* number of chunks of all boxes */
	_Atomic uint64_t next; /* the next chunk that nobody has taken; n after an error */
	atomic_ullong *done;
};

static int write_some(void *arg)
{
	struct boxes_job *job = arg;
	const struct box_chunks *b = job->box;
	uint64_t i;

	while ((i = atomic_fetch_add(&job->next, 1)) < job->n) {
		struct box_chunk c;
		int r;

		while (i - b->first >= b->n)
			b++;
		c = (struct box_chunk){ .z = b->a->z, .have = b->a->have, .box = b->box };
		box_chunk_place(&c, i - b->first);
		r = write_chunk(job->we, b->a->kv, &c);
		if (r < 0) {
			atomic_store(&job->next, job->n);
			return r;
		}
		atomic_fetch_add(job->done, c.bytes);
	}
	return 0;
}

static uint64_t large_chunk(const struct box_chunks *b)
{
	return b->a->z->leaf->bytes > SMALL_CHUNK ? b->a->z->leaf->bytes : 0;
}

/* Large chunks come first: of the last one there are no others to encode meanwhile. */
static int by_size(const void *p, const void *q)
{
	const struct box_chunks *a = p, *b = q;

	if (large_chunk(a) != large_chunk(b))
		return large_chunk(a) < large_chunk(b) ? 1 : -1;
	return a->order < b->order ? -1 : a->order > b->order;
}

int zarr_write_boxes(struct write_env *we, const struct zarr_boxes *arrays, size_t n,
		     atomic_ullong *done)
{
	struct boxes_job job = { .we = we, .done = done };
	auto_free struct box_chunks *box = NULL;
	size_t k = 0, n_boxes = 0;

	for (size_t i = 0; i < n; i++)
		n_boxes += arrays[i].n;
	box = calloc(n_boxes + 1, sizeof(*box));
	if (!box)
		return fail(-ENOMEM, "cannot write %zu boxes", n_boxes);
	for (size_t i = 0; i < n; i++)
		for (size_t j = 0; j < arrays[i].n; j++) {
			const struct zarr_meta *m = &arrays[i].z->meta;
			struct box_chunks *b = &box[k];

			*b = (struct box_chunks){ &arrays[i], &arrays[i].box[j], 0, 1, k };
			for (unsigned axis = 0; axis < m->rank; axis++)
				b->n *= (b->box->count[axis] + m->chunk[axis] - 1) / m->chunk[axis];
			k++;
		}
	qsort(box, n_boxes, sizeof(*box), by_size);
	for (k = 0; k < n_boxes; k++) {
		box[k].first = job.n;
		job.n += box[k].n;
	}
	job.box = box;
	/* All tasks have the same argument. */
	return pool_run(we->env->pool, write_some, &job, 0,
			MIN(job.n, (uint64_t)(we->env->pool ? pool_threads(we->env->pool) : 1)));
}
