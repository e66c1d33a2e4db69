/* SPDX-License-Identifier: Apache-2.0 */
/*
 * t_cache.c - the limit, single flight, failures, and dropping.
 */
#include "tests/unit/lib/unit.h"

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "core/base/cache.h"

static atomic_int freed;

static void free_counted(void *p)
{
	atomic_fetch_add(&freed, 1);
	free(p);
}

static struct cache_entry *put_one(struct cache *c, uint64_t owner, uint64_t id, uint64_t charge)
{
	struct cache_key k = { owner, id, 0 };
	struct cache_entry *e;

	assert_int_equal(cache_begin(c, &k, &e), CACHE_MINE);
	cache_fill(c, e, malloc(1), charge, free_counted);
	return e;
}

static void the_least_recently_used_goes_first(void **state)
{
	uint64_t owner = cache_owner();
	struct cache_stats st;
	struct cache_entry *e;
	struct cache *c;

	freed = 0;
	assert_int_equal(cache_new(40000, &c), 0);
	for (uint64_t i = 0; i < 3; i++)
		cache_put(c, put_one(c, owner, i, 10000));
	/* Use 0, so that 1 is the least recently used when 3 is added. */
	assert_true(cache_peek(c, &(struct cache_key){ owner, 0, 0 }, CACHE_READY, &e));
	cache_put(c, e);
	cache_put(c, put_one(c, owner, 3, 10000));
	assert_true(cache_has(c, &(struct cache_key){ owner, 0, 0 }, CACHE_READY));
	assert_false(cache_has(c, &(struct cache_key){ owner, 1, 0 }, CACHE_READY));
	assert_int_equal(freed, 1);
	cache_stats(c, &st);
	assert_true(st.bytes <= 40000);
	assert_true(st.peak_bytes <= 40000);
	cache_free(c);
	assert_int_equal(freed, 4);
}

static void an_entry_that_is_being_filled_is_found_on_request(void **state)
{
	struct cache_key key = { cache_owner(), 0, 0 };
	struct cache_entry *mine, *e;
	struct cache_stats st;
	struct cache *c;

	assert_int_equal(cache_new(40000, &c), 0);
	assert_false(cache_peek(c, &key, CACHE_READY_OR_BUSY, &e));
	assert_int_equal(cache_begin(c, &key, &mine), CACHE_MINE);
	assert_false(cache_peek(c, &key, CACHE_READY, &e));
	assert_true(cache_peek(c, &key, CACHE_READY_OR_BUSY, &e));
	cache_fail(c, mine, fail(-EIO, "no bytes"));
	cache_put(c, mine);
	assert_int_equal(cache_wait(c, e), -EIO);
	cache_put(c, e);
	assert_false(cache_peek(c, &key, CACHE_READY_OR_BUSY, &e));
	cache_stats(c, &st);
	assert_int_equal(st.waits, 1);
	assert_int_equal(st.misses, 1);
	cache_free(c);
}

/*
 * A reader has passed ten entries, and two of them are requested again; the others are freed one by
 * one until an eighth of the limit is left.
 */
static void drop_behind_entries_are_freed_one_by_one(void **state)
{
	uint64_t owner = cache_owner();
	struct cache_entry *e, *held;
	struct cache_stats st;
	struct cache *c;

	freed = 0;
	assert_int_equal(cache_new(160000, &c), 0);
	for (uint64_t i = 0; i < 10; i++)
		cache_put(c, put_one(c, owner, i, 9000));
	assert_true(cache_peek(c, &(struct cache_key){ owner, 9, 0 }, CACHE_READY, &held));
	/* Ids without an entry are ignored. */
	cache_drop_behind(c, &(struct cache_key){ owner, 0, 0 }, 20);
	cache_drop_behind(c, &(struct cache_key){ owner, 0, 1 }, 20);
	assert_int_equal(freed, 0);
	assert_true(cache_peek(c, &(struct cache_key){ owner, 0, 0 }, CACHE_READY, &e));
	cache_put(c, e);
	cache_put(c, held);
	for (uint64_t i = 20; i < 24; i++)
		cache_put(c, put_one(c, owner, i, 9000));
	/* Two for each entry added. */
	assert_int_equal(freed, 7);
	cache_stats(c, &st);
	assert_true(st.drop_behind_bytes > 0 && st.drop_behind_bytes <= 20000);
	assert_true(cache_has(c, &(struct cache_key){ owner, 0, 0 }, CACHE_READY));
	assert_false(cache_has(c, &(struct cache_key){ owner, 1, 0 }, CACHE_READY));
	for (uint64_t i = 20; i < 24; i++)
		assert_true(cache_has(c, &(struct cache_key){ owner, i, 0 }, CACHE_READY));
	/* When bytes are needed, drop-behind entries go before older ones. */
	cache_put(c, put_one(c, owner, 30, 160000 - (st.bytes - st.drop_behind_bytes) - 1000));
	assert_true(cache_has(c, &(struct cache_key){ owner, 0, 0 }, CACHE_READY));
	cache_stats(c, &st);
	assert_int_equal(st.drop_behind_bytes, 0);
	cache_free(c);
	assert_int_equal(freed, 15);
}

