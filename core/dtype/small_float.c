/* SPDX-License-Identifier: Apache-2.0 */
/*
 * small_float.c - float types below 32 bits, by arithmetic on their bits.
 *
 * cast.c has loops over arrays.
 */
#include "core/dtype/small_float.h"

#include <assert.h>
#include <math.h>

/* The codes for infinity and NaN. */
enum specials {
	LIKE_IEEE,     /* top exponent: infinity, NaN */
	ONE_NAN,       /* "fn": all ones is NaN, no infinity */
	NEGATIVE_ZERO, /* "fnuz": code 80 is NaN; no infinity, no -0 */
	NO_SPECIALS,
};

struct format {
	int man, bias; /* bits of mantissa; bias of the exponent */
	unsigned bits; /* bits of the whole code */
	enum specials specials;
	uint8_t nan, top; /* canonical NaN; largest finite code */
};

static const struct format formats[DTYPE_COUNT] = {
	[DTYPE_FLOAT4_E2M1FN] = { 1, 1, 4, NO_SPECIALS, 0x08, 0x07 },
	[DTYPE_FLOAT8_E3M4] = { 4, 3, 8, LIKE_IEEE, 0x78, 0x6f },
	[DTYPE_FLOAT8_E4M3FN] = { 3, 7, 8, ONE_NAN, 0x7f, 0x7e },
	[DTYPE_FLOAT8_E4M3FNUZ] = { 3, 8, 8, NEGATIVE_ZERO, 0x80, 0x7f },
	[DTYPE_FLOAT8_E4M3B11FNUZ] = { 3, 11, 8, NEGATIVE_ZERO, 0x80, 0x7f },
	[DTYPE_FLOAT8_E5M2] = { 2, 15, 8, LIKE_IEEE, 0x7e, 0x7b },
	[DTYPE_FLOAT8_E5M2FNUZ] = { 2, 16, 8, NEGATIVE_ZERO, 0x80, 0x7f },
};

bool small_is(enum dtype t)
{
	return formats[t].bits || t == DTYPE_FLOAT8_E8M0FNU;
}

/*
 * The code of |x| in a format with `man` bits of mantissa whose smallest normal number is 2^emin,
 * rounded to nearest, ties to even, as if there were no largest number. x must not be infinite or
 * NaN.
 */
static uint64_t round_code(double x, int man, int emin)
{
	uint64_t bits = f64_bits(x) & INT64_MAX, m;
	int e = (int)(bits >> 52) - 1023;
	int shift = 52 - man + (e < emin ? emin - e : 0);

	/* Less than half of the smallest number, which includes all subnormal doubles. */
	if (bits == 0 || shift > 53 + 1)
		return 0;
	m = (bits & ((1ull << 52) - 1)) | 1ull << 52;
	m += (1ull << (shift - 1)) - 1 + (m >> shift & 1);
	/* The leading one of m adds to the exponent field, and so does a carry. */
	return ((uint64_t)(e < emin ? 0 : e - emin) << man) + (m >> shift);
}

static float e8m0_to_f32(uint8_t code)
{
	if (code == 0xff)
		return f32_of(0x7fc00000);
	/* 2^-127 is a subnormal float. */
	return f32_of(code ? (uint32_t)code << 23 : 0x00400000);
}

static uint8_t e8m0_from_f64(double x)
{
	uint32_t bits = f32_bits((float)x);

	if (bits == 0 || bits >= 0x7f800000)
		return 0xff;
	/* Among subnormal floats, everything above 2^-127 rounds up. */
	if (bits < 0x00800000)
		return bits > 0x00400000;
	return (uint8_t)((bits + 0x00400000) >> 23);
}

