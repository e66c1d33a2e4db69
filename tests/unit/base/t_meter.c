/* SPDX-License-Identifier: Apache-2.0 */
/*
 * t_meter.c - metadata is charged before it is allocated, takes memory from caches, waits for
 * others, and is refused with both numbers.
 */
#include "tests/unit/lib/unit.h"

#include <pthread.h>
#include <sched.h>

#include "core/base/arena.h"
#include "core/base/cache.h"
#include "core/base/clock.h"
#include "core/base/json.h"
#include "core/base/meter.h"

#define CACHE_BYTES (16 * MiB)
#define MOST (METER_FREE + CACHE_BYTES - METER_RESERVED) /* the limit of large charges */

static int setup(void **state)
{
	struct cache *cache;

	assert_int_equal(cache_new(CACHE_BYTES, &cache), 0);
	*state = cache;
	return 0;
}

static int teardown(void **state)
{
	cache_free(*state);
	return 0;
}

static uint64_t used(void)
{
	struct meter_stats s;

	meter_stats(&s);
	return s.used;
}

static void without_a_cache_nothing_is_refused(void **state)
{
	assert_int_equal(meter_charge(1024 * GiB), 0);
	assert_int_equal(meter_taken(), 0);
	meter_release(1024 * GiB);
	assert_int_equal(used(), 0);
}

static void charges_that_never_fit_are_refused_at_once(void **state)
{
	struct meter_stats before, after;

	meter_stats(&before);
	assert_int_equal(meter_charge(MOST + 1), -EFBIG);
	assert_non_null(strstr(err_text(-EFBIG), "needs 41943041 bytes"));
	assert_non_null(strstr(err_text(-EFBIG), "allow 41943040"));
	assert_int_equal(meter_charge(UINT64_MAX), -EFBIG);
	meter_stats(&after);
	assert_int_equal(after.waits, before.waits);
	assert_int_equal(after.refusals, before.refusals + 2);
	assert_int_equal(used(), 0);
}

static void charges_that_do_not_fit_now_are_refused_in_the_end(void **state)
{
	assert_int_equal(meter_charge(MOST), 0);
	assert_int_equal(meter_charge(METER_SMALL), -ENOMEM);
	assert_non_null(strstr(err_text(-ENOMEM), "41943040 of 41943040"));
	/* Small charges may use the reserved bytes. */
	assert_int_equal(meter_charge(METER_SMALL - 1), 0);
	meter_release(METER_SMALL - 1);
	meter_release(MOST);
	assert_int_equal(used(), 0);
}

static void after_a_failed_wait_large_charges_hurry(void **state)
{
	struct meter_stats earlier, before, after;
	int64_t began;

	assert_int_equal(meter_charge(MOST), 0);
	/* When the machine stands still for that long, the hurry ends; then try again. */
	do {
		do {
			began = clock_ns();
			meter_stats(&earlier);
			assert_int_equal(meter_charge(MiB), -ENOMEM);
			meter_stats(&before);
		} while (before.hurried > earlier.hurried);
		for (int i = 0; i < 20; i++)
			assert_int_equal(meter_charge(MiB), -ENOMEM);
		meter_stats(&after);
	} while (clock_ns() - began >= METER_HURRIED_NS);
	assert_int_equal(after.hurried, before.hurried + 20);
	meter_release(MOST);
	/* A charge that fits does not wait at all. */
	assert_int_equal(meter_charge(MOST), 0);
	meter_release(MOST);
	meter_stats(&after);
	assert_int_equal(after.waits, before.waits + 20);
	assert_int_equal(used(), 0);
}

static void charges_that_do_not_fit_beside_ones_own_are_refused_at_once(void **state)
{
	struct meter_stats before, after;

	meter_begin();
	assert_int_equal(meter_charge(MOST - MiB), 0);
	meter_stats(&before);
	assert_int_equal(meter_charge(2 * MiB), -EFBIG);
	assert_non_null(strstr(err_text(-EFBIG), "2097152 more bytes of memory beside 40894464"));
	meter_begin();
	assert_int_equal(meter_charge(2 * MiB), -EFBIG);
	meter_end();
	meter_stats(&after);
	assert_int_equal(after.waits, before.waits);
	/* Memory that was released no longer counts as the operation's own. */
	meter_release(MOST - MiB);
	assert_int_equal(meter_charge(MOST), 0);
	meter_end();
	/* A later operation holds nothing of its own. */
	meter_begin();
	assert_int_equal(meter_charge(MiB), -ENOMEM);
	meter_end();
	meter_release(MOST);
	assert_int_equal(used(), 0);
}

static void an_arena_that_was_emptied_is_still_charged(void **state)
{
	struct arena a = { .metered = true };

	for (int i = 0; i < 3; i++) {
		assert_non_null(arena_alloc(&a, MiB));
		assert_true(used() > MiB && used() == a.total);
		arena_release(&a);
		assert_int_equal(used(), 0);
	}
}

static uint64_t waits(void)
{
	struct meter_stats s;

	meter_stats(&s);
	return s.waits;
}

struct release {
	uint64_t n, waits;
};

static void *release_for_waiter(void *arg)
{
	const struct release *r = arg;

	while (waits() == r->waits)
		sched_yield();
	meter_release(r->n);
	return NULL;
}

