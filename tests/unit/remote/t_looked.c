/* SPDX-License-Identifier: Apache-2.0 */
/*
 * t_looked.c - objects that were looked up one by one: the last ones, and threads that wait.
 */
#include <pthread.h>

#include "core/remote/source/looked.h"
#include "tests/unit/lib/unit.h"

/* Look up a path and find an object of this size; 0: do not remember it. */
static int look(struct looked *l, const char *path, uint64_t size)
{
	struct io_object o = { .size = size }, known;
	struct looked_turn turn;

	if (looked_begin(l, path, &turn, &known))
		return (int)known.size;
	looked_end(l, path, &turn, size ? &o : NULL);
	return -1;
}

static void test_the_last_ones(void **state)
{
	struct looked l;
	char path[16];

	looked_init(&l, 60000);
	assert_int_equal(look(&l, "a", 0), -1);
	assert_int_equal(look(&l, "a", 3), -1);
	assert_int_equal(look(&l, "a", 0), 3);
	looked_forget(&l, "a");
	looked_forget(&l, "b");
	assert_int_equal(look(&l, "a", 4), -1);
	assert_int_equal(look(&l, "a", 0), 4);
	for (int i = 0; i < LOOKED_MAX; i++) {
		snprintf(path, sizeof(path), "d/%d", i);
		assert_int_equal(look(&l, path, 5), -1);
	}
	assert_int_equal(look(&l, "a", 0), -1);
	assert_int_equal(look(&l, "d/7", 0), 5);
	looked_clear(&l);
	assert_int_equal(look(&l, "d/7", 0), -1);
	looked_release(&l);
	looked_init(&l, 0);
	assert_int_equal(look(&l, "a", 3), -1);
	assert_int_equal(look(&l, "a", 0), -1);
	looked_release(&l);
}

static void *wait_for_it(void *arg)
{
	return (void *)(intptr_t)look(arg, "a", 9);
}

/* Other threads wait for the first one's result; if it fails, each of them asks. */
static void test_one_asks(void **state)
{
	struct io_object o = { .size = 7 };

	for (int found = 0; found < 2; found++) {
		pthread_t thread[4];
		struct looked_turn turn;
		struct looked l;
		void *got;

		looked_init(&l, 60000);
		assert_int_equal(looked_begin(&l, "a", &turn, &o), 0);
		for (size_t i = 0; i < ARRAY_LEN(thread); i++)
			assert_int_equal(pthread_create(&thread[i], NULL, wait_for_it, &l), 0);
		/* A look-up of another path does not wait. */
		assert_int_equal(look(&l, "b", 1), -1);
		looked_end(&l, "a", &turn, found ? &o : NULL);
		for (size_t i = 0; i < ARRAY_LEN(thread); i++) {
			pthread_join(thread[i], &got);
			if (found)
				assert_int_equal((intptr_t)got, 7);
			else
				assert_true((intptr_t)got == -1 || (intptr_t)got == 9);
		}
		assert_int_equal(look(&l, "a", 0), found ? 7 : 9);
		looked_release(&l);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_the_last_ones),
		cmocka_unit_test(test_one_asks),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
