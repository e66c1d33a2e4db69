/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cast.c - convert arrays from one element type to another, in blocks through a wide type.
 *
 * Every type decodes exactly into one of four wide types, and every type can be encoded from each
 * of them. So a pair of types is a decoder and an encoder over a block that stays in the
 * first-level cache. One-byte sources go through a table of 256 results. small_float.c has the
 * arithmetic of single small floats; cast_loops.c has the loops that the compiler vectorizes, and
 * those that use F16C.
 *
 * Invariants: decoding loses nothing that the target type could represent, so rounding happens
 * where numpy and ml_dtypes round, and nowhere else.
 */
#include "core/dtype/cast.h"

#include <assert.h>
#include <math.h>

#include "core/base/err.h"
#include "core/dtype/cast_loops.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "elements in memory are little-endian");

enum wide { WIDE_F32, WIDE_F64, WIDE_I64, WIDE_U64 };

union block {
	float f[CAST_BLOCK];
	double d[CAST_BLOCK];
	int64_t i[CAST_BLOCK];
	uint64_t u[CAST_BLOCK];
};

/* Loop over n elements, which may be unaligned. */
#define EACH(n, expression)                      \
	do {                                     \
		for (size_t k = 0; k < (n); k++) \
			expression;              \
	} while (0)

static bool is_complex(enum dtype t)
{
	return t == DTYPE_COMPLEX64 || t == DTYPE_COMPLEX128;
}

static enum wide wide_of(enum dtype from, enum dtype to)
{
	switch (from) {
	case DTYPE_FLOAT64:
	case DTYPE_COMPLEX128:
		return WIDE_F64;
	case DTYPE_UINT64:
		return WIDE_U64;
	case DTYPE_FLOAT16:
		/* float would make a signalling NaN quiet on its way to double. */
		return to == DTYPE_FLOAT64 || to == DTYPE_COMPLEX128 ? WIDE_F64 : WIDE_F32;
	default:
		return dtype_info(from)->kind == DTYPE_KIND_FLOAT || is_complex(from) ? WIDE_F32 :
											WIDE_I64;
	}
}

/* ---- decode: exact ---- */

static void decode_int(enum dtype t, const uint8_t *p, int64_t *out, size_t n)
{
	switch (t) {
	case DTYPE_BOOL:
		EACH(n, out[k] = p[k] != 0);
		return;
	case DTYPE_INT2:
		EACH(n, out[k] = (int8_t)(p[k] << 6) >> 6);
		return;
	case DTYPE_INT4:
		EACH(n, out[k] = (int8_t)(p[k] << 4) >> 4);
		return;
	case DTYPE_INT8:
		EACH(n, out[k] = (int8_t)p[k]);
		return;
	case DTYPE_INT16:
		EACH(n, out[k] = ((const any_i16 *)p)[k]);
		return;
	case DTYPE_INT32:
		EACH(n, out[k] = ((const any_i32 *)p)[k]);
		return;
	case DTYPE_UINT8:
		EACH(n, out[k] = p[k]);
		return;
	case DTYPE_UINT16:
		EACH(n, out[k] = ((const any_u16 *)p)[k]);
		return;
	case DTYPE_UINT32:
		EACH(n, out[k] = ((const any_u32 *)p)[k]);
		return;
	default:
		/* int64, and the bits of uint64. */
		memcpy(out, p, 8 * n);
		return;
	}
}

static void decode_f32(enum dtype t, enum dtype to, const uint8_t *p, float *out, size_t n)
{
	switch (t) {
	case DTYPE_FLOAT32:
		memcpy(out, p, 4 * n);
		return;
	case DTYPE_COMPLEX64:
		EACH(n, memcpy(&out[k], p + 8 * k, 4));
		return;
	case DTYPE_FLOAT16:
		cast_f16_to_f32(p, out, n);
		return;
	case DTYPE_BFLOAT16:
		cast_bf16_to_f32(p, out, n);
		/* float16 would keep the payload of a NaN, but ml_dtypes drops it. */
		if (to == DTYPE_FLOAT16)
			EACH(n, out[k] = isnan(out[k]) ? copysignf(NAN, out[k]) : out[k]);
		return;
	default:
		EACH(n, out[k] = small_to_f32(t, p[k]));
		return;
	}
}

