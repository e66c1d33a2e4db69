/* SPDX-License-Identifier: Apache-2.0 */
/*
 * strided.h - copy a box of elements from one layout in memory to another, and convert them: the
 * only copy of this kind.
 *
 * A box is built axis by axis, the outermost first. Axes that are one run in both layouts are
 * joined, so a box that is a run of both is one memcpy() or cast(). A source of which only some
 * bytes are in memory, as the pieces of a large chunk, is copied window by window: each window
 * gives the elements that lie in it, whatever the order of the axes.
 */
#ifndef PYTREEFS_STRIDED_H
#define PYTREEFS_STRIDED_H

#include "core/base/limits.h"
#include "core/dtype/dtype.h"

struct strided {
	enum dtype have, want;
	unsigned rank;
	uint64_t n[LIMIT_RANK]; /* elements along each axis */
	/* bytes between neighbours: in the source, 0 when one element is repeated; in the result */
	uint64_t from[LIMIT_RANK];
	int64_t to[LIMIT_RANK];
};

/* Add an axis inside of those that there are. A box without axes is one element. */
void strided_add(struct strided *s, uint64_t n, uint64_t from, int64_t to);
/* The elements that are neighbours in both layouts, on the last axis; 1 when none are. */
uint64_t strided_run(const struct strided *s);
/* Whether all elements are: those of the source are neighbours, or all the same. */
bool strided_is_run(const struct strided *s);
/* The bytes of the source from the first element to the end of the last one. */
uint64_t strided_span(const struct strided *s);

/* Copy all elements; both pointers are to the first one. */
void strided_copy(const struct strided *s, const void *from, uint8_t *to);
/*
 * Copy the elements that are in bytes [begin, end) of the source, of which p has the first; `at` is
 * the byte of the first element of the box. No element crosses either end.
 */
void strided_copy_window(const struct strided *s, uint64_t at, const uint8_t *p, uint64_t begin,
			 uint64_t end, uint8_t *to);
/* Whether there are any. */
bool strided_has(const struct strided *s, uint64_t at, uint64_t begin, uint64_t end);
/*
 * For a source that is not in memory: fn gets n elements of the last axis, the first of which is at
 * byte `at` of the source and `to` bytes after that of the box in the result. A non-zero result
 * ends it and is returned.
 */
typedef int strided_row_fn(void *arg, uint64_t at, uint64_t n, int64_t to);
int strided_rows(const struct strided *s, uint64_t at, uint64_t begin, uint64_t end,
		 strided_row_fn *fn, void *arg);

#endif
