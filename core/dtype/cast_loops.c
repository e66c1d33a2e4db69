/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cast_loops.c - loops that the compiler vectorizes, and float16 by F16C.
 *
 * The float16 loops are chosen at run time; both kinds give the same bits. F16C makes a signalling
 * NaN quiet and numpy does not, so a block with a NaN takes the portable loop.
 */
#include "core/dtype/cast_loops.h"
#include "core/base/thread.h"

#include <pthread.h>
#include <stdatomic.h>

#if defined(__GNUC__) && !defined(__clang__)
/* The rest of the program needs less; clang vectorizes without it. */
#pragma GCC optimize("O3")
#endif

#if defined(__x86_64__)
#include <cpuid.h>
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

/* Not every compiler knows "f16c" in __builtin_cpu_supports(). */
static bool cpu_has_f16c(void)
{
	static atomic_int answer; /* 0: unknown, 1: no, 2: yes */
	int known = atomic_load_explicit(&answer, memory_order_relaxed);
	unsigned a, b, c, d;

	if (!known) {
		known = 1;
		if (__builtin_cpu_supports("avx") && __get_cpuid(1, &a, &b, &c, &d) && c & bit_F16C)
			known = 2;
		atomic_store_explicit(&answer, known, memory_order_relaxed);
	}
	return known == 2;
}

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

__attribute__((target("f16c,avx"))) static void f16_to_f32_f16c(const any_u16 *in,
								float *restrict out, size_t n)
{
	size_t k = 0;

	for (; k + 8 <= n; k += 8)
		_mm256_storeu_ps(out + k,
				 _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(in + k))));
	f16_to_f32_portable(in + k, out + k, n - k);
}

__attribute__((target("f16c,avx"))) static void f32_to_f16_f16c(const float *in,
								any_u16 *restrict out, size_t n)
{
	size_t k = 0;

	/* 0: round to nearest, ties to even. */
	for (; k + 8 <= n; k += 8)
		_mm_storeu_si128((__m128i *)(out + k), _mm256_cvtps_ph(_mm256_loadu_ps(in + k), 0));
	f32_to_f16_portable(in + k, out + k, n - k);
}

void cast_f16_to_f32(const void *in, float *out, size_t n)
{
	if (cpu_has_f16c() && !f16_has_nan(in, n))
		f16_to_f32_f16c(in, out, n);
	else
		f16_to_f32_portable(in, out, n);
}

void cast_f32_to_f16(const float *in, void *out, size_t n)
{
	if (cpu_has_f16c() && !f32_has_nan(in, n))
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

#define SMALL_FIRST DTYPE_FLOAT4_E2M1FN
#define SMALL_COUNT (DTYPE_FLOAT8_E8M0FNU - SMALL_FIRST + 1)

/* Indexed by the upper half of a float, with its last bit set when the lower half is not zero. */
static uint8_t small_codes[SMALL_COUNT][65536];
static atomic_bool small_ready[SMALL_COUNT];
static pthread_mutex_t small_lock = PTHREAD_MUTEX_INITIALIZER; /* held while a table is filled */

/* A half-filled table is not marked as ready, so the child fills it again. */
static void cast_loops_forked(void)
{
	lock_was_held(&small_lock);
}
AT_FORK_CHILD(cast_loops_forked);

static const uint8_t *small_table(enum dtype t)
{
	uint8_t *codes = small_codes[t - SMALL_FIRST];

	if (atomic_load_explicit(&small_ready[t - SMALL_FIRST], memory_order_acquire))
		return codes;
	pthread_mutex_lock(&small_lock);
	/* Stop when another thread has filled it. */
	for (uint32_t k = 0; k < 65536 && !atomic_load(&small_ready[t - SMALL_FIRST]); k++)
		codes[k] = small_from_f64(t, f32_of(k << 16));
	atomic_store_explicit(&small_ready[t - SMALL_FIRST], true, memory_order_release);
	pthread_mutex_unlock(&small_lock);
	return codes;
}

void cast_f32_to_small(enum dtype t, const float *in, uint8_t *out, size_t n)
{
	const uint8_t *codes;

	/* Filling a table takes as long as converting some ten thousand elements without it. */
	if (n < CAST_BLOCK) {
		for (size_t k = 0; k < n; k++)
			out[k] = small_from_f64(t, in[k]);
		return;
	}
	/*
	 * Eight bits of mantissa, rounded to odd, are two more than any of these types uses, so the
	 * result is the same as from all 24.
	 */
	codes = small_table(t);
	for (size_t k = 0; k < n; k++) {
		uint32_t bits = f32_bits(in[k]);

		out[k] = codes[bits >> 16 | ((bits & 0xffff) != 0)];
	}
}

#define MAP(type)                              \
	do {                                   \
		const type *from = table;      \
		type *to = out;                \
		for (size_t k = 0; k < n; k++) \
			to[k] = from[in[k]];   \
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
			memcpy((uint8_t *)out + size * k, (const uint8_t *)table + size * in[k],
			       size);
		return;
	}
}