static void entries_filled_ahead_are_counted(void **state)
{
	uint64_t owner = cache_owner(), other = cache_owner();
	struct cache_entry *e, *again;
	struct cache_stats st;
	struct cache *c;

	freed = 0;
	assert_int_equal(cache_new(100000, &c), 0);
	for (uint64_t i = 0; i < 4; i++)
		cache_put_ahead(c, put_one(c, i == 3 ? other : owner, i, 9000));
	/* It was requested while it was being filled. */
	e = put_one(c, owner, 9, 9000);
	assert_true(cache_peek(c, &e->key, CACHE_READY, &again));
	cache_put_ahead(c, e);
	cache_put(c, again);
	/* The reader may finish before the thread that filled the entry. */
	e = put_one(c, owner, 8, 9000);
	assert_true(cache_peek(c, &e->key, CACHE_READY, &again));
	cache_put(c, again);
	cache_put_ahead(c, e);
	/* cache_has() does not count as a request. */
	assert_true(cache_has(c, &(struct cache_key){ owner, 0, 0 }, CACHE_READY));
	assert_true(cache_peek(c, &(struct cache_key){ owner, 0, 0 }, CACHE_READY, &e));
	cache_put(c, e);
	cache_stats(c, &st);
	assert_true(st.ahead_started > 6 * 9000 && st.ahead_started < 7 * 9000);
	assert_true(st.ahead_used > 3 * 9000 && st.ahead_used < 4 * 9000);
	assert_int_equal(st.ahead_used + st.ahead_bytes, st.ahead_started);
	assert_int_equal(st.ahead_wasted, 0);
	/*
	 * After cache_end_ahead(), entries of the owner are freed before less recently used ones.
	 */
	cache_end_ahead(c, owner);
	cache_put(c, put_one(c, owner, 10, 55000));
	assert_true(cache_has(c, &(struct cache_key){ owner, 0, 0 }, CACHE_READY));
	assert_false(cache_has(c, &(struct cache_key){ owner, 1, 0 }, CACHE_READY));
	assert_true(cache_has(c, &(struct cache_key){ other, 3, 0 }, CACHE_READY));
	cache_drop(c, other);
	cache_drop(c, owner);
	cache_stats(c, &st);
	assert_int_equal(st.ahead_bytes, 0);
	assert_int_equal(st.ahead_used + st.ahead_wasted, st.ahead_started);
	cache_free(c);
}

/* They are evicted before others, but only when the bytes are needed: a reader may come after all. */
static void given_up_entries_stay_while_there_is_room(void **state)
{
	uint64_t owner = cache_owner(), other = cache_owner();
	struct cache_stats st;
	struct cache_entry *e;
	struct cache *c;

	freed = 0;
	assert_int_equal(cache_new(100000, &c), 0);
	cache_put(c, put_one(c, other, 0, 9000));
	for (uint64_t i = 0; i < 5; i++)
		cache_put_ahead(c, put_one(c, owner, i, 9000));
	cache_end_ahead(c, owner);
	cache_stats(c, &st);
	assert_int_equal(st.ahead_bytes, 0);
	for (uint64_t i = 1; i < 5; i++)
		cache_put(c, put_one(c, other, i, 9000));
	assert_int_equal(freed, 0);
	assert_true(cache_peek(c, &(struct cache_key){ owner, 0, 0 }, CACHE_READY, &e));
	cache_put(c, e);
	/* The oldest of them that was not requested goes, though another entry is older. */
	cache_put(c, put_one(c, other, 5, 9000));
	assert_int_equal(freed, 1);
	assert_false(cache_has(c, &(struct cache_key){ owner, 1, 0 }, CACHE_READY));
	cache_stats(c, &st);
	assert_true(st.ahead_wasted > 9000 && st.ahead_wasted < 10000);
	assert_true(st.ahead_used > 9000 && st.ahead_used < 10000);
	cache_free(c);
}