static void a_charge_waits_for_others(void **state)
{
	struct release r = { MOST, waits() };
	pthread_t thread;

	assert_int_equal(meter_charge(MOST), 0);
	assert_int_equal(pthread_create(&thread, NULL, release_for_waiter, &r), 0);
	assert_int_equal(meter_charge(MiB), 0);
	assert_int_equal(pthread_join(thread, NULL), 0);
	assert_int_equal(waits(), r.waits + 1);
	meter_release(MiB);
	assert_int_equal(used(), 0);
}

static void fill(struct cache *cache, uint64_t id, uint64_t bytes)
{
	struct cache_entry *e;

	assert_int_equal(cache_begin(cache, &(struct cache_key){ 1, id, 0 }, &e), CACHE_MINE);
	cache_fill(cache, e, malloc(1), bytes, free);
	cache_put(cache, e);
}

static void metadata_takes_memory_from_the_cache(void **state)
{
	struct cache *cache = *state;
	struct cache_stats s;

	for (uint64_t i = 0; i < 15; i++)
		fill(cache, i, MiB);
	assert_int_equal(meter_charge(METER_FREE), 0);
	cache_stats(cache, &s);
	assert_true(s.bytes > 15 * MiB);
	assert_int_equal(meter_charge(6 * MiB), 0);
	assert_int_equal(meter_taken(), 6 * MiB);
	cache_stats(cache, &s);
	assert_true(s.bytes <= 10 * MiB && s.bytes > 9 * MiB);
	fill(cache, 99, MiB);
	cache_stats(cache, &s);
	assert_true(s.bytes <= 10 * MiB);
	meter_release(METER_FREE + 6 * MiB);
	assert_int_equal(meter_taken(), 0);
	fill(cache, 100, 5 * MiB);
	cache_stats(cache, &s);
	assert_true(s.bytes > 14 * MiB);
}

static void arenas_and_buffers_charge_their_memory(void **state)
{
	struct arena a = { .metered = true };
	struct buf b = { .metered = true };

	assert_non_null(arena_alloc(&a, 3 * MiB));
	assert_int_equal(used(), a.total);
	assert_int_equal(buf_reserve(&b, MiB), 0);
	assert_int_equal(used(), a.total + MiB);
	b.n = 10;
	buf_shrink(&b);
	assert_int_equal(used(), a.total + b.cap);
	assert_int_equal(buf_reserve(&b, MOST + MiB), -EFBIG);
	assert_int_equal(b.n, 10);
	buf_release(&b);
	assert_int_equal(used(), a.total);
	/* A caller that can only report -ENOMEM passes on the meter's reason. */
	assert_null(arena_alloc(&a, MOST + 1));
	assert_int_equal(fail(-ENOMEM, "cannot read '%s'", "x"), -EFBIG);
	assert_non_null(strstr(err_text(-EFBIG), "cannot read 'x': metadata needs"));
	assert_int_equal(fail(-ENOMEM, "another"), -ENOMEM);
	assert_string_equal(err_text(-ENOMEM), "another");
	arena_unmeter(&a);
	assert_int_equal(used(), 0);
	arena_release(&a);
	assert_int_equal(used(), 0);
}

static void a_document_of_many_values_is_refused_before_it_is_parsed(void **state)
{
	auto_json doc = { 0 };
	auto_buf text = { 0 };
	unsigned n;

	assert_int_equal(buf_add_str(&text, "["), 0);
	for (int i = 0; i < 400000; i++)
		assert_int_equal(buf_add_str(&text, "[],"), 0);
	assert_int_equal(buf_add_str(&text, "[]]"), 0);
	assert_int_equal(json_parse(buf_span(&text), "'x'", &doc), -EFBIG);
	/* The parser has stopped at the first value too many. */
	assert_int_equal(sscanf(strstr(err_text(-EFBIG), "'x': "),
				"'x': more than %u values in 1200004 bytes of JSON", &n),
			 1);
	assert_true(n < 400000);
	assert_int_equal(used(), 0);
	/* At the comma after ten thousand values. */
	text.n = 30001;
	text.p[30000] = ']';
	assert_int_equal(json_parse(buf_span(&text), "'x'", &doc), 0);
	assert_true(used() > 0);
	json_release(&doc);
	assert_int_equal(used(), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(without_a_cache_nothing_is_refused),
		cmocka_unit_test_setup_teardown(charges_that_never_fit_are_refused_at_once, setup,
						teardown),
		cmocka_unit_test_setup_teardown(a_charge_waits_for_others, setup, teardown),
		cmocka_unit_test_setup_teardown(after_a_failed_wait_large_charges_hurry, setup,
						teardown),
		cmocka_unit_test_setup_teardown(charges_that_do_not_fit_now_are_refused_in_the_end,
						setup, teardown),
		cmocka_unit_test_setup_teardown(
			charges_that_do_not_fit_beside_ones_own_are_refused_at_once, setup,
			teardown),
		cmocka_unit_test_setup_teardown(an_arena_that_was_emptied_is_still_charged, setup,
						teardown),
		cmocka_unit_test_setup_teardown(metadata_takes_memory_from_the_cache, setup,
						teardown),
		cmocka_unit_test_setup_teardown(arenas_and_buffers_charge_their_memory, setup,
						teardown),
		cmocka_unit_test_setup_teardown(
			a_document_of_many_values_is_refused_before_it_is_parsed, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
