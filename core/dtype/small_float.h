/* SPDX-License-Identifier: Apache-2.0 */
/*
 * small_float.h - one element of a float type below 32 bits, to and from float and double.
 *
 * The bits are those of ml_dtypes (and of numpy for float16). Conversion to a wider type is exact;
 * conversion to a narrower one rounds to nearest, ties to even.
 */
#ifndef PYTREEFS_SMALL_FLOAT_H
#define PYTREEFS_SMALL_FLOAT_H

#include "core/dtype/dtype.h"

/* Whether t is a float type of eight bits or less: DTYPE_FLOAT4_E2M1FN to DTYPE_FLOAT8_E8M0FNU. */
bool small_is(enum dtype t);
/* Unused high bits of the code are ignored. */
float small_to_f32(enum dtype t, uint8_t code);
/*
 * Rounds once. Beyond the largest value: infinity where the type has one, else NaN, else (float4)
 * the largest value. float8_e8m0fnu has neither sign nor zero, so those become NaN; its ties go up.
 */
uint8_t small_from_f64(enum dtype t, double x);

float f16_to_f32(uint16_t h);
/* NaN keeps its payload and is not made quiet, as in numpy. */
double f16_to_f64(uint16_t h);
uint16_t f16_from_f32(float x);
uint16_t f16_from_f64(double x);

/* Every NaN becomes 7fc0 or ffc0. */
uint16_t bf16_from_f32(float x);

/* The bits of a float, and back. */
static inline uint32_t f32_bits(float x)
{
	uint32_t u;

	memcpy(&u, &x, sizeof(u));
	return u;
}

static inline float f32_of(uint32_t u)
{
	float x;

	memcpy(&x, &u, sizeof(x));
	return x;
}

static inline uint64_t f64_bits(double x)
{
	uint64_t u;

	memcpy(&u, &x, sizeof(u));
	return u;
}

static inline double f64_of(uint64_t u)
{
	double x;

	memcpy(&x, &u, sizeof(x));
	return x;
}

#endif
