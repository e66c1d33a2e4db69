/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reading.c - the state of one read of a view, and copying the part of a chunk into the answer:
 * through strides, with a cast where the view has one.
 *
 * zarr_read.c determines the parts, and those that need no copy.
 */
#include "core/zarr/reading.h"

#include <assert.h>

#include "core/base/err.h"
#include "core/dtype/cast.h"

#define CAST_BYTES 8192 /* scratch memory of one cast */

/* The bit of a chunk in d->bits. */
static uint64_t damage_bit(const struct damage *d, const struct zarr *z, const uint64_t *index)
{
	struct chunk c = { 0 };

	memcpy(c.index, index, sizeof(c.index));
	chunk_number(z, &c);
	assert(c.number - d->first < d->n);
	return c.number - d->first;
}

int damage_add(struct damage *d, const struct zarr *z, const uint64_t *index)
{
	uint64_t bit = damage_bit(d, z, index);

	if (!d->bits)
		d->bits = calloc(div_up(d->n, 64), sizeof(*d->bits));
	if (!d->bits)
		return fail(-ENOMEM, "cannot record a damaged chunk of '%s'", z->prefix);
	d->bits[bit / 64] |= (uint64_t)1 << bit % 64;
	return 0;
}

bool damage_has(const struct damage *d, const struct zarr *z, const uint64_t *index)
{
	uint64_t bit = damage_bit(d, z, index);

	return d->bits && (d->bits[bit / 64] >> bit % 64 & 1);
}

void reading_init(struct reading *rd, struct zarr *z, const struct zarr_view *v, struct segments *g)
{
	*rd = (struct reading){ .z = z, .v = v, .g = g };
	rd->item = dtype_info(z->meta.dtype)->size;
	rd->out_item = dtype_info(v->dtype)->size;
	rd->grid.rank = v->rank;
	for (unsigned i = 0; i < v->rank; i++)
		rd->grid.axis[i] = (struct grid_axis){
			.start = v->axis[i].start,
			.step = v->axis[i].step,
			.count = v->axis[i].count,
			.extent = MIN(z->meta.shape[i], v->shape[i]),
			.chunk = z->leaf_chunk[i],
		};
}

unsigned reading_run_axes(const struct reading *rd, const struct grid_box *box,
			  const struct grid_part *p, uint64_t *ret_elements)
{
	const struct zarr *z = rd->z;
	uint64_t run = 1;
	unsigned n = 0;

	for (unsigned i = rd->grid.rank; i > 0; i--) {
		uint64_t count = p->hi[i - 1] - p->lo[i - 1];

		if (count > 1 &&
		    (rd->grid.axis[i - 1].step != 1 || z->leaf_stride[i - 1] != run * rd->item))
			break;
		run *= count;
		n++;
		if (count != box->hi[i - 1] - box->lo[i - 1])
			break;
	}
	*ret_elements = run;
	return n;
}

uint64_t reading_byte_in_chunk(const struct reading *rd, const uint64_t *from)
{
	uint64_t at = 0;

	for (unsigned i = 0; i < rd->grid.rank; i++)
		at += from[i] * rd->z->leaf_stride[i];
	return at;
}

void reading_put_fill(const struct reading *rd, uint8_t *p, uint64_t n)
{
	uint8_t one[LIMIT_ITEM_BYTES];

	cast(rd->v->dtype, one, rd->z->meta.dtype, rd->z->meta.fill, 1);
	for (uint64_t i = 0; i < n; i++)
		memcpy(p + i * rd->out_item, one, rd->out_item);
}

bool reading_fill_is_zero(const struct reading *rd)
{
	static const uint8_t zero[LIMIT_ITEM_BYTES];
	uint8_t one[LIMIT_ITEM_BYTES];

	cast(rd->v->dtype, one, rd->z->meta.dtype, rd->z->meta.fill, 1);
	return !memcmp(one, zero, rd->out_item);
}

