/* SPDX-License-Identifier: Apache-2.0 */
/*
 * t_blocks.c - blocks do not overlap, and block_trim() releases the idle ones.
 */
#include "tests/unit/lib/unit.h"

#include <pthread.h>
#include <stdlib.h>

#include "core/base/blocks.h"
#include "core/base/limits.h"
#include "core/base/mem.h"

static const size_t sizes[] = { 1,      15,      4096,          65536,   65537,
				100000, 1 << 20, (1 << 20) + 1, 5 << 20, 20 << 20 };

static void blocks_do_not_overlap(void **state)
{
	uint8_t *p[ARRAY_LEN(sizes)][3];

	for (int round = 0; round < 3; round++) {
		for (size_t i = 0; i < ARRAY_LEN(sizes); i++)
			for (int k = 0; k < 3; k++) {
				p[i][k] = block_alloc(sizes[i]);
				assert_non_null(p[i][k]);
				memset(p[i][k], (int)(i * 3) + k, sizes[i]);
			}
		for (size_t i = 0; i < ARRAY_LEN(sizes); i++)
			for (int k = 0; k < 3; k++) {
				for (size_t b = 0; b < sizes[i]; b += 1 + sizes[i] / 1000)
					assert_int_equal(p[i][k][b], i * 3 + (size_t)k);
				assert_int_equal(p[i][k][sizes[i] - 1], i * 3 + (size_t)k);
				block_free(p[i][k], sizes[i]);
			}
		block_trim();
	}
	block_free(NULL, 100);
	block_free(NULL, 10 << 20);
}

static void a_small_block_costs_little(void **state)
{
	assert_true(block_size(1) < 64);
	assert_true(block_size(4096) < 4200);
	for (size_t i = 0; i < ARRAY_LEN(sizes); i++)
		assert_true(block_size(sizes[i]) >= sizes[i] &&
			    block_size(sizes[i]) <= sizes[i] + sizes[i] / 8 + 4096);
}

/* Compressed chunks of one leaf: the next one is a little longer, and reuses the pages. */
static void a_block_serves_one_of_about_its_size(void **state)
{
	const size_t n = 1400000;
	uint8_t *p, *q;

	if (block_size(n) == n + 16)
		skip(); /* with the address sanitizer all blocks come from the heap */
	p = block_alloc(n);
	assert_non_null(p);
	memset(p, 1, n);
	block_free(p, n);
	q = block_alloc(n + 1000);
	assert_ptr_equal(p, q);
	memset(q, 2, n + 1000);
	block_free(q, n + 1000);
	block_trim();
}

static void *churn(void *arg)
{
	unsigned seed = *(unsigned *)arg;
	uint8_t *p[8] = { 0 };
	size_t n[8] = { 0 };

	for (int i = 0; i < 2000; i++) {
		unsigned k = seed % 8;

		seed = seed * 1103515245 + 12345;
		if (p[k] && p[k][n[k] / 2] != (uint8_t)k)
			return (void *)1;
		block_free(p[k], n[k]);
		n[k] = sizes[seed / 65536 % 8];
		p[k] = block_alloc(n[k]);
		p[k][n[k] / 2] = (uint8_t)k;
	}
	for (int k = 0; k < 8; k++)
		block_free(p[k], n[k]);
	return NULL;
}

static void many_threads(void **state)
{
	unsigned seed[4] = { 1, 2, 3, 4 };
	pthread_t t[4];

	for (int i = 0; i < 4; i++)
		assert_int_equal(pthread_create(&t[i], NULL, churn, &seed[i]), 0);
	for (int i = 0; i < 4; i++) {
		void *r;

		pthread_join(t[i], &r);
		assert_null(r);
	}
	block_trim();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(blocks_do_not_overlap),
		cmocka_unit_test(a_small_block_costs_little),
		cmocka_unit_test(a_block_serves_one_of_about_its_size),
		cmocka_unit_test(many_threads),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
