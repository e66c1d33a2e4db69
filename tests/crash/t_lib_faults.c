/* SPDX-License-Identifier: Apache-2.0 */
/*
 * t_lib_faults.c - a save over the library's public header, in which the power goes, or one request
 * or one allocation fails: at every point there is a whole step or none, or when a step is replaced
 * one of the two; an error says what failed, the draft can be committed again or aborted, and no
 * descriptor or thread is left behind.
 *
 * A run takes a part of all points; TEST_EVERY_CRASH, TEST_EVERY_FAULT and TEST_EVERY_ALLOCATION
 * take all of them. The address sanitizer looks for memory that is left (tests/sanitize).
 */
#include "core/base/mem.h"
#include "tests/engine/io_crash.h"
#include "tests/unit/lib/fault_rules.h"
#include "tests/unit/lib/nomem.h"
#include "tests/unit/lib/points.h"
#include "tests/unit/lib/tmp_dir.h"
#include "tools/lib/pytreefs.h"

#define SMALL "cache=1M,write_budget=16M,read_budget=4M,threads=1"

static const char *const sets[] = {
	"compression=none",
	"zarr=3,chunk_byte_size=600,target_data_file_size=2000",
	"ocdbt=off",
	"atomicity=commit_file",
};

static const char *const modes[] = { "keep", "drop", "tear" };

static char root[TMP_DIR_MAX];
static char trying[300]; /* for messages */
static const char *set;  /* the present set of options for saving */
static unsigned long crashes, whole, faults, hits, by_commit, allocations;

/* ---- the saved step ---- */

static float w[30 * 20];
static uint8_t count_of[3000];
static const uint64_t w_shape[] = { 30, 20 }, count_shape[] = { sizeof(count_of) };
static int64_t number = 7;
static unsigned flags; /* of the draft */
static const char name[] = "a string of no great length", metrics[] = "{\"loss\": 0.5}";

#define NAMED(text)                                       \
	{                                                 \
		text, sizeof(text) - 1, PYTREEFS_KEY_NAME \
	}
static const struct pytreefs_key key_w[] = { NAMED("default"), NAMED("params"), NAMED("w") },
				 key_step[] = { NAMED("default"), NAMED("step") },
				 key_name[] = { NAMED("default"), NAMED("na/me") },
				 key_none[] = { NAMED("default"), NAMED("none") },
				 key_empty[] = { NAMED("default"), NAMED("empty") },
				 key_count[] = { NAMED("state"), NAMED("count") },
				 key_metrics[] = { NAMED("metrics.json") };

static const struct pytreefs_value values[] = {
	{ key_w, 3, PYTREEFS_ARRAY, "float32", 2, w_shape, NULL, w },
	{ key_step, 2, PYTREEFS_SCALAR, "int64", 0, NULL, NULL, &number },
	{ key_name, 2, PYTREEFS_STRING, .data = name, .size = sizeof(name) - 1 },
	{ key_none, 2, PYTREEFS_NONE },
	{ key_empty, 2, PYTREEFS_DICT },
	{ key_count, 2, PYTREEFS_ARRAY, "uint8", 1, count_shape, NULL, count_of },
	{ key_metrics, 1, PYTREEFS_FILE, .data = metrics, .size = sizeof(metrics) - 1 },
};

static const char *options_with(const char *io)
{
	static char text[512];

	snprintf(text, sizeof(text), SMALL ",%s,io=%s", set, io);
	return text;
}

/* The library refuses options of saving when it reads. */
static const char *options_of_reading(void)
{
	return strstr(set, "atomicity") ? SMALL ",io=sync,atomicity=commit_file" : SMALL ",io=sync";
}

/* Write a draft without committing it. On failure, the draft may exist or not. */
static int draft(const char *step, const char *io, struct pytreefs_draft **ret)
{
	char path[128];
	int r;

	snprintf(path, sizeof(path), "%s/%s", root, step);
	r = pytreefs_draft_begin(path, options_with(io), flags, ret);
	if (r >= 0)
		r = pytreefs_draft_put(*ret, values, ARRAY_LEN(values), NULL);
	if (r >= 0)
		r = pytreefs_draft_attribute(*ret, NULL, 0, "custom_metadata", "{\"run\": 5}");
	return r;
}

