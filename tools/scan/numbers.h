/* SPDX-License-Identifier: Apache-2.0 */
/*
 * numbers.h - statistics of many numbers: extremes, mean, standard deviation, NaN and infinities.
 *
 * Sums are computed block by block and merged with the method of Chan, Golub and LeVeque, so a
 * billion elements lose no digits. Merged in the same order, they are equal to the bit.
 */
#ifndef PYTREEFS_NUMBERS_H
#define PYTREEFS_NUMBERS_H

#include "core/base/wire.h"
#include "core/dtype/dtype.h"

#define NUMBERS_BINS 48

/* A complex element counts as two numbers. A zeroed struct is empty. */
struct numbers {
	uint64_t n;        /* number of finite numbers */
	uint64_t nan, inf; /* inf: of either sign */
	uint64_t zeros;
	double min, max, mean,
		m2; /* of finite numbers; m2: sum of squared distances from the mean */
	/* Exact for int64 and uint64. */
	bool has_int;
	int64_t int_min, int_max; /* as uint64_t for DTYPE_UINT64 */
};

/* Add n little-endian elements without any alignment. */
void numbers_add(struct numbers *s, enum dtype t, const void *p, size_t n);
/* Add the numbers of `from`, which come after those of s. */
void numbers_merge(struct numbers *s, enum dtype t, const struct numbers *from);
/* Convert to bytes, and back. */
int numbers_pack(const struct numbers *s, struct buf *out);
void numbers_unpack(struct wire *w, struct numbers *ret);
double numbers_std(const struct numbers *s);
/* Print min and max as JSON of the dtype; "null" if no number is finite. */
int numbers_print_range(const struct numbers *s, enum dtype t, struct buf *ret_min,
			struct buf *ret_max);

/* Print members of an object: "min": ..., "max", "mean", "std", "nan", "inf", "zeros". */
int numbers_json(const struct numbers *s, enum dtype t, struct buf *out);

/* Count the finite numbers in each of NUMBERS_BINS equal parts of [min, max]. */
void numbers_histogram(enum dtype t, const void *p, size_t n, double min, double max,
		       uint64_t bins[NUMBERS_BINS]);

/* The differences of two arrays of elements. */
struct numbers_diff {
	uint64_t n;       /* number of different elements */
	uint64_t first;   /* index of the first one */
	uint64_t one_nan; /* number of different elements that are NaN on one side only */
	double max_abs;
	/* for floats: 1 + number of representable values between the two elements */
	uint64_t max_ulp;
	bool has_ulp;
	/*
	 * Sums of squares: of all differences but NaN, and infinite if one is; and in the elements
	 * that differ beyond the tolerance, of these and of the numbers of the first array.
	 */
	double squares, squares_other, squares_a;
};

/* As of numpy.isclose(): |a - b| <= absolute + relative * |b|; zeros: none. */
struct tolerance {
	double absolute, relative;
};

/*
 * Compare elements of the same type. They are equal if their bits are, or both are NaN, or within a
 * tolerance. first: index of the first element at a and b.
 */
void numbers_compare(struct numbers_diff *d, enum dtype t, const void *a, const void *b, size_t n,
		     struct tolerance tolerance, uint64_t first);
/* Compare elements of two types as float64, without ulps. */
void numbers_compare_mixed(struct numbers_diff *d, enum dtype ta, const void *a, enum dtype tb,
			   const void *b, size_t n, struct tolerance tolerance, uint64_t first);
/* Compare floats of two types in the narrower one, to which the others are cast. */
void numbers_compare_narrow(struct numbers_diff *d, enum dtype ta, const void *a, enum dtype tb,
			    const void *b, size_t n, struct tolerance tolerance);
void numbers_diff_merge(struct numbers_diff *d, const struct numbers_diff *from);

#endif
