/* SPDX-License-Identifier: Apache-2.0 */
/*
 * layout.c - chunk shapes by Orbax's greedy rule, and replica slices.
 *
 * The size of a chunk on each axis is a divisor of the size of the written block, so shrinking an
 * axis goes to its next smaller divisor. The divisors are not listed but searched, by the cofactor
 * as long as that is faster. All searches for one axis together try at most 2 * sqrt(axis) numbers.
 */
#include "core/step/layout.h"

#include <inttypes.h>

#include "core/base/err.h"
#include "core/base/mem.h"

/* The largest divisor of n below d, where d > 1 divides n. */
static uint64_t next_divisor(uint64_t n, uint64_t d)
{
	uint64_t co = n / d + 1;

	for (; co <= n / co; co++)
		if (n % co == 0)
			return n / co;
	/* The cofactor is now above the root of n, so the divisor is below it. */
	for (uint64_t k = MIN(d - 1, n / co); k > 1; k--)
		if (n % k == 0)
			return k;
	return 1;
}

/* The shape while it is being cut. */
struct cutting {
	const struct layout *l;
	uint64_t whole[LIMIT_RANK]; /* write_shape, with 1 for empty axes */
	uint64_t now[LIMIT_RANK];
	bool split[LIMIT_RANK]; /* the axis was cut, by the sharding or here */
	uint64_t elements;
};

static int shrink(struct cutting *c, unsigned axis)
{
	uint64_t was = c->now[axis];

	if (c->whole[axis] > LIMIT_LAYOUT_AXIS)
		return fail(-EFBIG, "cannot cut an axis of %" PRIu64 ": it is longer than %" PRIu64,
			    c->whole[axis], LIMIT_LAYOUT_AXIS);
	c->now[axis] = next_divisor(c->whole[axis], was);
	c->elements = c->elements / was * c->now[axis];
	c->split[axis] = true;
	return 0;
}

/* The next axis to shrink: the longest of the axes that are split, the first of equal ones. */
static unsigned longest(const struct cutting *c)
{
	unsigned best = LIMIT_RANK;
	uint64_t size = 1;

	for (unsigned i = 0; i < c->l->rank; i++)
		if (c->split[i] && c->now[i] > size) {
			size = c->now[i];
			best = i;
		}
	return best;
}

/* Shrink until a chunk has at most this many elements. */
static int shrink_to(struct cutting *c, uint64_t elements)
{
	while (c->elements > elements) {
		unsigned axis = longest(c);
		int r;

		if (axis == LIMIT_RANK) {
			/* Only axes that were never cut remain. */
			for (unsigned i = 0; i < c->l->rank; i++)
				c->split[i] = true;
			continue;
		}
		r = shrink(c, axis);
		if (r < 0)
			return r;
	}
	return 0;
}

static int layout_start(struct cutting *c, const struct layout *l)
{
	c->l = l;
	c->elements = 1;
	for (unsigned i = 0; i < l->rank; i++) {
		c->whole[i] = c->now[i] = MAX(l->write_shape[i], (uint64_t)1);
		c->split[i] = l->shape[i] != c->whole[i];
		if (!mul_fits(c->elements, c->now[i], &c->elements))
			return fail(-EFBIG, "the array has more than 2^64 elements");
	}
	return 0;
}

/* The most bytes that a chunk may have; false when there is no bound. */
static bool target_bytes(const struct layout *l, uint64_t *ret)
{
	uint64_t bytes = l->item_size;
	bool large = false;

	*ret = l->chunk_bytes;
	if (!l->ocdbt || l->file_size == 0)
		return l->has_chunk_bytes;
	/* The size of the block itself; an empty block has no bytes. */
	for (unsigned i = 0; i < l->rank; i++)
		large |= !mul_fits(bytes, l->write_shape[i], &bytes);
	for (unsigned i = 0; i < l->rank; i++)
		if (l->write_shape[i] == 0)
			large = false;
	if (!l->has_chunk_bytes) {
		*ret = l->file_size;
		return large || bytes > l->file_size;
	}
	*ret = MIN(l->chunk_bytes, l->file_size);
	return true;
}

int layout_chunk_shape(const struct layout *l, uint64_t ret[LIMIT_RANK])
{
	struct cutting c = { .elements = 0 };
	uint64_t bytes;
	bool bounded = target_bytes(l, &bytes);
	int r = bounded || l->n_axes ? layout_start(&c, l) : 0;

	for (unsigned i = 0; i < l->n_axes && r >= 0; i++) {
		if (l->axes[i] >= l->rank)
			return fail(-EINVAL, "axis %u of shard_axes is beyond the rank %u",
				    l->axes[i], l->rank);
		while (r >= 0 && c.now[l->axes[i]] > 1)
			r = shrink(&c, l->axes[i]);
	}
	if (r < 0)
		return r;
	if (bounded && bytes < l->item_size)
		return fail(-EINVAL,
			    "a chunk of %" PRIu64 " bytes is below the %" PRIu64 " of one element",
			    bytes, l->item_size);
	if (bounded)
		r = shrink_to(&c, bytes / l->item_size);
	for (unsigned i = 0; i < l->rank && r >= 0; i++)
		ret[i] = c.l ? c.now[i] : MAX(l->write_shape[i], (uint64_t)1);
	return r;
}

void layout_replicas(const uint64_t *block, unsigned rank, uint64_t replicas, uint64_t max_replicas,
		     uint64_t item_size, uint64_t min_slice_bytes, struct layout_replicas *ret)
{
	uint64_t count = max_replicas ? MIN(replicas, max_replicas) : replicas;
	uint64_t bytes = item_size;
	unsigned axis = rank;

	*ret = (struct layout_replicas){ .count = 1 };
	for (unsigned i = rank; i > 0; i--) {
		ret->write_shape[i - 1] = block[i - 1];
		if (count > 1 && block[i - 1] % count == 0)
			axis = i - 1;
		/* A size above 2^64 is above any minimum. */
		if (!mul_fits(bytes, block[i - 1], &bytes))
			bytes = UINT64_MAX;
	}
	if (axis == rank || bytes == 0 || bytes / count < min_slice_bytes)
		return;
	ret->sliced = true;
	ret->axis = axis;
	ret->count = count;
	ret->write_shape[axis] = block[axis] / count;
}
