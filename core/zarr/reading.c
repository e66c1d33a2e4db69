/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reading.c - the state of one read of a view: where the elements of a part are.
 */
#include "core/zarr/reading.h"

#include <assert.h>

#include "core/base/err.h"
#include "core/dtype/cast.h"

/* The bit of a chunk in d->bits, beyond d->n for one of another band. */
static uint64_t damage_bit(const struct damage *d, const struct zarr *z, const uint64_t *index)
{
	struct chunk c = { 0 };

	memcpy(c.index, index, sizeof(c.index));
	chunk_number(z, &c);
	return c.number - d->first;
}

int damage_add(struct damage *d, const struct zarr *z, const uint64_t *index)
{
	uint64_t bit = damage_bit(d, z, index);

	assert(bit < d->n);
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

	return d->bits && bit < d->n && (d->bits[bit / 64] >> bit % 64 & 1);
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

void reading_set_box(struct reading *rd, uint64_t first, uint64_t n)
{
	int64_t stride = (int64_t)rd->out_item;

	grid_box(&rd->grid, first, n, &rd->box);
	for (unsigned i = rd->grid.rank; i > 0; i--) {
		rd->stride[i - 1] = stride;
		stride *= (int64_t)(rd->box.hi[i - 1] - rd->box.lo[i - 1]);
	}
}

uint64_t reading_part(const struct reading *rd, const struct grid_part *p, struct strided *ret,
		      int64_t *ret_to)
{
	uint64_t at = 0;

	*ret = (struct strided){ .have = rd->z->meta.dtype, .want = rd->v->dtype };
	*ret_to = 0;
	for (unsigned i = 0; i < rd->grid.rank; i++) {
		uint64_t stride = rd->z->leaf_stride[i];

		at += p->padding ? 0 : p->from[i] * stride;
		*ret_to += (int64_t)(p->lo[i] - rd->box.lo[i]) * rd->stride[i];
		strided_add(ret, p->hi[i] - p->lo[i],
			    p->padding ? 0 : rd->grid.axis[i].step * stride, rd->stride[i]);
	}
	return at;
}

void reading_fill_value(const struct reading *rd, uint8_t ret[LIMIT_ITEM_BYTES])
{
	cast(rd->v->dtype, ret, rd->z->meta.dtype, rd->z->meta.fill, 1);
}

bool reading_fill_is_zero(const struct reading *rd)
{
	static const uint8_t zero[LIMIT_ITEM_BYTES];
	uint8_t one[LIMIT_ITEM_BYTES];

	reading_fill_value(rd, one);
	return !memcmp(one, zero, rd->out_item);
}

void reading_fill_part(const struct reading *rd, const struct grid_part *p, uint8_t *out)
{
	struct grid_part nowhere = *p;
	uint8_t one[LIMIT_ITEM_BYTES] = { 0 };
	struct strided s;
	int64_t to;

	if (!p->padding)
		reading_fill_value(rd, one);
	nowhere.padding = true;
	reading_part(rd, &nowhere, &s, &to);
	s.have = s.want;
	strided_copy(&s, one, out + to);
}