/* ---- encode ---- */

/* The results of x86-64 where C leaves them undefined. */
static int32_t trunc_i32(double x)
{
	return x > -2147483649.0 && x < 2147483648.0 ? (int32_t)x : INT32_MIN;
}

static int64_t trunc_i64(double x)
{
	return x >= -0x1p63 && x < 0x1p63 ? (int64_t)x : INT64_MIN;
}

static uint32_t trunc_u32(double x)
{
	return x >= 0x1p31 ? (uint32_t)trunc_i32(x - 0x1p31) ^ 1u << 31 : (uint32_t)trunc_i32(x);
}

static uint64_t trunc_u64(double x)
{
	return x >= 0x1p63 ? (uint64_t)trunc_i64(x - 0x1p63) ^ 1ull << 63 : (uint64_t)trunc_i64(x);
}

/* The conversion of ml_dtypes to int2 and int4. */
static uint8_t trunc_small(double x, uint8_t mask)
{
	return x >= -2147483648.0 && x <= 2147483647.0 ? (uint8_t)(int32_t)x & mask : 0;
}

static void encode_i64(enum dtype t, const int64_t *in, uint8_t *p, size_t n)
{
	switch (t) {
	case DTYPE_BOOL:
		EACH(n, p[k] = in[k] != 0);
		return;
	case DTYPE_INT2:
		EACH(n, p[k] = in[k] & 3);
		return;
	case DTYPE_INT4:
		EACH(n, p[k] = in[k] & 15);
		return;
	case DTYPE_INT8:
	case DTYPE_UINT8:
		EACH(n, p[k] = (uint8_t)in[k]);
		return;
	case DTYPE_INT16:
	case DTYPE_UINT16:
		EACH(n, ((any_u16 *)p)[k] = (uint16_t)in[k]);
		return;
	case DTYPE_INT32:
	case DTYPE_UINT32:
		EACH(n, ((any_u32 *)p)[k] = (uint32_t)in[k]);
		return;
	default:
		memcpy(p, in, 8 * n);
		return;
	}
}

static void encode_int_f64(enum dtype t, const double *in, uint8_t *p, size_t n)
{
	switch (t) {
	case DTYPE_BOOL:
		EACH(n, p[k] = in[k] != 0);
		return;
	case DTYPE_INT2:
		EACH(n, p[k] = trunc_small(in[k], 3));
		return;
	case DTYPE_INT4:
		EACH(n, p[k] = trunc_small(in[k], 15));
		return;
	case DTYPE_INT8:
	case DTYPE_UINT8:
		EACH(n, p[k] = (uint8_t)trunc_i32(in[k]));
		return;
	case DTYPE_INT16:
	case DTYPE_UINT16:
		EACH(n, ((any_u16 *)p)[k] = (uint16_t)trunc_i32(in[k]));
		return;
	case DTYPE_INT32:
		EACH(n, ((any_i32 *)p)[k] = trunc_i32(in[k]));
		return;
	case DTYPE_UINT32:
		EACH(n, ((any_u32 *)p)[k] = trunc_u32(in[k]));
		return;
	case DTYPE_INT64:
		EACH(n, ((any_u64 *)p)[k] = (uint64_t)trunc_i64(in[k]));
		return;
	default:
		EACH(n, ((any_u64 *)p)[k] = trunc_u64(in[k]));
		return;
	}
}

static bool is_int(enum dtype t)
{
	return dtype_info(t)->kind < DTYPE_KIND_FLOAT;
}

