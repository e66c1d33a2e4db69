/* SPDX-License-Identifier: Apache-2.0 */
/*
 * strided.c - boxes of elements between two layouts.
 */
#include "core/dtype/strided.h"

#include "core/base/mem.h"
#include "core/dtype/cast.h"

#define ROW_BYTES 8192 /* bytes of a row that are gathered, cast and scattered at once */

void strided_add(struct strided *s, uint64_t n, uint64_t from, int64_t to)
{
	unsigned last = s->rank - 1;

	if (n == 1)
		return;
	if (s->rank && s->from[last] == n * from && s->to[last] == (int64_t)n * to) {
		n *= s->n[last];
		s->rank--;
	}
	s->n[s->rank] = n;
	s->from[s->rank] = from;
	s->to[s->rank++] = to;
}

static bool is_dense(const struct strided *s, unsigned axis)
{
	return s->from[axis] == dtype_info(s->have)->size &&
	       s->to[axis] == (int64_t)dtype_info(s->want)->size;
}

uint64_t strided_run(const struct strided *s)
{
	return s->rank && is_dense(s, s->rank - 1) ? s->n[s->rank - 1] : 1;
}

bool strided_is_run(const struct strided *s)
{
	return s->rank == 0 ||
	       (s->rank == 1 &&
		(is_dense(s, 0) ||
		 (s->from[0] == 0 && s->to[0] == (int64_t)dtype_info(s->want)->size)));
}

uint64_t strided_span(const struct strided *s)
{
	uint64_t n = dtype_info(s->have)->size;

	for (unsigned i = 0; i < s->rank; i++)
		n += (s->n[i] - 1) * s->from[i];
	return n;
}

/* ---- rows ---- */

struct strided_walk {
	const struct strided *s;
	uint64_t begin, end;
	uint64_t span[LIMIT_RANK + 1]; /* bytes of the source that one position of an axis covers */
	strided_row_fn *fn;
	void *arg;
};

/* Visit the positions of an axis that have elements in the window. */
static int walk_axis(const struct strided_walk *w, unsigned axis, uint64_t at, int64_t to)
{
	const struct strided *s = w->s;
	uint64_t step = axis < s->rank ? s->from[axis] : 0;
	uint64_t first = 0, n = axis < s->rank ? s->n[axis] : 1;
	int64_t to_step = axis < s->rank ? s->to[axis] : 0;

	if (at >= w->end || (!step && at + w->span[axis] <= w->begin))
		return 0;
	if (step) {
		n = MIN(n, (w->end - at - 1) / step + 1);
		if (at + w->span[axis] <= w->begin)
			first = (w->begin - at - w->span[axis]) / step + 1;
	}
	if (first >= n)
		return 0;
	if (axis + 1 >= s->rank)
		return w->fn(w->arg, at + first * step, n - first, to + (int64_t)first * to_step);
	for (uint64_t i = first; i < n; i++) {
		int r = walk_axis(w, axis + 1, at + i * step, to + (int64_t)i * to_step);

		if (r)
			return r;
	}
	return 0;
}

int strided_rows(const struct strided *s, uint64_t at, uint64_t begin, uint64_t end,
		 strided_row_fn *fn, void *arg)
{
	struct strided_walk w = { .s = s, .begin = begin, .end = end, .fn = fn, .arg = arg };

	w.span[s->rank ? s->rank - 1 : 0] = dtype_info(s->have)->size;
	for (unsigned i = s->rank; i > 1; i--)
		w.span[i - 2] = w.span[i - 1] + (s->n[i - 1] - 1) * s->from[i - 1];
	return walk_axis(&w, 0, at, 0);
}

/* ---- copying ---- */

/* Move n elements that are `from` bytes apart to places that are `to` bytes apart. */
static void move_elements(uint8_t *out, int64_t to, const uint8_t *in, int64_t from, size_t item,
			  uint64_t n)
{
#define MOVE(size)                                                                   \
	case size:                                                                   \
		for (uint64_t i = 0; i < n; i++)                                     \
			memcpy(out + (int64_t)i * to, in + (int64_t)i * from, size); \
		break
	switch (item) {
		MOVE(1);
		MOVE(2);
		MOVE(4);
		MOVE(8);
		MOVE(16);
	}
#undef MOVE
}

struct strided_row {
	const struct strided *s;
	const uint8_t *source; /* byte `begin` of the source */
	uint64_t begin;
	uint8_t *result;
	size_t item, out_item;
	int64_t from, to; /* bytes between neighbours */
};

static int copy_row(void *arg, uint64_t at, uint64_t n, int64_t to)
{
	const struct strided_row *w = arg;
	enum dtype have = w->s->have, want = w->s->want;
	const uint8_t *in = w->source + (at - w->begin);
	uint8_t stored[ROW_BYTES], shown[ROW_BYTES], *out = w->result + to;

	if (w->from == (int64_t)w->item && w->to == (int64_t)w->out_item) {
		cast(want, out, have, in, n);
		return 0;
	}
	if (w->from == 0) {
		bool zero = true;

		cast(want, shown, have, in, 1);
		for (size_t i = 0; i < w->out_item; i++)
			zero &= shown[i] == 0;
		if (zero && w->to == (int64_t)w->out_item)
			memset(out, 0, n * w->out_item);
		else
			move_elements(out, w->to, shown, 0, w->out_item, n);
		return 0;
	}
	if (have == want) {
		move_elements(out, w->to, in, w->from, w->item, n);
		return 0;
	}
	for (uint64_t k; n > 0; n -= k) {
		k = MIN(n, ROW_BYTES / MAX(w->item, w->out_item));
		move_elements(stored, (int64_t)w->item, in, w->from, w->item, k);
		cast(want, shown, have, stored, k);
		move_elements(out, w->to, shown, (int64_t)w->out_item, w->out_item, k);
		in += (int64_t)k * w->from;
		out += (int64_t)k * w->to;
	}
	return 0;
}

void strided_copy_window(const struct strided *s, uint64_t at, const uint8_t *p, uint64_t begin,
			 uint64_t end, uint8_t *to)
{
	struct strided_row row = { .s = s, .source = p, .begin = begin, .result = to };

	row.item = dtype_info(s->have)->size;
	row.out_item = dtype_info(s->want)->size;
	row.from = s->rank ? (int64_t)s->from[s->rank - 1] : (int64_t)row.item;
	row.to = s->rank ? s->to[s->rank - 1] : (int64_t)row.out_item;
	strided_rows(s, at, begin, end, copy_row, &row);
}

void strided_copy(const struct strided *s, const void *from, uint8_t *to)
{
	strided_copy_window(s, 0, from, 0, UINT64_MAX, to);
}

static int find_row(void *arg, uint64_t at, uint64_t n, int64_t to)
{
	return 1;
}

bool strided_has(const struct strided *s, uint64_t at, uint64_t begin, uint64_t end)
{
	return strided_rows(s, at, begin, end, find_row, NULL);
}
