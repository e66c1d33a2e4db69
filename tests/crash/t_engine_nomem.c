/* SPDX-License-Identifier: Apache-2.0 */
/*
 * t_engine_nomem.c - every allocation fails once while a checkpoint of each kind is opened, listed
 * and read: the error is -ENOMEM, nothing is leaked, and the next attempt finds everything
 * unchanged.
 *
 * The linker redirects the program's calls of malloc and related functions; those inside libraries
 * are not redirected.
 */
#include "core/base/clock.h"
#include "core/base/refusal.h"
#include "tests/unit/lib/mount_walk.h"
#include "tests/unit/lib/nomem.h"

/* For one kind of checkpoint, let the nth allocation fail, for each n until no allocation fails. */
static void fail_each(const char *source)
{
	int64_t began, took;
	static struct walk good, w;
	struct options o;
	struct ns *ns;
	unsigned n;
	bool over = false;

	walk_options(&o, "sync");
	assert_int_equal(ns_open(source, &o, &ns), 0);
	walk_all(&good, ns, NULL, 0);
	ns_close(ns);
	assert_true(good.n > 10);
	for (n = 1; !over; n = after(n)) {
		int r;

		count = 0;
		fail_at = n;
		r = ns_open(source, &o, &ns);
		if (r < 0) {
			fail_at = 0;
			if (r != -ENOMEM)
				fail_msg("%s: allocation %u: opening gave %d: %s", source, n, r,
					 err_text(r));
			continue;
		}
		began = clock_ns();
		walk_all(&w, ns, &good, -ENOMEM);
		took = clock_ns() - began;
		over = count < fail_at;
		fail_at = 0;
		if (w.wrong)
			fail_msg("%s: allocation %u: %s: %s", source, n, w.wrong, w.wrong_line);
		/* The failure is remembered only if it took long, as it does when the machine
		 * stops. */
		if (took >= REFUSAL_COST_NS)
			refusal_age(REFUSAL_NS);
		walk_all(&w, ns, &good, 0);
		if (w.wrong)
			fail_msg("%s: after allocation %u: %s: %s", source, n, w.wrong,
				 w.wrong_line);
		ns_close(ns);
	}
	print_message("%s: up to allocation %u\n", strstr(source, "data/"), n);
	assert_true(n > 100);
	options_release(&o);
}

static void flax_file(void **state)
{
	fail_each(DATA "/old/0.5.20/flax");
}

static void aggregate(void **state)
{
	fail_each(DATA "/old/0.4.8/aggregate");
}

static void parts_never_merged(void **state)
{
	fail_each(DATA "/old/0.3.5/ocdbt");
}

static void arrays_as_directories(void **state)
{
	fail_each(DATA "/old/0.4.3/perleaf");
}

static void shards_in_a_database(void **state)
{
	fail_each(DATA "/old/0.9.1/zarr3");
}

static void database(void **state)
{
	fail_each(DATA "/old/0.12.4/pytree");
}

static void root_of_steps(void **state)
{
	fail_each(DATA "/old/0.4.3/manager");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(flax_file),
		cmocka_unit_test(aggregate),
		cmocka_unit_test(parts_never_merged),
		cmocka_unit_test(arrays_as_directories),
		cmocka_unit_test(shards_in_a_database),
		cmocka_unit_test(database),
		cmocka_unit_test(root_of_steps),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
