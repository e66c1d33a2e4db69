/* SPDX-License-Identifier: Apache-2.0 */
/*
 * boxes.c - boxes of one array: whether they tile it, and reading the array from them.
 *
 * draft_parts.c and collective_plan.c supply the boxes and their elements.
 */
#include "core/base/err.h"
#include "handlers/plan/draft_plan.h"

static bool boxes_overlap(const struct box *a, const struct box *b, unsigned rank)
{
	for (unsigned i = 0; i < rank; i++)
		if (a->start[i] >= b->start[i] + b->extent[i] ||
		    b->start[i] >= a->start[i] + a->extent[i])
			return false;
	return true;
}

static int name_box(const struct box *b, unsigned rank, struct buf *ret)
{
	int r = 0;

	if (b->rank < 0)
		return buf_addf(ret, "'%s'", b->name);
	r = buf_add_byte(ret, '[');
	for (unsigned i = 0; i < rank && r >= 0; i++)
		r = buf_addf(ret, "%s%llu:%llu", i ? "," : "", (unsigned long long)b->start[i],
			     (unsigned long long)(b->start[i] + b->extent[i]));
	return r < 0 ? r : buf_addf(ret, "] of rank %d", b->rank);
}

static bool covers(const struct box *b, const uint64_t *at, unsigned rank)
{
	for (unsigned i = 0; i < rank; i++)
		if (at[i] < b->start[i] || at[i] >= b->start[i] + b->extent[i])
			return false;
	return true;
}

/*
 * Describe where a hole begins: the smallest corner, among the ends of boxes, that no box covers.
 */
static void describe_hole(const struct box *box, size_t n, unsigned rank, const uint64_t *shape,
			  struct buf *ret)
{
	uint64_t at[LIMIT_RANK];

	/* Candidates are the origin, and each end of a box along one axis. */
	for (size_t k = 0; k <= n; k++)
		for (unsigned axis = 0; axis < rank; axis++) {
			bool covered = false;

			for (unsigned i = 0; i < rank; i++)
				at[i] = k < n ? box[k].start[i] : 0;
			if (k < n)
				at[axis] += box[k].extent[axis];
			for (size_t j = 0; j < n && !covered; j++)
				covered = covers(&box[j], at, rank);
			if (covered || at[axis] >= shape[axis])
				continue;
			buf_add_str(ret, ", nobody has [");
			for (unsigned i = 0; i < rank; i++)
				buf_addf(ret, "%s%llu", i ? "," : "", (unsigned long long)at[i]);
			buf_add_byte(ret, ']');
			return;
		}
}

static int by_start(const void *a, const void *b)
{
	const struct box *const *x = a, *const *y = b;

	return ((*x)->start[0] > (*y)->start[0]) - ((*x)->start[0] < (*y)->start[0]);
}

/*
 * With boxes sorted by their start on axis 0, a box can overlap only those before the first one
 * that starts after its end.
 */
static int check_overlaps(const struct box **order, size_t n, unsigned rank, const char *what)
{
	for (size_t a = 0; a < n; a++)
		for (size_t b = a + 1; b < n; b++) {
			auto_buf one = { 0 }, two = { 0 };
			int r;

			if (rank && order[b]->start[0] >= order[a]->start[0] + order[a]->extent[0])
				break;
			if (!boxes_overlap(order[a], order[b], rank))
				continue;
			r = name_box(order[a], rank, &one);
			r = r < 0 ? r : name_box(order[b], rank, &two);
			return r < 0 ? r :
				       fail(-EINVAL, "parts %.*s and %.*s of '%s' overlap",
					    SPAN_ARG(buf_span(&one)), SPAN_ARG(buf_span(&two)),
					    what);
		}
	return 0;
}

int boxes_check(const struct box *box, size_t n, unsigned rank, const uint64_t *shape,
		const char *what)
{
	auto_free const struct box **order = calloc(n + 1, sizeof(*order));
	uint64_t covered = 0, whole = 1;
	int r;

	if (!order)
		return fail(-ENOMEM, "cannot look at %zu parts", n);
	for (unsigned i = 0; i < rank; i++)
		if (!mul_fits(whole, shape[i], &whole))
			return fail(-EINVAL, "'%s': the shape overflows", what);
	for (size_t k = 0; k < n; k++) {
		uint64_t elements = 1;

		for (unsigned i = 0; i < rank; i++)
			elements *= box[k].extent[i];
		covered += elements;
		order[k] = &box[k];
	}
	if (rank)
		qsort(order, n, sizeof(*order), by_start);
	r = check_overlaps(order, n, rank, what);
	if (r < 0)
		return r;
	if (covered != whole) {
		auto_buf hole = { 0 };

		describe_hole(box, n, rank, shape, &hole);
		return fail(-EINVAL, "the parts of '%s' have %llu of %llu elements%.*s", what,
			    (unsigned long long)covered, (unsigned long long)whole,
			    SPAN_ARG(buf_span(&hole)));
	}
	return 0;
}

/* ---- reading ---- */

int boxes_read(void *arg, uint64_t off, size_t n, void *out)
{
	const struct box_reader *rd = arg;
	unsigned rank = rd->array.rank;
	uint64_t item = dtype_info(rd->array.dtype)->size;
	uint8_t *p = out;

	for (uint64_t e = off / item, end = (off + n) / item; e < end;) {
		uint64_t at[LIMIT_RANK], rest = e, run = 1, element = 0;
		const struct box *b = rd->box;
		int r;

		for (unsigned k = rank; k > 0; k--) {
			at[k - 1] = rest % rd->array.shape[k - 1];
			rest /= rd->array.shape[k - 1];
		}
		while (b < rd->box + rd->n && !covers(b, at, rank))
			b++;
		if (b == rd->box + rd->n)
			return fail(-EINVAL, "an element that no part has");
		/* The elements from there in the box's row. */
		if (rank)
			run = MIN(b->start[rank - 1] + b->extent[rank - 1] - at[rank - 1], end - e);
		for (unsigned k = 0; k < rank; k++)
			element = element * b->extent[k] + at[k] - b->start[k];
		r = rd->read(rd->arg, (size_t)(b - rd->box), element, run, p);
		if (r < 0)
			return r;
		p += run * item;
		e += run;
	}
	return 0;
}

int box_read_zarr(void *arg, size_t i, uint64_t first, uint64_t n, uint8_t *p)
{
	struct zarr *z = ((struct zarr **)arg)[i];
	uint64_t item = dtype_info(z->meta.dtype)->size;

	return zarr_read_into(z, NULL, first * item, n * item, p);
}
