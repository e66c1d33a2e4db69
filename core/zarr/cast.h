/*
 * cast.h - conversion between element types, equal to numpy and ml_dtypes bit by bit.
 */
#ifndef PYTREEFS_CAST_H
#define PYTREEFS_CAST_H

#include "core/zarr/dtype.h"

/*
 * Convert n elements. Both sides little-endian; in and out may be the same memory only when the
 * sizes are equal. Rounding to nearest even; float -> integer truncates and wraps as numpy on
 * x86-64 does; complex -> real drops the imaginary part. Every pair is defined.
 */
void cast(enum dtype to, void *out, enum dtype from, const void *in, size_t n);

/* Swap the byte order of n elements in place. */
void cast_swap(enum dtype t, void *p, size_t n);
/* Clear the unused high bits of int2, int4 and float4 elements, in place; nothing for others. */
void cast_canonical(enum dtype t, void *p, size_t n);

#endif