static void encode_f32(enum dtype t, const float *in, uint8_t *p, size_t n)
{
	double wide[CAST_BLOCK];

	switch (t) {
	case DTYPE_FLOAT32:
		memcpy(p, in, 4 * n);
		return;
	case DTYPE_FLOAT64:
		cast_f32_to_f64(in, p, n);
		return;
	case DTYPE_FLOAT16:
		cast_f32_to_f16(in, p, n);
		return;
	case DTYPE_BFLOAT16:
		cast_f32_to_bf16(in, p, n);
		return;
	case DTYPE_COMPLEX64:
		memset(p, 0, 8 * n);
		EACH(n, memcpy(p + 8 * k, &in[k], 4));
		return;
	case DTYPE_COMPLEX128:
		EACH(n, (((any_f64 *)p)[2 * k] = in[k], ((any_f64 *)p)[2 * k + 1] = 0));
		return;
	default:
		break;
	}
	if (is_int(t)) {
		/* The conversion to double is exact, and the limits are the same. */
		EACH(n, wide[k] = in[k]);
		encode_int_f64(t, wide, p, n);
	} else {
		cast_f32_to_small(t, in, p, n);
	}
}

static void encode_f64(enum dtype t, const double *in, uint8_t *p, size_t n)
{
	float narrow[CAST_BLOCK];

	switch (t) {
	case DTYPE_FLOAT64:
		memcpy(p, in, 8 * n);
		return;
	case DTYPE_FLOAT32:
		cast_f64_to_f32(in, p, n);
		return;
	case DTYPE_FLOAT16:
		EACH(n, ((any_u16 *)p)[k] = f16_from_f64(in[k]));
		return;
	case DTYPE_COMPLEX128:
		memset(p, 0, 16 * n);
		EACH(n, memcpy(p + 16 * k, &in[k], 8));
		return;
	default:
		break;
	}
	if (is_int(t)) {
		encode_int_f64(t, in, p, n);
		return;
	}
	/* complex64 and the types of ml_dtypes go through float. */
	cast_f64_to_f32(in, narrow, n);
	encode_f32(t, narrow, p, n);
}

/* Encode integers of 64 bits. Each conversion rounds once, to float or to double. */
static void encode_wide_int(enum dtype t, enum wide w, const union block *in, uint8_t *p, size_t n)
{
	union block real;

	if (is_int(t)) {
		encode_i64(t, in->i, p, n);
	} else if (t == DTYPE_FLOAT64 || t == DTYPE_COMPLEX128) {
		if (w == WIDE_I64)
			EACH(n, real.d[k] = (double)in->i[k]);
		else
			EACH(n, real.d[k] = (double)in->u[k]);
		encode_f64(t, real.d, p, n);
	} else {
		if (w == WIDE_I64)
			EACH(n, real.f[k] = (float)in->i[k]);
		else
			EACH(n, real.f[k] = (float)in->u[k]);
		encode_f32(t, real.f, p, n);
	}
}

/*
 * Eight-bit floats to integers: NaN becomes 0, infinity the end of the range; for int2 and int4 the
 * low bits of the end of int32's range.
 */
static void small_to_int(enum dtype t, const float *in, uint8_t *p, size_t n)
{
	const struct dtype_info *info = dtype_info(t);
	unsigned bits = info->bits < 8 ? 32 : info->bits;
	bool is_signed = info->kind == DTYPE_KIND_INT;
	int64_t top = (int64_t)(UINT64_MAX >> (64 - bits + is_signed));
	int64_t bottom = is_signed ? -top - 1 : 0;

	encode_f32(t, in, p, n);
	for (size_t k = 0; k < n; k++) {
		int64_t v = isnan(in[k]) ? 0 : in[k] > 0 ? top : bottom;

		if (!isfinite(in[k]))
			encode_i64(t, &v, p + k * info->size, 1);
	}
}

/* ---- whole arrays ---- */

static void cast_block(enum dtype to, uint8_t *out, enum dtype from, const uint8_t *in, size_t n)
{
	enum wide w = wide_of(from, to);
	union block b;

	switch (w) {
	case WIDE_F32:
		decode_f32(from, to, in, b.f, n);
		/* float16 to uint32, for which numpy has a loop of its own. */
		if (from == DTYPE_FLOAT16 && to == DTYPE_UINT32)
			EACH(n, ((any_u32 *)out)[k] = (uint32_t)trunc_i64(b.f[k]));
		else if (small_is(from) && is_int(to) && to != DTYPE_BOOL)
			small_to_int(to, b.f, out, n);
		else
			encode_f32(to, b.f, out, n);
		return;
	case WIDE_F64:
		if (from == DTYPE_FLOAT64)
			memcpy(b.d, in, 8 * n);
		else if (from == DTYPE_COMPLEX128)
			EACH(n, memcpy(&b.d[k], in + 16 * k, 8));
		else
			EACH(n, b.d[k] = f16_to_f64(((const any_u16 *)in)[k]));
		encode_f64(to, b.d, out, n);
		return;
	case WIDE_I64:
	case WIDE_U64:
		decode_int(from, in, b.i, n);
		encode_wide_int(to, w, &b, out, n);
		return;
	}
}