static void save_undisturbed(const char *step)
{
	struct pytreefs_draft *d = NULL;
	int r = draft(step, "sync", &d);

	if (r >= 0)
		r = pytreefs_draft_commit(d, NULL);
	if (r < 0)
		fail_msg("%s: the same without a failure: %s", trying, pytreefs_error());
}

/* ---- the state afterwards ---- */

static void bytes_are(struct pytreefs *ck, const char *path, const void *want, size_t n)
{
	char got[4096];
	struct pytreefs_request q = { .name = path, .to = got, .size = n };

	if (pytreefs_read_many(ck, &q, 1, NULL) < 0)
		fail_msg("%s: %s: %s", trying, path, pytreefs_error());
	if (memcmp(got, want, n))
		fail_msg("%s: %s: other bytes than those that were saved", trying, path);
	pytreefs_requests_release(&q, 1);
}

static void text_is(struct pytreefs *ck, const char *path, const char *want)
{
	char got[100];
	ssize_t n = pytreefs_read(ck, path, got, sizeof(got) - 1, 0);

	if (n < 0)
		fail_msg("%s: %s: %s", trying, path, pytreefs_error());
	got[n] = '\0';
	if (strcmp(got, want))
		fail_msg("%s: %s: '%s', not '%s'", trying, path, got, want);
}

static const char *number_text(void)
{
	static char text[32];

	snprintf(text, sizeof(text), "%lld\n", (long long)number);
	return text;
}

static void check_step(const char *step)
{
	struct pytreefs *ck = NULL;
	struct pytreefs_tree *tree = NULL;
	char path[128], *text = NULL;

	snprintf(path, sizeof(path), "%s/%s", root, step);
	if (pytreefs_open(path, options_of_reading(), &ck) < 0)
		fail_msg("%s: step %s: %s", trying, step, pytreefs_error());
	bytes_are(ck, "default/params/w.npy", w, sizeof(w));
	bytes_are(ck, "state/count.npy", count_of, sizeof(count_of));
	text_is(ck, "default/step.json", number_text());
	text_is(ck, "default/na%2Fme.txt", name);
	text_is(ck, "metrics/metrics", metrics);
	if (pytreefs_describe(ck, "default/none.null", &tree) < 0 ||
	    pytreefs_tree_node(tree, 0)->kind != PYTREEFS_NONE)
		fail_msg("%s: step %s: none.null: %s", trying, step, pytreefs_error());
	pytreefs_tree_free(tree);
	if (pytreefs_attribute(ck, "", "custom_metadata", &text) < 0 || !strstr(text, "5"))
		fail_msg("%s: step %s: custom_metadata: %s", trying, step, pytreefs_error());
	pytreefs_free_text(text);
	pytreefs_close(ck);
}

/* Whether the step has that number. */
static bool has_number(const char *step, int64_t want)
{
	struct pytreefs *ck = NULL;
	char path[128], got[32];
	ssize_t n;

	snprintf(path, sizeof(path), "%s/%s", root, step);
	if (pytreefs_open(path, options_of_reading(), &ck) < 0)
		fail_msg("%s: step %s: %s", trying, step, pytreefs_error());
	n = pytreefs_read(ck, "default/step.json", got, sizeof(got) - 1, 0);
	if (n < 0)
		fail_msg("%s: step %s: %s", trying, step, pytreefs_error());
	pytreefs_close(ck);
	got[n] = '\0';
	return strtoll(got, NULL, 10) == want;
}

static int add_name(void *arg, const struct pytreefs_entry *e)
{
	strcat(strcat(arg, e->name), " ");
	return 0;
}

