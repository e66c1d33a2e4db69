/*
 * cast_loops.c - loops that the compiler turns into vectors, and float16 by F16C.
 *
 * Which float16 loops run is decided at run time; both give the same bits. F16C
 * makes a signalling NaN quiet and numpy does not, so a block with a NaN goes the
 * portable way.
 */
#include "core/zarr/cast_loops.h"

#if defined(__GNUC__) && !defined(__clang__)
/* The rest of the program is fine with less; clang vectorizes as it is. */
#pragma GCC optimize("O3")
#endif

#if defined(__x86_64__)
#include <immintrin.h>
#define HAVE_F16C 1
#else
#define HAVE_F16C 0
#endif

void cast_bf16_to_f32(const void *in, float *restrict out, size_t n)
{
	const any_u16 *p = in;
	uint32_t *restrict bits = (uint32_t *)out;

	for (size_t k = 0; k < n; k++)
		bits[k] = (uint32_t)p[k] << 16;
}

void cast_f32_to_bf16(const float *in, void *restrict out, size_t n)
{
	const uint32_t *bits = (const uint32_t *)in;
	any_u16 *restrict p = out;

	for (size_t k = 0; k < n; k++) {
		uint32_t u = bits[k];
		uint32_t rounded = (u + 0x7fff + (u >> 16 & 1)) >> 16;
		uint32_t nan = 0x7fc0 | (u >> 16 & 0x8000);

		p[k] = (uint16_t)((u & 0x7fffffff) > 0x7f800000 ? nan : rounded);
	}
}

void cast_f32_to_f64(const float *in, void *restrict out, size_t n)
{
	any_f64 *restrict p = out;

	for (size_t k = 0; k < n; k++)
		p[k] = in[k];
}

void cast_f64_to_f32(const double *in, void *restrict out, size_t n)
{
	any_f32 *restrict p = out;

	for (size_t k = 0; k < n; k++)
		p[k] = (float)in[k];
}

/* ---- float16 ---- */

static void f16_to_f32_portable(const any_u16 *in, float *restrict out, size_t n)
{
	for (size_t k = 0; k < n; k++)
		out[k] = f16_to_f32(in[k]);
}

static void f32_to_f16_portable(const float *in, any_u16 *restrict out, size_t n)
{
	for (size_t k = 0; k < n; k++)
		out[k] = f16_from_f32(in[k]);
}

#if HAVE_F16C

static bool f16_has_nan(const any_u16 *in, size_t n)
{
	unsigned found = 0;

	for (size_t k = 0; k < n; k++)
		found |= (in[k] & 0x7fff) > 0x7c00;
	return found;
}

static bool f32_has_nan(const float *in, size_t n)
{
	unsigned found = 0;

	for (size_t k = 0; k < n; k++)
		found |= in[k] != in[k];
	return found;
}

__attribute__((target("f16c,avx")))
static void f16_to_f32_f16c(const any_u16 *in, float *restrict out, size_t n)
{
	size_t k = 0;

	for (; k + 8 <= n; k += 8)
		_mm256_storeu_ps(out + k, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(in + k))));
	f16_to_f32_portable(in + k, out + k, n - k);
}

__attribute__((target("f16c,avx")))
static void f32_to_f16_f16c(const float *in, any_u16 *restrict out, size_t n)
{
	size_t k = 0;

	for (; k + 8 <= n; k += 8)
		_mm_storeu_si128((__m128i *)(out + k),
				 _mm256_cvtps_ph(_mm256_loadu_ps(in + k), _MM_FROUND_TO_NEAREST_INT));
	f32_to_f16_portable(in + k, out + k, n - k);
}

void cast_f16_to_f32(const void *in, float *out, size_t n)
{
	if (__builtin_cpu_supports("f16c") && !f16_has_nan(in, n))
		f16_to_f32_f16c(in, out, n);
	else
		f16_to_f32_portable(in, out, n);
}

void cast_f32_to_f16(const float *in, void *out, size_t n)
{
	if (__builtin_cpu_supports("f16c") && !f32_has_nan(in, n))
		f32_to_f16_f16c(in, out, n);
	else
		f32_to_f16_portable(in, out, n);
}

#else

void cast_f16_to_f32(const void *in, float *out, size_t n)
{
	f16_to_f32_portable(in, out, n);
}

void cast_f32_to_f16(const float *in, void *out, size_t n)
{
	f32_to_f16_portable(in, out, n);
}

#endif

/* ---- tables ---- */

#define MAP(type)                                      \
	do {                                           \
		const type *from = table;              \
		type *to = out;                        \
		for (size_t k = 0; k < n; k++)         \
			to[k] = from[in[k]];           \
	} while (0)

void cast_map(void *out, const void *table, const uint8_t *in, size_t n, size_t size)
{
	switch (size) {
	case 1:
		MAP(uint8_t);
		return;
	case 2:
		MAP(any_u16);
		return;
	case 4:
		MAP(any_u32);
		return;
	case 8:
		MAP(any_u64);
		return;
	default:
		for (size_t k = 0; k < n; k++)
			memcpy((uint8_t *)out + size * k, (const uint8_t *)table + size * in[k], size);
		return;
	}
}
