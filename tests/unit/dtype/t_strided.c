/* SPDX-License-Identifier: Apache-2.0 */
/* t_strided.c - boxes of elements between two layouts, compared with a copy element by element. */
#include "core/dtype/strided.h"

#include "core/dtype/cast.h"
#include "tests/unit/lib/unit.h"

#define SOURCE 4096
#define RESULT 8192

struct box {
	enum dtype have, want;
	unsigned rank;
	uint64_t n[4], from[4]; /* in elements */
	int64_t to[4];
	size_t start; /* element of the result that has the first one */
	uint64_t at;  /* byte of the source that has the first element */
};

static const struct box boxes[] = {
	/* one element, a run, rows of a wider array, every second element */
	{ DTYPE_INT32, DTYPE_INT32, 0, { 0 }, { 0 }, { 0 }, 3, 8 },
	{ DTYPE_INT32, DTYPE_INT32, 2, { 4, 5 }, { 5, 1 }, { 5, 1 }, 0, 0 },
	{ DTYPE_INT32, DTYPE_FLOAT64, 2, { 4, 5 }, { 9, 1 }, { 5, 1 }, 0, 16 },
	{ DTYPE_UINT8, DTYPE_UINT8, 2, { 7, 5 }, { 20, 2 }, { 5, 1 }, 1, 3 },
	/* transposed, backwards, with gaps in the result, the same element for all */
	{ DTYPE_INT16, DTYPE_INT16, 2, { 6, 7 }, { 1, 6 }, { 7, 1 }, 0, 0 },
	{ DTYPE_INT64, DTYPE_INT32, 3, { 2, 3, 4 }, { 1, 2, 6 }, { 12, 4, 1 }, 5, 64 },
	{ DTYPE_INT32, DTYPE_INT32, 2, { 4, 5 }, { 5, 1 }, { -5, -1 }, 40, 0 },
	{ DTYPE_COMPLEX128, DTYPE_COMPLEX128, 2, { 3, 2 }, { 2, 1 }, { 4, 1 }, 0, 0 },
	{ DTYPE_FLOAT32, DTYPE_FLOAT16, 3, { 2, 1, 3 }, { 3, 9, 1 }, { 8, 1, 2 }, 2, 4 },
	{ DTYPE_INT32, DTYPE_FLOAT32, 2, { 4, 5 }, { 0, 0 }, { 6, 1 }, 0, 12 },
	/* nothing */
	{ DTYPE_INT32, DTYPE_INT32, 2, { 0, 5 }, { 5, 1 }, { 5, 1 }, 0, 0 },
};

static struct strided strided_of(const struct box *b)
{
	struct strided s = { .have = b->have, .want = b->want };

	for (unsigned i = 0; i < b->rank; i++)
		strided_add(&s, b->n[i], b->from[i] * dtype_info(b->have)->size,
			    b->to[i] * (int64_t)dtype_info(b->want)->size);
	return s;
}

/* Returns whether any element is in the window. */
static bool expect(const struct box *b, const uint8_t *source, uint64_t begin, uint64_t end,
		   uint8_t *result)
{
	size_t item = dtype_info(b->have)->size, out = dtype_info(b->want)->size;
	uint64_t all = 1;
	bool any = false;

	for (unsigned i = 0; i < b->rank; i++)
		all *= b->n[i];
	for (uint64_t k = 0; k < all; k++) {
		uint64_t rest = k, at = b->at;
		int64_t to = (int64_t)b->start;

		for (unsigned i = b->rank; i > 0; i--) {
			at += rest % b->n[i - 1] * b->from[i - 1] * item;
			to += (int64_t)(rest % b->n[i - 1]) * b->to[i - 1];
			rest /= b->n[i - 1];
		}
		if (at < begin || at >= end)
			continue;
		cast(b->want, result + to * (int64_t)out, b->have, source + at, 1);
		any = true;
	}
	return any;
}

static void a_box_is_copied_element_by_element(void **state)
{
	static uint8_t source[SOURCE], want[RESULT], got[RESULT];

	for (size_t i = 0; i < SOURCE; i++)
		source[i] = (uint8_t)(i * 37 % 251 / 4);
	for (size_t i = 0; i < ARRAY_LEN(boxes); i++) {
		const struct box *b = &boxes[i];
		struct strided s = strided_of(b);

		memset(want, 0xee, RESULT);
		memset(got, 0xee, RESULT);
		expect(b, source, 0, UINT64_MAX, want);
		strided_copy(&s, source + b->at, got + b->start * dtype_info(b->want)->size);
		assert_memory_equal(got, want, RESULT);
	}
}

static void windows_of_any_size_give_the_elements_that_are_in_them(void **state)
{
	static uint8_t source[SOURCE], want[RESULT], got[RESULT];

	for (size_t i = 0; i < SOURCE; i++)
		source[i] = (uint8_t)(i * 37 % 251 / 4);
	for (size_t i = 0; i < ARRAY_LEN(boxes); i++)
		for (uint64_t window = 16; window <= 256; window *= 4) {
			const struct box *b = &boxes[i];
			struct strided s = strided_of(b);
			uint8_t *to = got + b->start * dtype_info(b->want)->size;

			memset(got, 0xee, RESULT);
			for (uint64_t at = 0; at < SOURCE; at += window) {
				bool any = expect(b, source, at, at + window, want);

				assert_int_equal(strided_has(&s, b->at, at, at + window), any);
				strided_copy_window(&s, b->at, source + at, at, at + window, to);
			}
			memset(want, 0xee, RESULT);
			expect(b, source, 0, UINT64_MAX, want);
			assert_memory_equal(got, want, RESULT);
		}
}

static void runs_and_spans_are_those_of_both_layouts(void **state)
{
	struct strided s = strided_of(&boxes[1]);

	assert_true(strided_is_run(&s));
	assert_int_equal(strided_run(&s), 20);
	assert_int_equal(strided_span(&s), 80);
	s = strided_of(&boxes[2]);
	assert_false(strided_is_run(&s));
	assert_int_equal(strided_run(&s), 5);
	assert_int_equal(strided_span(&s), 4 * (3 * 9 + 5));
	s = strided_of(&boxes[4]);
	assert_int_equal(strided_run(&s), 1);
	s = strided_of(&boxes[0]);
	assert_true(strided_is_run(&s));
	/* a fill is a run if its elements are neighbours in the result */
	s = (struct strided){ .have = DTYPE_INT8, .want = DTYPE_INT8 };
	strided_add(&s, 4, 0, 8);
	strided_add(&s, 8, 0, 1);
	assert_true(strided_is_run(&s));
	strided_add(&s, 2, 0, 1);
	assert_false(strided_is_run(&s));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_box_is_copied_element_by_element),
		cmocka_unit_test(windows_of_any_size_give_the_elements_that_are_in_them),
		cmocka_unit_test(runs_and_spans_are_those_of_both_layouts),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