/* Check every step: "100 " or "100 101 ". Returns true if the new step exists. */
static bool look(void)
{
	struct pytreefs *ck = NULL;
	char names[1000] = "";
	bool is_new;

	if (pytreefs_open(root, options_of_reading(), &ck) < 0 ||
	    pytreefs_list(ck, "", add_name, names) < 0)
		fail_msg("%s: the root: %s", trying, pytreefs_error());
	pytreefs_close(ck);
	is_new = !strcmp(names, "100 101 ");
	if (!is_new && strcmp(names, "100 "))
		fail_msg("%s: the root has '%s'", trying, names);
	check_step("100");
	if (is_new)
		check_step("101");
	return is_new;
}

/* Remove the new step; apart from it, there may only be the old one. */
static void clean(const char *pattern)
{
	if (tmp_dir_matching(root, pattern, true) < 0 || tmp_dir_matching(root, "*", false) != 1 ||
	    tmp_dir_matching(root, "100", false) != 1)
		fail_msg("%s: something was left in the source", trying);
}

/* The number of open descriptors and threads of this process. */
static int held(void)
{
	return 1000 * tmp_dir_matching("/proc/self/task", "*", false) +
	       tmp_dir_matching("/proc/self/fd", "*", false);
}

/*
 * A joined thread is listed until the kernel has ended it, so wait until only one thread is left.
 */
static int held_before(void)
{
	for (unsigned i = 0; i < 60000 && held() >= 2000; i++)
		usleep(1000);
	return held();
}

static void nothing_is_left(int before)
{
	for (unsigned i = 0; i < 60000 && held() != before; i++)
		usleep(1000);
	if (held() != before)
		fail_msg("%s: %d threads and descriptors, not %d", trying, held(), before);
}

static int setup(void **state)
{
	for (size_t i = 0; i < ARRAY_LEN(w); i++)
		w[i] = (float)(i * 7 % 101) / 4;
	for (size_t i = 0; i < sizeof(count_of); i++)
		count_of[i] = (uint8_t)(i * i >> 3);
	if (tmp_dir_make(root, "t_lib_faults") < 0)
		return -1;
	snprintf(trying, sizeof(trying), "setup");
	set = sets[0];
	save_undisturbed("100");
	assert_false(look());
	return 0;
}

static int teardown(void **state)
{
	print_message("%lu crash points, %lu of them left the whole step; %lu faults, %lu came, "
		      "%lu of them in the commit; %lu allocations failed\n",
		      crashes, whole, faults, hits, by_commit, allocations);
	return tmp_dir_remove(root);
}

/* ---- the power goes ---- */

static void one_crash(const char *io, int *ret)
{
	int before = held_before();
	struct pytreefs_draft *d = NULL;

	snprintf(trying, sizeof(trying), "%s %s", set, io);
	*ret = draft("101", io, &d);
	if (*ret >= 0)
		*ret = pytreefs_draft_commit(d, NULL);
	if (*ret < 0)
		pytreefs_draft_abort(d);
	assert_int_equal(io_crash_failures(), 0);
	nothing_is_left(before);
	crashes++;
	if (look())
		whole++;
	else if (*ret >= 0)
		fail_msg("%s: the commit returned 0, and the step is not there", trying);
	else if (crashes % 5 == 0) {
		/* The remains of the crash do not prevent a new save. */
		save_undisturbed("101");
		assert_true(look());
	}
	tmp_dir_matching(root, "101*", true);
	tmp_dir_matching(root, ".*", true);
}

static void a_crash_leaves_the_whole_step_or_none(void **state)
{
	unsigned step = points_step("TEST_EVERY_CRASH", 5);

	for (size_t i = 0; i < ARRAY_LEN(sets) * ARRAY_LEN(modes); i++) {
		int r = -1;

		set = sets[i / ARRAY_LEN(modes)];
		for (unsigned n = 1 + (unsigned)i * 5 % step; r < 0; n += step) {
			char io[64];

			snprintf(io, sizeof(io), "fault(crash:%s@%u):sync",
				 modes[i % ARRAY_LEN(modes)], n);
			one_crash(io, &r);
		}
	}
	assert_true(crashes > 400 / step && whole >= ARRAY_LEN(sets) * ARRAY_LEN(modes));
}

