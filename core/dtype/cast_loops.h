/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cast_loops.h - the loops of cast.c that must be fast. Private to cast.c.
 */
#ifndef PYTREEFS_CAST_LOOPS_H
#define PYTREEFS_CAST_LOOPS_H

#include "core/dtype/small_float.h"

#define CAST_BLOCK 512 /* elements in one block: 4 KiB for double */

/* Elements that may be unaligned. */
typedef int16_t any_i16 __attribute__((aligned(1)));
typedef int32_t any_i32 __attribute__((aligned(1)));
typedef uint16_t any_u16 __attribute__((aligned(1)));
typedef uint32_t any_u32 __attribute__((aligned(1)));
typedef uint64_t any_u64 __attribute__((aligned(1)));
typedef float any_f32 __attribute__((aligned(1)));
typedef double any_f64 __attribute__((aligned(1)));

/* Convert at most CAST_BLOCK elements; in and out do not overlap. */
void cast_f16_to_f32(const void *in, float *out, size_t n);
void cast_f32_to_f16(const float *in, void *out, size_t n);
void cast_bf16_to_f32(const void *in, float *out, size_t n);
void cast_f32_to_bf16(const float *in, void *out, size_t n);
void cast_f32_to_f64(const float *in, void *out, size_t n);
void cast_f64_to_f32(const double *in, void *out, size_t n);
/* t is a float type of eight bits or less. Only full blocks are fast. */
void cast_f32_to_small(enum dtype t, const float *in, uint8_t *out, size_t n);

/* out[k] = table[in[k]], for elements of `size` bytes. With size 1, out may be in. */
void cast_map(void *out, const void *table, const uint8_t *in, size_t n, size_t size);

#endif