/* Copy n elements that are stride bytes apart in the chunk to the answer. */
static int copy_run(struct reading *rd, struct chunk *c, uint64_t at, uint64_t stride, uint64_t n,
		    uint8_t *to)
{
	bool same = rd->v->dtype == rd->z->meta.dtype;
	uint8_t scratch[CAST_BYTES];

	if (stride == rd->item && c->mode == CHUNK_WHOLE) {
		cast(rd->v->dtype, to, rd->z->meta.dtype, chunk_bytes(c) + at, n);
		return 0;
	}
	if (stride == rd->item && same)
		return chunk_copy(rd->z, c, at, n * rd->item, to);
	while (n > 0) {
		uint64_t part = MIN(n, (uint64_t)CAST_BYTES / rd->item);
		int r = 0;

		if (stride == rd->item)
			r = chunk_copy(rd->z, c, at, part * rd->item, scratch);
		for (uint64_t i = 0; stride != rd->item && i < part && r >= 0; i++) {
			if (c->mode == CHUNK_WHOLE)
				memcpy(scratch + i * rd->item, chunk_bytes(c) + at + i * stride,
				       rd->item);
			else
				r = chunk_copy(rd->z, c, at + i * stride, rd->item,
					       scratch + i * rd->item);
		}
		if (r < 0)
			return r;
		cast(rd->v->dtype, to, rd->z->meta.dtype, scratch, part);
		to += part * rd->out_item;
		at += part * stride;
		n -= part;
	}
	return 0;
}

/*
 * The innermost loop of a copy: `run` elements that are `stride` bytes apart in the chunk and
 * adjacent in the answer, on the last `axes` axes.
 */
struct inner {
	unsigned axes;
	uint64_t run, stride;
};

static struct inner inner_of(const struct reading *rd, const struct grid_box *box,
			     const struct grid_part *p)
{
	struct inner in = { .stride = rd->item };

	in.axes = reading_run_axes(rd, box, p, &in.run);
	if (in.run > 1)
		return in;
	/*
	 * There is no run: iterate over the last axis with more than one position, if the axes
	 * after it do not split.
	 */
	for (unsigned i = rd->grid.rank; i > 0; i--) {
		uint64_t count = p->hi[i - 1] - p->lo[i - 1];

		if (count > 1) {
			in.axes = rd->grid.rank - (i - 1);
			in.run = count;
			in.stride = rd->z->leaf_stride[i - 1] * rd->grid.axis[i - 1].step;
			break;
		}
		if (box->hi[i - 1] - box->lo[i - 1] > 1)
			break;
	}
	return in;
}

int reading_copy_part(struct reading *rd, const struct grid_box *box, const struct grid_part *p,
		      struct chunk *c, uint8_t *out)
{
	uint64_t row[LIMIT_RANK] = { 0 }, out_stride[LIMIT_RANK], stride = rd->out_item;
	struct inner in = inner_of(rd, box, p);
	unsigned outer = rd->grid.rank - in.axes;
	uint8_t *base = out + grid_part_at(&rd->grid, box, p) * rd->out_item;

	for (unsigned i = rd->grid.rank; i > 0; i--) {
		out_stride[i - 1] = stride;
		stride *= box->hi[i - 1] - box->lo[i - 1];
	}
	do {
		uint64_t at = p->padding ? 0 : reading_byte_in_chunk(rd, p->from);
		uint8_t *to = base;
		int r = 0;

		for (unsigned i = 0; i < outer; i++) {
			at += row[i] * rd->grid.axis[i].step * rd->z->leaf_stride[i];
			to += row[i] * out_stride[i];
		}
		if (p->padding)
			memset(to, 0, in.run * rd->out_item);
		else if (c->mode == CHUNK_FILL)
			reading_put_fill(rd, to, in.run);
		else
			r = copy_run(rd, c, at, in.stride, in.run, to);
		if (r < 0)
			return r;
	} while (grid_part_next_row(p, outer, row));
	return 0;
}