/* ---- a step is replaced ---- */

/* Replace step 100, whose number is `was`. Returns whether it is the new one, which has `now`. */
static bool replace(const char *io, int64_t was, int64_t now, int *ret)
{
	int before = held_before();
	struct pytreefs_draft *d = NULL;

	number = now;
	flags = PYTREEFS_DRAFT_REPLACE;
	*ret = draft("100", io, &d);
	if (*ret >= 0)
		*ret = pytreefs_draft_commit(d, NULL);
	if (*ret < 0)
		pytreefs_draft_abort(d);
	flags = 0;
	assert_int_equal(io_crash_failures(), 0);
	nothing_is_left(before);
	number = has_number("100", now) ? now : was;
	assert_false(look());
	if (*ret >= 0 && number != now)
		fail_msg("%s: the commit returned 0, and the step is the old one", trying);
	return number == now;
}

static void a_crash_leaves_the_old_step_or_the_new_one(void **state)
{
	unsigned step = getenv("TEST_EVERY_CRASH") ? 1 : 5;
	unsigned old = 0, cut = 0, new = 0; /* cut: after the exchange, before the end */

	for (size_t i = 0; i < 3 * ARRAY_LEN(modes); i++) {
		int r = -1, again;

		set = sets[i / ARRAY_LEN(modes)];
		for (unsigned n = 1; r < 0; n += step) {
			char io[64];

			snprintf(io, sizeof(io), "fault(crash:%s@%u):sync",
				 modes[i % ARRAY_LEN(modes)], n);
			snprintf(trying, sizeof(trying), "%s %s", set, io);
			*(!replace(io, number, number + 1, &r) ? &old : r < 0 ? &cut : &new) += 1;
			/* The remains of the crash do not prevent a new save. */
			if (n % 3 == 0)
				assert_true(replace("sync", number, number + 1, &again));
			tmp_dir_matching(root, ".*", true);
		}
	}
	assert_true(old > 50 && cut > 0 && new >= 3 * ARRAY_LEN(modes));
}

/* Every rename and sync of a directory fails once, also where names cannot be exchanged. */
static void a_failure_leaves_the_old_step(void **state)
{
	static const char *const ways[] = { "", "exchange:einval:always;" };
	static const char *const ops[] = { "rename", "syncdir" };

	set = sets[0];
	for (unsigned i = 0; i < ARRAY_LEN(ways) * ARRAY_LEN(ops); i++) {
		unsigned quiet = 0, failures = 0;

		/* Not every fault has an effect, as when what was replaced is removed. */
		for (unsigned n = 1; quiet < 6; n++) {
			char io[100];
			int r;

			snprintf(io, sizeof(io), "fault(%s%s:eio:%u):sync", ways[i % 2], ops[i / 2],
				 n);
			snprintf(trying, sizeof(trying), "replaced, %s", io);
			/* A commit that fails has replaced nothing. */
			if (replace(io, number, number + 1, &r) != (r == 0))
				fail_msg("%s: %d: %s", trying, r, pytreefs_error());
			assert_true(r == 0 || r == -EIO);
			quiet = r < 0 ? 0 : quiet + 1;
			failures += r < 0;
			if (tmp_dir_matching(root, ".*", false))
				fail_msg("%s: something was left in the source", trying);
		}
		assert_true(failures > 3);
	}
}

/* ---- one thing fails ---- */

/* Check that the error has that code, and names a file, a leaf, or the step. */
static void check_error(int r, int code)
{
	if (r != code || pytreefs_error_code() != code)
		fail_msg("%s: %d, not %d: %s", trying, r, code, pytreefs_error());
	if (!strchr(pytreefs_error(), '\'') && (code != -ENOMEM || !*pytreefs_error()))
		fail_msg("%s: the error names nothing: '%s'", trying, pytreefs_error());
	if (!strstr(pytreefs_error_name(), "101"))
		fail_msg("%s: the error is about '%s'", trying, pytreefs_error_name());
}