static uint64_t bytes_of(struct cache *c)
{
	struct cache_stats st;

	cache_stats(c, &st);
	return st.bytes;
}

static void reserved_bytes_count_before_the_value_is_there(void **state)
{
	struct cache_key key = { cache_owner(), 0, 0 };
	uint64_t others = cache_owner(), one;
	struct cache_stats st;
	struct cache_entry *e;
	struct cache *c;

	freed = 0;
	assert_int_equal(cache_new(40000, &c), 0);
	cache_put(c, put_one(c, others, 0, 10000));
	one = bytes_of(c);
	for (uint64_t i = 1; i < 3; i++)
		cache_put(c, put_one(c, others, i, 10000));
	/* One of the others must go for 15,000 bytes. */
	assert_int_equal(cache_begin(c, &key, &e), CACHE_MINE);
	cache_reserve(c, e, 15000);
	assert_int_equal(freed, 1);
	assert_int_equal(bytes_of(c), 2 * one + one + 5000);
	/* The charge of the value replaces it. */
	cache_fill(c, e, malloc(1), 10000, free_counted);
	assert_int_equal(bytes_of(c), 3 * one);
	cache_put(c, e);
	cache_drop(c, key.owner);
	assert_int_equal(bytes_of(c), 2 * one);
	assert_int_equal(freed, 2);
	/* A failure gives it back; so does dropping the owner while the entry is being filled. */
	assert_int_equal(cache_begin(c, &key, &e), CACHE_MINE);
	cache_reserve(c, e, 15000);
	cache_fail(c, e, -EIO);
	cache_put(c, e);
	assert_int_equal(bytes_of(c), 2 * one);
	for (int fails = 0; fails < 2; fails++) {
		assert_int_equal(cache_begin(c, &key, &e), CACHE_MINE);
		cache_reserve(c, e, 15000);
		cache_drop(c, key.owner);
		assert_int_equal(bytes_of(c), 2 * one);
		if (fails)
			cache_fail(c, e, -EIO);
		else
			cache_fill(c, e, malloc(1), 15000, free_counted);
		cache_put(c, e);
		assert_int_equal(bytes_of(c), 2 * one);
	}
	cache_stats(c, &st);
	assert_int_equal(st.pinned_bytes, 0);
	assert_true(st.peak_bytes <= 40000);
	/* More than the limit is counted, too: the caller has decided to use it. */
	assert_int_equal(cache_begin(c, &key, &e), CACHE_MINE);
	cache_reserve(c, e, 50000);
	assert_int_equal(bytes_of(c), one + 40000);
	cache_fail(c, e, -EIO);
	cache_put(c, e);
	assert_int_equal(bytes_of(c), 0);
	cache_free(c);
}

static void pinned_values_stay(void **state)
{
	uint64_t owner = cache_owner();
	struct cache_entry *e, *big;
	struct cache *c;

	freed = 0;
	assert_int_equal(cache_new(1000, &c), 0);
	e = put_one(c, owner, 1, 900);
	/* An entry larger than the cache lives while it is pinned. */
	big = put_one(c, owner, 2, 5000);
	assert_int_equal(freed, 0);
	cache_put(c, big);
	assert_int_equal(freed, 1);
	cache_put(c, e);
	cache_free(c);
	assert_int_equal(freed, 2);
}

static void held_values_stay_without_a_pin(void **state)
{
	uint64_t owner = cache_owner();
	struct cache_entry *e[4];
	struct cache_stats st;
	struct cache *c;

	freed = 0;
	assert_int_equal(cache_new(1500, &c), 0);
	/* Two that are evicted, one that is dropped while pinned, and one that stays in the cache.
	 */
	for (uint64_t i = 0; i < 4; i++) {
		e[i] = put_one(c, owner + (i == 3), i, i == 3 ? 100 : 900);
		cache_hold(c, e[i]);
		if (i == 0)
			cache_hold(c, e[i]);
		if (i != 2)
			cache_put(c, e[i]);
	}
	cache_drop(c, owner);
	cache_put(c, e[2]);
	cache_stats(c, &st);
	assert_int_equal(st.entries, 1);
	assert_int_equal(st.pinned_bytes, 0);
	assert_true(st.bytes <= 1500);
	assert_int_equal(freed, 0);
	assert_false(cache_has(c, &e[0]->key, CACHE_READY));
	assert_true(cache_has(c, &e[3]->key, CACHE_READY));
	cache_unhold(c, e[0]);
	assert_int_equal(freed, 0);
	for (int i = 0; i < 4; i++)
		cache_unhold(c, e[i]);
	assert_int_equal(freed, 3);
	cache_unhold(c, NULL);
	cache_free(c);
	assert_int_equal(freed, 4);
}