static void cast_blocks(enum dtype to, uint8_t *out, enum dtype from, const uint8_t *in, size_t n)
{
	size_t to_size = dtype_info(to)->size, from_size = dtype_info(from)->size;

	while (n) {
		size_t part = MIN(n, (size_t)CAST_BLOCK);

		cast_block(to, out, from, in, part);
		out += part * to_size;
		in += part * from_size;
		n -= part;
	}
}

/* Either part makes the number true. */
static void complex_to_bool(uint8_t *out, enum dtype from, const uint8_t *in, size_t n)
{
	if (from == DTYPE_COMPLEX64)
		EACH(n, out[k] = ((const any_f32 *)in)[2 * k] != 0 ||
				 ((const any_f32 *)in)[2 * k + 1] != 0);
	else
		EACH(n, out[k] = ((const any_f64 *)in)[2 * k] != 0 ||
				 ((const any_f64 *)in)[2 * k + 1] != 0);
}

void cast(enum dtype to, void *out, enum dtype from, const void *in, size_t n)
{
	size_t size = dtype_info(from)->size;

	assert(to > DTYPE_UNKNOWN && to < DTYPE_COUNT);
	if (to == from) {
		if (n)
			memmove(out, in, n * size);
		cast_canonical(to, out, n);
	} else if (is_complex(to) && is_complex(from)) {
		cast(to == DTYPE_COMPLEX64 ? DTYPE_FLOAT32 : DTYPE_FLOAT64, out,
		     from == DTYPE_COMPLEX64 ? DTYPE_FLOAT32 : DTYPE_FLOAT64, in, 2 * n);
	} else if (to == DTYPE_BOOL && is_complex(from)) {
		complex_to_bool(out, from, in, n);
	} else if (size == 1 && n >= 1024) {
		/* Compute all 256 results first. */
		uint8_t codes[256], table[256 * LIMIT_ITEM_BYTES];

		EACH(sizeof(codes), codes[k] = (uint8_t)k);
		cast_blocks(to, table, from, codes, sizeof(codes));
		cast_map(out, table, in, n, dtype_info(to)->size);
	} else {
		cast_blocks(to, out, from, in, n);
	}
}

void cast_swap(enum dtype t, void *p, size_t n)
{
	const struct dtype_info *info = dtype_info(t);

	n *= info->size / info->word;
	switch (info->word) {
	case 2:
		EACH(n, ((any_u16 *)p)[k] = __builtin_bswap16(((any_u16 *)p)[k]));
		return;
	case 4:
		EACH(n, ((any_u32 *)p)[k] = __builtin_bswap32(((any_u32 *)p)[k]));
		return;
	case 8:
		EACH(n, ((any_u64 *)p)[k] = __builtin_bswap64(((any_u64 *)p)[k]));
		return;
	default:
		return;
	}
}

void cast_canonical(enum dtype t, void *p, size_t n)
{
	const struct dtype_info *info = dtype_info(t);
	uint8_t *bytes = p;

	if (info->bits < 8)
		EACH(n, bytes[k] &= (uint8_t)((1u << info->bits) - 1));
}

int cast_check(enum dtype t, const void *p, size_t n)
{
	const uint8_t *bytes = p;
	unsigned all = 0;
	size_t i = 0;

	if (t != DTYPE_BOOL)
		return 0;
	EACH(n, all |= bytes[k]);
	if (all <= 1)
		return 0;
	while (bytes[i] <= 1)
		i++;
	return fail(-EUCLEAN, "a bool has the value %u, not 0 or 1", bytes[i]);
}