/*
 * Save with at most one failure; afterwards the step exists. Returns true if there was a failure.
 */
static bool save(const char *io, int code)
{
	struct pytreefs_draft *d = NULL;
	int before = held_before(), r = draft("101", io, &d);
	bool hit = r < 0;

	if (hit) {
		check_error(r, code);
		pytreefs_draft_abort(d);
		fail_at = 0;
		nothing_is_left(before);
		assert_false(look());
		clean("101");
		save_undisturbed("101");
	} else if (pytreefs_draft_commit(d, NULL) < 0) {
		hit = true;
		by_commit++;
		check_error(pytreefs_error_code(), code);
		fail_at = 0;
		assert_false(look());
		/* The draft is unchanged. */
		if (pytreefs_draft_commit(d, NULL) < 0)
			fail_msg("%s: not committed again: %s", trying, pytreefs_error());
	}
	fail_at = 0;
	nothing_is_left(before);
	assert_true(look());
	clean("101");
	return hit;
}

static void operations_fail(void **state)
{
	unsigned step = points_step("TEST_EVERY_FAULT", 7);

	for (size_t i = 0; i < ARRAY_LEN(sets) * ARRAY_LEN(fault_rules); i++) {
		size_t k = i % ARRAY_LEN(fault_rules);
		unsigned quiet = 0; /* Not every fault has an effect. */

		set = sets[i / ARRAY_LEN(fault_rules)];
		for (unsigned n = 1 + (unsigned)i % step; quiet < 60 / step; n += step) {
			char io[64];
			bool hit;

			snprintf(io, sizeof(io), "fault(%s:%u):sync", fault_rules[k].rule, n);
			snprintf(trying, sizeof(trying), "%s %s", set, io);
			hit = save(io, fault_rules[k].code);
			quiet = hit ? 0 : quiet + 1;
			faults++;
			hits += hit;
		}
	}
	assert_true(hits > 400 / step && by_commit > 70 / step);
}

static void allocations_fail(void **state)
{
	for (size_t i = 0; i < ARRAY_LEN(sets); i++) {
		bool over = false;

		set = sets[i];
		for (unsigned n = 1; !over; n = after(n)) {
			snprintf(trying, sizeof(trying), "%s allocation %u", set, n);
			count = 0;
			fail_at = n;
			allocations += save("sync", -ENOMEM);
			over = count < n;
		}
	}
	assert_true(allocations > 100);
}

/* The remains of a failed abort do not prevent the next save, and are not a step. */
static void an_abort_that_fails(void **state)
{
	set = sets[0];
	for (unsigned n = 1; n < 12; n++) {
		static const char *const ops[] = { "unlink", "rmdir", "rename", "any" };

		for (size_t i = 0; i < ARRAY_LEN(ops); i++) {
			struct pytreefs_draft *d = NULL;
			int before = held_before(), r;
			char io[64];

			/* The draft itself does not use the first three operations. */
			snprintf(io, sizeof(io), "fault(%s:eio:%u+):sync", ops[i],
				 i == 3 ? 40 * n : n);
			snprintf(trying, sizeof(trying), "abort, %s", io);
			r = draft("101", io, &d);
			if (r < 0)
				check_error(r, -EIO);
			pytreefs_draft_abort(d);
			nothing_is_left(before);
			assert_false(look());
			save_undisturbed("101");
			assert_true(look());
			tmp_dir_matching(root, "101*", true);
			tmp_dir_matching(root, ".*", true);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_crash_leaves_the_whole_step_or_none),
		cmocka_unit_test(a_crash_leaves_the_old_step_or_the_new_one),
		cmocka_unit_test(a_failure_leaves_the_old_step),
		cmocka_unit_test(operations_fail),
		cmocka_unit_test(allocations_fail),
		cmocka_unit_test(an_abort_that_fails),
	};

	io_crash_register();
	return cmocka_run_group_tests(tests, setup, teardown);
}
