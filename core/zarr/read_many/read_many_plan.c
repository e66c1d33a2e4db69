/* SPDX-License-Identifier: Apache-2.0 */
/*
 * read_many_plan.c - a view -> its chunks, each with its place.
 */
#include <string.h>

#include "core/base/array.h"
#include "core/zarr/read_many/read_many_impl.h"

#define LOCATE 64               /* chunks that are looked up together */
#define IN_HAND_BYTES (8 * MiB) /* limit of the inline values that jobs hold */

void read_target_set_order(struct read_target *t)
{
	int64_t stride = dtype_info(t->view.dtype)->size;

	for (unsigned i = t->view.rank; i > 0; i--) {
		t->stride[i - 1] = stride;
		if (!t->view.axis[i - 1].drop)
			stride *= (int64_t)t->view.axis[i - 1].count;
	}
}

/* ---- the part of one chunk ---- */

void many_part(const struct many_target *t, uint64_t number, uint64_t *ret_index,
	       struct grid_part *ret)
{
	for (unsigned i = t->rd.grid.rank; i-- > 0;) {
		const struct grid_axis *a = &t->rd.grid.axis[i];
		uint64_t chunk = number % t->r.z->leaf_grid[i];
		uint64_t begin = chunk * a->chunk, end = MIN(begin + a->chunk, a->extent);

		number /= t->r.z->leaf_grid[i];
		ret->chunk[i] = chunk;
		ret->lo[i] = begin > a->start ? div_up(begin - a->start, a->step) : 0;
		ret->hi[i] = MIN(a->count, end > a->start ? div_up(end - a->start, a->step) : 0);
		ret->from[i] = a->start + a->step * ret->lo[i] - begin;
	}
	ret->padding = false;
	if (ret_index)
		memcpy(ret_index, ret->chunk, t->rd.grid.rank * sizeof(*ret_index));
}

/* ---- jobs ---- */

/* The size of a chunk's run of stored elements, if it can be read by ranges; else 0. */
static uint64_t raw_run(const struct many_target *t, const struct chunk *c,
			const struct grid_part *p)
{
	const struct zarr *z = t->r.z;
	uint64_t run, end;
	struct strided s;
	bool is_whole;
	int64_t to;

	if (!z->leaf_raw || c->src.loc.where != KV_FILE || t->r.view.dtype != z->meta.dtype ||
	    c->src.len != z->leaf->bytes)
		return 0;
	end = reading_part(&t->rd, p, &s, &to) + strided_span(&s);
	run = strided_is_run(&s) ? strided_span(&s) : 0;
	is_whole = run == z->leaf->bytes && z->leaf_in_order && !c->src.off;
	/*
	 * Most of a value that has a checksum is read with the rest, to compare it. If the trailer
	 * cannot be read now, the error is reported later.
	 */
	if (run > RAW_RANGE && !is_whole && many_is_most(z, end) && chunk_source_is_all(&c->src) &&
	    kv_loc_has_sum(&c->src.loc) != 0) {
		err_clear();
		return 0;
	}
	return run;
}

/* Add the jobs of one chunk that was located; takes its location. */
static int many_add_chunk(struct many_target *t, struct chunk *c)
{
	struct zarr *z = t->r.z;
	uint64_t bytes, from = 0;
	struct many_job *j;
	struct grid_part p;

	/* A stored size beyond that is not read at all. */
	if ((!z->leaf->codecs.n || !chunk_is_streamed(z)) &&
	    chunk_source_check_size(z, &c->src) < 0)
		return chunk_err(z, c, -EUCLEAN);
	if (c->src.loc.where == KV_INLINE)
		atomic_fetch_add(&t->many->in_hand, c->src.loc.len);
	many_part(t, c->number, NULL, &p);
	bytes = raw_run(t, c, &p);
	do {
		if (!array_reserve(t->job, t->cap_jobs, t->n_jobs + 1))
			return fail(-ENOMEM, "cannot list %zu chunks", t->n_jobs + 1);
		j = &t->job[t->n_jobs++];
		*j = (struct many_job){ .t = t, .number = c->number, .src = c->src };
		if (bytes <= RAW_RANGE) {
			c->src.loc = (struct kv_loc){ 0 };
			return 0;
		}
		io_file_ref(j->src.loc.file);
		j->from = from;
		j->n = MIN(RAW_RANGE, bytes - from);
		from += j->n;
	} while (from < bytes);
	return 0;
}

/*
 * Whether a view may have more jobs in this round. One of them always gets one, so that each round
 * reads something.
 */
static bool may_add(const struct many_target *t)
{
	if (!t->n_jobs && t == t->many->first)
		return true;
	return t->n_jobs < t->max_jobs && atomic_load(&t->many->in_hand) < IN_HAND_BYTES &&
	       !io_files_are_many();
}

static int plan_more(struct many_target *t)
{
	auto_free struct chunk *c = calloc(LOCATE, sizeof(*c));
	int r = c ? 0 : fail(-ENOMEM, "cannot look up %d chunks", LOCATE);

	while (t->more && may_add(t) && r >= 0 && !many_is_off(t)) {
		size_t n = 0, most = io_files_reserve(
				      atomic_load(&t->many->in_hand) < IN_HAND_BYTES ? LOCATE : 1);

		while (t->more && n < most) {
			if (t->next.padding) {
				reading_fill_part(&t->rd, &t->next, t->r.to);
			} else {
				memset(&c[n], 0, sizeof(c[n]));
				memcpy(c[n++].index, t->next.chunk, sizeof(c[0].index));
			}
			t->more = grid_part_next(&t->rd.grid, &t->rd.box, &t->next);
		}
		r = n ? chunk_locate(t->r.z, c, n) : 0;
		for (size_t i = 0; i < n; i++) {
			if (r >= 0 && c[i].src.loc.where == KV_ABSENT)
				r = chunk_missing(t->r.z, &c[i]);
			r = r < 0 ? r : many_add_chunk(t, &c[i]);
			kv_loc_release(&c[i].src.loc);
		}
		io_files_unreserve(most);
	}
	return r;
}

/* ---- targets ---- */

static int many_open_target(struct many_target *t)
{
	int r = t->many->ops->open(t->many->arg, t->i, &t->r);

	if (r <= 0)
		return r;
	t->is_open = true;
	reading_init(&t->rd, t->r.z, &t->r.view, NULL);
	t->more = t->r.view.n_elements > 0;
	if (!t->more)
		return 0;
	reading_set_box(&t->rd, 0, t->r.view.n_elements);
	memcpy(t->rd.stride, t->r.stride, sizeof(t->rd.stride));
	grid_part_first(&t->rd.grid, &t->rd.box, &t->next);
	return 0;
}

int many_plan(void *target)
{
	struct many_target *t = *(struct many_target **)target;
	int r = t->is_open ? 0 : many_open_target(t);

	r = r < 0 || !t->more ? r : plan_more(t);
	if (r < 0)
		many_fail(t, r);
	return 0;
}

void many_jobs_release(struct many_target *t)
{
	for (size_t i = 0; i < t->n_jobs; i++)
		kv_loc_release(&t->job[i].src.loc);
	t->n_jobs = 0;
}
