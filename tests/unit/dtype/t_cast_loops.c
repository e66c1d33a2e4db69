/* SPDX-License-Identifier: Apache-2.0 */
/*
 * t_cast_loops.c - the fast loops give the same as single elements: for every float16, and floats
 * around every boundary, in blocks with and without NaN.
 */
#include "tests/unit/lib/unit.h"

#include <stdlib.h>

#include "core/dtype/cast_loops.h"

static void every_float16_widens_the_same(void **state)
{
	/* Blocks of consecutive codes (the last ones are NaN), and the same with one NaN. */
	for (uint32_t at = 0; at < 65536; at += CAST_BLOCK) {
		for (int with_nan = 0; with_nan < 2; with_nan++) {
			uint16_t in[CAST_BLOCK];
			float out[CAST_BLOCK];

			for (uint32_t k = 0; k < CAST_BLOCK; k++)
				in[k] = (uint16_t)(at + k);
			if (with_nan)
				in[at / CAST_BLOCK % CAST_BLOCK] = 0x7c01;
			cast_f16_to_f32(in, out, CAST_BLOCK);
			for (uint32_t k = 0; k < CAST_BLOCK; k++)
				assert_int_equal(f32_bits(out[k]), f32_bits(f16_to_f32(in[k])));
		}
	}
}

/* Floats that float16, bfloat16 or float8 could round wrongly: ties, and their neighbours. */
static uint32_t some_float(uint32_t n)
{
	static const uint32_t lower[] = { 0,      1,      0x0fff, 0x1000, 0x1001,
					  0x7fff, 0x8000, 0x8001, 0xffff };

	return n / ARRAY_LEN(lower) << 16 | lower[n % ARRAY_LEN(lower)];
}

static void floats_narrow_the_same(void **state)
{
	float in[CAST_BLOCK];
	uint16_t half[CAST_BLOCK], brain[CAST_BLOCK];
	uint8_t small[CAST_BLOCK];

	for (uint32_t at = 0; at + CAST_BLOCK <= 9 * 65536; at += CAST_BLOCK) {
		for (uint32_t k = 0; k < CAST_BLOCK; k++)
			in[k] = f32_of(some_float(at + k));
		cast_f32_to_f16(in, half, CAST_BLOCK);
		cast_f32_to_bf16(in, brain, CAST_BLOCK);
		for (uint32_t k = 0; k < CAST_BLOCK; k++) {
			assert_int_equal(half[k], f16_from_f32(in[k]));
			assert_int_equal(brain[k], bf16_from_f32(in[k]));
		}
		for (int t = DTYPE_FLOAT4_E2M1FN; t <= DTYPE_FLOAT8_E8M0FNU; t++) {
			cast_f32_to_small(t, in, small, CAST_BLOCK);
			for (uint32_t k = 0; k < CAST_BLOCK; k++)
				if (small[k] != small_from_f64(t, in[k]))
					fail_msg("%s: %08x", dtype_info(t)->name, f32_bits(in[k]));
		}
	}
}

static void maps_of_every_size(void **state)
{
	uint8_t table[256 * 16], in[300], out[300 * 16 + 1];

	for (size_t i = 0; i < sizeof(table); i++)
		table[i] = (uint8_t)(i * 7 + i / 256);
	for (size_t i = 0; i < sizeof(in); i++)
		in[i] = (uint8_t)(i * 5);
	for (size_t size = 1; size <= 16; size *= 2) {
		cast_map(out + 1, table, in, sizeof(in), size);
		for (size_t i = 0; i < sizeof(in); i++)
			assert_memory_equal(out + 1 + i * size, table + in[i] * size, size);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_float16_widens_the_same),
		cmocka_unit_test(floats_narrow_the_same),
		cmocka_unit_test(maps_of_every_size),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