#define RACERS 8

struct racer {
	struct cache *c;
	struct cache_key key;
	atomic_int *fills;
	atomic_int *came; /* how many know whether they fill or wait */
	int code;         /* 0: the filler fills; else it fails with this code */
	int result;
};

static void *race(void *arg)
{
	struct racer *r = arg;
	struct cache_entry *e;

	int state = cache_begin(r->c, &r->key, &e);

	atomic_fetch_add(r->came, 1);
	switch (state) {
	case CACHE_MINE:
		atomic_fetch_add(r->fills, 1);
		while (atomic_load(r->came) < RACERS)
			usleep(1000);
		if (r->code) {
			fail(r->code, "made to fail");
			cache_fail(r->c, e, r->code);
			r->result = r->code;
		} else {
			cache_fill(r->c, e, malloc(1), 10, free);
		}
		break;
	case CACHE_BUSY:
		r->result = cache_wait(r->c, e);
		if (r->result < 0 && strcmp(err_text(r->result), "made to fail"))
			r->result = 1;
		break;
	default:
		break;
	}
	cache_put(r->c, e);
	return NULL;
}

static void race_of(int code)
{
	struct racer r[RACERS];
	pthread_t t[RACERS];
	atomic_int fills = 0, came = 0;
	struct cache *c;

	assert_int_equal(cache_new(1 << 20, &c), 0);
	for (int i = 0; i < RACERS; i++) {
		r[i] = (struct racer){ c, { 1, 2, 3 }, &fills, &came, code, 0 };
		pthread_create(&t[i], NULL, race, &r[i]);
	}
	for (int i = 0; i < RACERS; i++) {
		pthread_join(t[i], NULL);
		assert_int_equal(r[i].result, code);
	}
	/* All requests came while the first one was filling. */
	assert_int_equal(fills, 1);
	assert_int_equal(cache_has(c, &(struct cache_key){ 1, 2, 3 }, CACHE_READY), code == 0);
	cache_free(c);
}

static void one_thread_fills_and_the_others_wait(void **state)
{
	race_of(0);
}

static void waiters_get_the_error_and_the_note(void **state)
{
	race_of(-EBADMSG);
}

static void a_dropped_owner_is_forgotten(void **state)
{
	uint64_t a = cache_owner(), b = cache_owner();
	struct cache_entry *pinned;
	struct cache_stats st;
	struct cache *c;

	freed = 0;
	assert_int_equal(cache_new(1 << 20, &c), 0);
	for (uint64_t i = 0; i < 3000; i++)
		cache_put(c, put_one(c, i % 2 ? a : b, i, 10));
	assert_true(cache_peek(c, &(struct cache_key){ a, 1, 0 }, CACHE_READY, &pinned));
	cache_drop(c, a);
	assert_int_equal(freed, 1499);
	assert_false(cache_has(c, &(struct cache_key){ a, 1, 0 }, CACHE_READY));
	assert_true(cache_has(c, &(struct cache_key){ b, 2, 0 }, CACHE_READY));
	cache_put(c, pinned);
	assert_int_equal(freed, 1500);
	cache_stats(c, &st);
	assert_int_equal(st.entries, 1500);
	assert_int_equal(st.pinned_bytes, 0);
	cache_free(c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_least_recently_used_goes_first),
		cmocka_unit_test(drop_behind_entries_are_freed_one_by_one),
		cmocka_unit_test(entries_filled_ahead_are_counted),
		cmocka_unit_test(given_up_entries_stay_while_there_is_room),
		cmocka_unit_test(reserved_bytes_count_before_the_value_is_there),
		cmocka_unit_test(pinned_values_stay),
		cmocka_unit_test(held_values_stay_without_a_pin),
		cmocka_unit_test(one_thread_fills_and_the_others_wait),
		cmocka_unit_test(an_entry_that_is_being_filled_is_found_on_request),
		cmocka_unit_test(waiters_get_the_error_and_the_note),
		cmocka_unit_test(a_dropped_owner_is_forgotten),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
