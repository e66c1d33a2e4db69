/* SPDX-License-Identifier: Apache-2.0 */
/*
 * t_readahead.c - the run of a sequential reader, and its guess.
 */
#include "handlers/namespace/readahead.h"

#include "core/base/pool.h"
#include "handlers/namespace/ns.h"
#include "tests/unit/lib/unit.h"

#define SIZE (256 * MiB)
#define REQUEST (512 * KiB)
#define CALLS 4096

static struct call {
	uint64_t from, to;
	struct zarr_guess *guess; /* a reference, or NULL */
} called[CALLS];
static unsigned n_called, n_ended;
static uint64_t dropped;

static void prefetch(struct file *f, uint64_t off, uint64_t n, struct zarr_guess *guess)
{
	assert_true(n_called < CALLS);
	called[n_called++] = (struct call){ off, off + n, zarr_guess_ref(guess) };
}

static void drop_behind(struct file *f, uint64_t from, uint64_t to)
{
	assert_int_equal(from, dropped);
	dropped = to;
}

static void end_ahead(struct file *f)
{
	n_ended++;
}

static const struct readahead_ops with_guesses = { prefetch, drop_behind, end_ahead };
static const struct readahead_ops without = { prefetch, drop_behind, NULL };

static struct ckpt ckpt;
static struct options options;
static struct ns ns = { .ckpt = &ckpt, .options = &options };
static struct node node = { .ns = &ns };
static struct file file = { .node = &node };

static int setup(void **state)
{
	assert_int_equal(cache_new(256 * MiB, &ckpt.cache), 0);
	assert_int_equal(pool_new(2, &ckpt.pool), 0);
	budget_init(&ckpt.read_budget, "test", 128 * MiB);
	ckpt.env.budget = &ckpt.read_budget;
	return 0;
}

static int teardown(void **state)
{
	pool_free(ckpt.pool);
	cache_free(ckpt.cache);
	budget_release(&ckpt.read_budget);
	return 0;
}

static void forget_calls(void)
{
	while (n_called > 0)
		zarr_guess_unref(called[--n_called].guess);
	n_ended = 0;
	dropped = 0;
}

/* Request [off, off + REQUEST), and answer it. */
static bool request(struct readahead *ra, uint64_t off)
{
	bool runs = readahead_request(ra, off, off + REQUEST);

	readahead_answered(ra, off + REQUEST);
	return runs;
}

/* The end of the ordinary calls; they follow each other from *at on. */
static uint64_t end_of_run(uint64_t at)
{
	for (unsigned i = 0; i < n_called; i++)
		if (!called[i].guess) {
			assert_int_equal(called[i].from, at);
			at = called[i].to;
		}
	return at;
}

/* All bytes are prefetched once, at most 16 MiB before they are requested, and all are dropped. */
static void a_file_in_order(void **state)
{
	struct readahead ra;

	readahead_init(&ra, &without, &file, SIZE);
	for (uint64_t off = 0; off < SIZE; off += REQUEST) {
		uint64_t end = off + REQUEST, to;

		assert_true(request(&ra, off));
		to = end_of_run(REQUEST);
		assert_true(to <= end + READAHEAD_BYTES);
		assert_true(to == SIZE || to > end + READAHEAD_BYTES / 8 * 7);
		assert_true(dropped < end || end == SIZE);
	}
	assert_int_equal(dropped, SIZE);
	for (unsigned i = 0; i < n_called; i++)
		assert_null(called[i].guess);
	readahead_release(&ra);
	assert_int_equal(n_ended, 0);
	forget_calls();
}

/* Idle threads get ranges after the run, and none of those that it has reached. */
static void a_guess_ends_when_the_run_has_reached_it(void **state)
{
	struct readahead ra;
	unsigned guesses = 0;

	readahead_init(&ra, &with_guesses, &file, SIZE);
	for (uint64_t off = 0; off < SIZE; off += REQUEST) {
		uint64_t run, at = 0;

		request(&ra, off);
		run = end_of_run(REQUEST);
		guesses = 0;
		for (unsigned i = 0; i < n_called; i++) {
			const struct call *c = &called[i];

			if (!c->guess)
				continue;
			guesses++;
			assert_true(c->from >= at);
			at = c->to;
			assert_int_equal(zarr_guess_is_over(c->guess), c->to <= run);
		}
		/* Nothing is guessed before the reader is sure to continue. */
		assert_true(guesses == 0 || off >= 15 * MiB);
	}
	assert_true(guesses > 8);
	assert_int_equal(n_ended, 0);
	readahead_release(&ra);
	assert_int_equal(n_ended, 1);
	forget_calls();
}

static void a_jump_ends_the_guess(void **state)
{
	struct readahead ra;
	unsigned n;

	readahead_init(&ra, &with_guesses, &file, SIZE);
	for (uint64_t off = 0; off < 64 * MiB; off += REQUEST)
		request(&ra, off);
	n = n_called;
	assert_false(request(&ra, 200 * MiB));
	assert_int_equal(n_ended, 1);
	assert_int_equal(n_called, n);
	for (unsigned i = 0; i < n_called; i++)
		assert_true(!called[i].guess || zarr_guess_is_over(called[i].guess));
	assert_false(request(&ra, 100 * MiB));
	assert_int_equal(n_ended, 1);
	readahead_release(&ra);
	assert_int_equal(n_ended, 1);
	forget_calls();
}

/* The kernel's requests are answered in any order. */
static void requests_that_overtake_each_other(void **state)
{
	struct readahead ra;

	readahead_init(&ra, &with_guesses, &file, SIZE);
	for (uint64_t off = 0; off < SIZE; off += 16 * REQUEST)
		for (unsigned i = 16; i-- > 0;) {
			assert_true(request(&ra, off + i * REQUEST));
			assert_true(dropped <= off || off + 16 * REQUEST == SIZE);
		}
	assert_int_equal(end_of_run(16 * REQUEST), SIZE);
	readahead_release(&ra);
	forget_calls();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_file_in_order),
		cmocka_unit_test(a_guess_ends_when_the_run_has_reached_it),
		cmocka_unit_test(a_jump_ends_the_guess),
		cmocka_unit_test(requests_that_overtake_each_other),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
