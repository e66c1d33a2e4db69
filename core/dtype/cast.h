/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cast.h - conversion between element types, to the bit as `astype` of numpy 2.4 with ml_dtypes
 * 0.6.
 *
 * The rules, all compared with these (tests/interop/test_casts.py):
 *
 *  - To a float type: to nearest, ties to even. The types of ml_dtypes are reached
 *    through float32, as in ml_dtypes, so float64 and wide integers are rounded
 *    twice. float16 is rounded once from float64; integers pass through float32.
 *  - Beyond the largest value: infinity where the type has one, else NaN, else
 *    (float4_e2m1fn) the largest value.
 *  - NaN: the sign is kept. float16 keeps payload bits from and to float32 and
 *    float64; from float32 to float64 and back the hardware makes it quiet; the
 *    types of ml_dtypes have one NaN.
 *  - float8_e8m0fnu: ties go up; zero and negative numbers become NaN.
 *  - Float to integer truncates. Values out of range, NaN included, become what
 *    x86-64 instructions return:
 *      int8, int16, int32, uint8, uint16   low bits of a 32-bit conversion: 80000000
 *      int64                               8000000000000000
 *      uint32, uint64                      the conversion of the value below 2^31 (2^63),
 *                                          and of the value less 2^31 (2^63) above,
 *                                          with the top bit flipped
 *      uint32 from float16                 low bits of a 64-bit conversion
 *      int2, int4                          0
 *    (In numpy, single elements and the last elements of an array, which do not fill
 *    a vector, get other uint32 values.) From float8_*, NaN becomes 0 and infinity the
 *    end of the range; for int2 and int4, the low bits of the end of int32's range.
 *  - Integer to integer: low bits. To bool: != 0; NaN is true; a complex number is true
 *    if either part is. Complex to real drops the imaginary part.
 *  - numpy has no cast between float8_e8m0fnu and integers below 8 bits or other
 *    small floats, nor from int4 to int2: here they go through float32 and int8.
 *
 * TensorStore 0.1.86, whose casts Orbax uses on save and restore, differs in
 *    - float64, complex128 -> float8_*, float4_e2m1fn: rounded once;
 *    - float64, complex128 -> float16: rounded twice, through float32;
 *    - sign and payload of NaN: float8_* -> float16; bfloat16 -> float16; float16 ->
 *      float8_e5m2, bfloat16, float64, complex128; float32, float64, complex* -> bfloat16,
 *      float16;
 *    - values out of range: bfloat16, complex* -> uint32; float64, complex128 -> int2,
 *      int4 just below 2^31;
 *    - every pair with float8_e8m0fnu, for which it uses a wrong bias;
 *    - complex* -> bool, which it refuses.
 */
#ifndef PYTREEFS_CAST_H
#define PYTREEFS_CAST_H

#include "core/dtype/dtype.h"

/*
 * Convert n elements. Both arrays are little-endian and may be unaligned. in and out may be the
 * same memory only when both types have the same size. Every pair of types and every bit pattern is
 * defined.
 */
void cast(enum dtype to, void *out, enum dtype from, const void *in, size_t n);

/* Swap the byte order of n elements in place. */
void cast_swap(enum dtype t, void *p, size_t n);
/*
 * Clear the unused high bits of int2, int4 and float4 elements, in place; other types are
 * unchanged.
 */
void cast_canonical(enum dtype t, void *p, size_t n);
/* -EUCLEAN when a bool is neither 0 nor 1. Elements of other types may have any bits. */
int cast_check(enum dtype t, const void *p, size_t n);

#endif
