/* SPDX-License-Identifier: Apache-2.0 */
/*
 * t_read_faults.c - each read and open of a checkpoint fails once, whole or half-way, while
 * everything is listed and read. Each result is the same as without faults, or an error that names
 * the file; afterwards all results are the same again.
 *
 * All operations fail with TEST_EVERY_FAULT, else a part of them.
 */
#include "tests/unit/lib/draft_make.h"
#include "tests/unit/lib/mount_walk.h"
#include "tests/unit/lib/points.h"
#include "tests/unit/lib/tmp_dir.h"

static const char *const rules[] = { "read:eio", "read:torn", "open:eio" };

static char root[TMP_DIR_MAX];
static unsigned long points, hits;

/* Static, since both are large. */
static struct walk good, now;

static void open_source(const char *source, const char *io, struct options *o, struct ns **ret)
{
	walk_options(o, io);
	/* Data in the cache would not be read, so its reads could not fail. */
	assert_int_equal(option_set(o, "cache=0", false), 0);
	assert_int_equal(ns_open(source, o, ret), 0);
}

/* Let the nth operation fail. Returns false if there are fewer. */
static bool one_fault(const char *source, const char *rule, unsigned n)
{
	char io[128];
	struct options o;
	struct ns *ns;
	bool hit;
	int r;

	snprintf(io, sizeof(io), "fault(%s:%u):sync", rule, n);
	walk_options(&o, io);
	assert_int_equal(option_set(&o, "cache=0", false), 0);
	points++;
	r = ns_open(source, &o, &ns);
	if (r < 0) {
		options_release(&o);
		assert_int_equal(r, -EIO);
		return true;
	}
	walk_all(&now, ns, &good, -EIO);
	if (now.wrong)
		fail_msg("%s: %s: %s: %s", source, io, now.wrong, now.wrong_line);
	hit = now.failures > 0;
	/* The failure is not remembered. If it has not occurred yet, it would occur now. */
	if (hit)
		walk_all(&now, ns, &good, 0);
	if (now.wrong)
		fail_msg("%s: after %s: %s: %s", source, io, now.wrong, now.wrong_line);
	ns_close(ns);
	options_release(&o);
	return hit;
}

static void fail_each(const char *source)
{
	unsigned step = points_step("TEST_EVERY_FAULT", 31);
	struct options o;
	struct ns *ns;

	open_source(source, "sync", &o, &ns);
	walk_all(&good, ns, NULL, 0);
	ns_close(ns);
	options_release(&o);
	assert_true(good.n > 10);
	for (size_t i = 0; i < ARRAY_LEN(rules); i++) {
		unsigned quiet = 0;

		/* Not every fault has an effect: for example, a file may be looked up twice. */
		for (unsigned n = 1; quiet < (step == 1 ? 40 : 3); n += step) {
			bool hit = one_fault(source, rules[i], n);

			quiet = hit ? 0 : quiet + 1;
			hits += hit;
		}
	}
}

/* Both engines repeat interrupted calls, with the same results. */
static void interrupt_some(const char *source)
{
	static const char *const stacks[] = { "fault(any:eintr:20%;any:eagain:5%):sync",
					      "fault(any:eintr:20%;any:eagain:5%):auto" };
	struct options o;
	struct ns *ns;

	for (size_t i = 0; i < ARRAY_LEN(stacks); i++) {
		open_source(source, stacks[i], &o, &ns);
		walk_all(&now, ns, &good, 0);
		if (now.wrong)
			fail_msg("%s: %s: %s: %s", source, stacks[i], now.wrong, now.wrong_line);
		ns_close(ns);
		options_release(&o);
	}
}

static void saved(const char *const *set)
{
	static unsigned n;
	struct options o;
	char source[100];
	struct ns *ns;

	snprintf(source, sizeof(source), "%s/%u", root, n++);
	assert_int_equal(mkdir(source, 0700), 0);
	made_options(&o, set);
	assert_int_equal(ns_open(source, &o, &ns), 0);
	assert_int_equal(make_draft(ns, "100.tmp"), 0);
	assert_int_equal(commit_draft(ns, "100.tmp", "100"), 0);
	ns_close(ns);
	options_release(&o);
	fail_each(source);
	interrupt_some(source);
}

static void chunks_without_compression(void **state)
{
	static const char *const set[] = { "compression=none", NULL };

	saved(set);
}

static void chunks_in_small_files(void **state)
{
	static const char *const set[] = { "zarr=3", "chunk_byte_size=600",
					   "target_data_file_size=2000", NULL };

	saved(set);
}

static void arrays_as_directories(void **state)
{
	static const char *const set[] = { "ocdbt=off", "compression=none", NULL };

	saved(set);
}

static void parts_never_merged(void **state)
{
	fail_each(DATA "/old/0.3.5/ocdbt");
	interrupt_some(DATA "/old/0.3.5/ocdbt");
}

static void aggregate(void **state)
{
	fail_each(DATA "/old/0.4.8/aggregate");
	interrupt_some(DATA "/old/0.4.8/aggregate");
}

static int setup(void **state)
{
	return tmp_dir_make(root, "t_reads");
}

static int teardown(void **state)
{
	print_message("%lu faults tried, %lu came\n", points, hits);
	return tmp_dir_remove(root) || hits < 100;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(chunks_without_compression),
		cmocka_unit_test(chunks_in_small_files),
		cmocka_unit_test(arrays_as_directories),
		cmocka_unit_test(parts_never_merged),
		cmocka_unit_test(aggregate),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