float small_to_f32(enum dtype t, uint8_t code)
{
	const struct format *f = &formats[t];
	uint32_t sign, exponent, mantissa;

	assert(small_is(t));
	if (t == DTYPE_FLOAT8_E8M0FNU)
		return e8m0_to_f32(code);
	code &= (uint8_t)((1u << f->bits) - 1);
	sign = (uint32_t)code >> (f->bits - 1) << 31;
	exponent = (code & ((1u << (f->bits - 1)) - 1)) >> f->man;
	mantissa = code & ((1u << f->man) - 1);
	if (f->specials == NEGATIVE_ZERO && code == f->nan)
		return f32_of(0xffc00000);
	if (f->specials != NO_SPECIALS && (code & 0x7f) > f->top) {
		bool is_inf = f->specials == LIKE_IEEE && !mantissa;

		return f32_of(sign | (is_inf ? 0x7f800000 : 0x7fc00000));
	}
	if (!exponent)
		return f32_of(sign | f32_bits(ldexpf((float)mantissa, 1 - f->bias - f->man)));
	return f32_of(sign | (exponent + 127 - (uint32_t)f->bias) << 23 |
		      mantissa << (23 - f->man));
}

uint8_t small_from_f64(enum dtype t, double x)
{
	const struct format *f = &formats[t];
	uint8_t sign;
	uint64_t code;

	assert(small_is(t));
	if (t == DTYPE_FLOAT8_E8M0FNU)
		return e8m0_from_f64(x);
	sign = signbit(x) ? (uint8_t)(1u << (f->bits - 1)) : 0;
	if (f->specials == NEGATIVE_ZERO)
		sign = f->nan;
	if (isnan(x))
		return f->specials == NEGATIVE_ZERO ? f->nan : f->nan ^ sign;
	code = isinf(x) ? UINT64_MAX : round_code(x, f->man, 1 - f->bias);
	switch (f->specials) {
	case LIKE_IEEE:
		return sign | (uint8_t)MIN(code, f->top + 1u);
	case ONE_NAN:
		return sign | (uint8_t)MIN(code, f->nan);
	case NEGATIVE_ZERO:
		if (code > f->top)
			return f->nan;
		return code && signbit(x) ? sign | (uint8_t)code : (uint8_t)code;
	case NO_SPECIALS:
		break;
	}
	return sign | (uint8_t)MIN(code, f->top);
}

/* ---- float16 ---- */

float f16_to_f32(uint16_t h)
{
	uint32_t sign = (uint32_t)(h & 0x8000) << 16, rest = h & 0x7fff;

	if (rest >= 0x7c00)
		return f32_of(sign | 0x7f800000 | rest << 13);
	if (rest >= 0x0400)
		return f32_of(sign | ((rest << 13) + ((127 - 15) << 23)));
	return f32_of(sign | f32_bits(ldexpf((float)rest, -24)));
}

double f16_to_f64(uint16_t h)
{
	/* The conversion of float to double would make a signalling NaN quiet. */
	if ((h & 0x7fff) > 0x7c00)
		return f64_of((uint64_t)(h & 0x8000) << 48 | (uint64_t)(h & 0x7fff) << 42 |
			      0x7ff0000000000000);
	return f16_to_f32(h);
}

/* A NaN with the top bits of the payload; never infinity. */
static uint16_t f16_nan(uint16_t sign, uint16_t payload)
{
	return sign | 0x7c00 | (payload ? payload : 1);
}

uint16_t f16_from_f32(float x)
{
	uint32_t bits = f32_bits(x);
	uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);

	if ((bits & 0x7fffffff) > 0x7f800000)
		return f16_nan(sign, (uint16_t)(bits >> 13 & 0x03ff));
	return f16_from_f64(x);
}

uint16_t f16_from_f64(double x)
{
	uint64_t bits = f64_bits(x), code;
	uint16_t sign = (uint16_t)(bits >> 48 & 0x8000);

	if (isnan(x))
		return f16_nan(sign, (uint16_t)(bits >> 42 & 0x03ff));
	code = isinf(x) ? 0x7c00 : round_code(x, 10, -14);
	return sign | (uint16_t)MIN(code, 0x7c00u);
}

/* ---- bfloat16 ---- */

uint16_t bf16_from_f32(float x)
{
	uint32_t bits = f32_bits(x);

	if ((bits & 0x7fffffff) > 0x7f800000)
		return (uint16_t)(0x7fc0 | (bits >> 16 & 0x8000));
	return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
