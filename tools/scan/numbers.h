/* SPDX-License-Identifier: Apache-2.0 */
/*
 * numbers.h - what can be said of many numbers: extremes, mean, spread, and what is not a number.
 *
 * Sums are taken block by block and put together as Chan, Golub and LeVeque do, so that a billion
 * elements lose no digits; put together in the same order they are the same to the bit.
 */
#ifndef PYTREEFS_NUMBERS_H
#define PYTREEFS_NUMBERS_H

#include "core/base/wire.h"
#include "core/dtype/dtype.h"

#define NUMBERS_BINS 48

/* Complex elements count as two numbers each. Zeroed it is empty. */
struct numbers {
	uint64_t n;        /* finite ones */
	uint64_t nan, inf; /* inf: of either sign */
	uint64_t zeros;
	double min, max, mean,
		m2; /* of the finite ones; m2: sum of squares of distances from the mean */
	/* int64 and uint64 exactly. */
	bool has_int;
	int64_t int_min, int_max; /* as uint64_t for DTYPE_UINT64 */
};

/* n elements, little-endian, aligned to nothing. */
void numbers_add(struct numbers *s, enum dtype t, const void *p, size_t n);
/* Those of `from` after those of s. */
void numbers_merge(struct numbers *s, enum dtype t, const struct numbers *from);
/* All of it as bytes, and back. */
int numbers_pack(const struct numbers *s, struct buf *out);
void numbers_unpack(struct wire *w, struct numbers *ret);
double numbers_std(const struct numbers *s);
/* min and max as JSON of the dtype; "null" without any finite number. */
int numbers_print_min(const struct numbers *s, enum dtype t, struct buf *out);
int numbers_print_max(const struct numbers *s, enum dtype t, struct buf *out);

/* "min": ..., "max", "mean", "std", "nan", "inf", "zeros": members of an object. */
int numbers_json(const struct numbers *s, enum dtype t, struct buf *out);

/* How many finite numbers lie in each of NUMBERS_BINS equal parts of [min, max]. */
void numbers_histogram(enum dtype t, const void *p, size_t n, double min, double max,
		       uint64_t bins[NUMBERS_BINS]);

/* How two arrays of elements differ. */
struct numbers_diff {
	uint64_t n;       /* elements that differ */
	uint64_t first;   /* number of the first of them */
	uint64_t one_nan; /* of them: a number on one side only */
	double max_abs;
	uint64_t max_ulp; /* of floats: representable numbers between the two, and one */
	bool has_ulp;
};

/*
 * Elements of the same type. They are equal when their bits are, or both are NaN; with a tolerance
 * also when their distance is not above it. first: number of the first element at a and b.
 */
void numbers_compare(struct numbers_diff *d, enum dtype t, const void *a, const void *b, size_t n,
		     double tolerance, uint64_t first);
/* Elements of two types, compared as float64; without ulps. */
void numbers_compare_mixed(struct numbers_diff *d, enum dtype ta, const void *a, enum dtype tb,
			   const void *b, size_t n, double tolerance, uint64_t first);
void numbers_diff_merge(struct numbers_diff *d, const struct numbers_diff *from);

#endif
